"""Which warnings fail a test: our own, and not what packages say of themselves."""

import warnings

import pytest


@pytest.mark.parametrize("kind", [DeprecationWarning, FutureWarning, UserWarning])
def test_a_warning_about_our_own_call_is_an_error(kind: type[Warning]) -> None:
    with pytest.raises(kind):
        warnings.warn("an old name", kind, stacklevel=1)


@pytest.mark.parametrize("kind", [DeprecationWarning, FutureWarning])
def test_what_a_package_says_of_its_own_calls_is_only_shown(
    kind: type[Warning],
) -> None:
    """As PyTorch 2.11 does of torch.jit when something is compiled for a GPU."""
    with warnings.catch_warnings(record=True) as shown:
        warnings.warn_explicit("script is deprecated", kind, "jit.py", 7, "torch.jit")
    assert [each.category for each in shown] == [kind]


def test_pytest_may_say_that_it_cannot_write_its_cache() -> None:
    """As in a checkout that is read-only."""
    with warnings.catch_warnings(record=True) as shown:
        warnings.warn("could not write", pytest.PytestCacheWarning, stacklevel=1)
    assert [each.category for each in shown] == [pytest.PytestCacheWarning]


def test_any_other_warning_of_a_package_is_an_error() -> None:
    with pytest.raises(UserWarning):
        warnings.warn_explicit("odd numbers", UserWarning, "f.py", 7, "torch.nn")
