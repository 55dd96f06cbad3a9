"""Name parameters as the user does, without the modules that are put around a layer."""

import re

from torch import nn

from tested_transformer.checking.functions import FunctionModule
from tested_transformer.checking.styles import Lifted
from tested_transformer.checking.supplying import Supplied

__all__ = ["own_name"]

# What stands before the user's own name of a parameter.
_AROUND: dict[type[nn.Module], str] = {
    FunctionModule: r"held\.((instance|function)\.)?",
    Lifted: r"function\.",
    Supplied: r"layer\.",
}
_PROJECTED = {"q_proj": "queries", "k_proj": "keys", "v_proj": "values"}


def own_name(module: nn.Module, name: str) -> str:
    """Return the name that a parameter of a module has in the user's code.

    A projection that was put around a function has the name of what it projects to. The
    name is empty if nothing in the user's code corresponds to the parameter.
    """
    around = _AROUND.get(type(module))
    if around is None:
        return name
    found = re.match(around, name)
    if found is None:
        return _PROJECTED.get(name.partition(".")[0], "")
    inner = module.get_submodule(found[0].rstrip("."))
    return own_name(inner, name[found.end() :])
