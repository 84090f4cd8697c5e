"""Loads the public names of a package on first use (PEP 562).

This keeps `import raylog` and the start of the command line fast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module


def lazy_names(
    package: str, modules: Mapping[str, Sequence[str]], *own: str
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package, given the public names of each module.

    `own` are public names that the package itself defines.
    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(module_of[name]), name)

    return get, lambda: sorted({*module_of, *own})
