"""The lists of modules are long, and of different projects."""

import re

import pytest
from benchmarks.public import found, held_out, learn, unseen
from benchmarks.public.modules import Module

SETS = {
    **{"learn": learn.MODULES, "held_out": held_out.MODULES},
    "unseen": unseen.MODULES,
}
LISTS = {**SETS, "found": found.MODULES}


def repositories(modules: dict[str, Module]) -> set[str]:
    """Return the repositories of modules, in small letters as GitHub compares them."""
    return {module.repository.lower() for module in modules.values()}


@pytest.mark.parametrize("name", SETS)
def test_a_set_has_many_modules_of_many_projects(name: str) -> None:
    modules = SETS[name]
    assert len(modules) >= 40
    projects = [module.repository.lower() for module in modules.values()]
    assert len(set(projects)) >= 20
    assert max(map(projects.count, projects)) <= 3


@pytest.mark.parametrize("name", LISTS)
def test_an_entry_says_all_that_measuring_needs(name: str) -> None:
    for key, module in LISTS[name].items():
        assert key.partition(":")[0] == module.repository or name != "found", key
        assert re.fullmatch("[0-9a-f]{40}|.+==.+", module.commit), key
        assert module.mask in {"causal", "bidirectional", "argument"}, key
        assert module.adapter.count("\n") <= 1, key
        assert isinstance(module.arguments, dict), key
        compile(module.names, key, "exec")
        compile(module.make, key, "eval")


def test_no_project_is_in_two_lists() -> None:
    lists = [*map(repositories, LISTS.values())]
    assert len(set().union(*lists)) == sum(map(len, lists))


def test_what_is_asked_as_it_is_comes_from_many_projects() -> None:
    assert len(repositories(found.MODULES)) >= 50
