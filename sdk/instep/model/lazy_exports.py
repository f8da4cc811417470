"""The public names of a package, imported at their first use (PEP 562).

A command line starts in a fraction of the time, because it uses few of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

__all__ = ["lazy_exports"]


def lazy_exports(
    namespace: dict[str, Any], places: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package with this namespace (`globals()`). `places`:
    module → its names that are public in the package.
    """
    module_of = {name: module for module, names in places.items() for name in names}

    def attribute(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        # From now on it is found without this function.
        found = namespace[name] = getattr(import_module(module_of[name]), name)
        return found

    def names() -> list[str]:
        return sorted({*namespace, *module_of})

    return attribute, names
