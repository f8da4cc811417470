"""Changes of an entity: merging them in, and finding the differences for CHANGE_ONLY (TR-548
3.8.2.2).
"""

from collections.abc import Iterator, Mapping
from typing import Any

GONE = object()


def merge(value: dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Merge `changes` into `value`: objects member by member, all else replaced, None removes (RFC
    7396).
    """
    for name, change in changes.items():
        if change is None:
            value.pop(name, None)
        elif isinstance(change, Mapping):
            inner = value.get(name)
            if not isinstance(inner, dict):
                inner = value[name] = {}
            merge(inner, change)
        else:
            value[name] = change


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The smallest members that differ, as (path, new value); the value of a removed one is
    GONE.
    """
    for name in old:
        if name not in new:
            yield (*path, name), GONE
    for name, value in new.items():
        before = old.get(name, GONE)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            yield from differences(before, value, (*path, name))
        elif before != value or type(before) is not type(value):
            yield (*path, name), value


def skeleton(uuid: Any, path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """An entity with nothing but its identifier and one member."""
    for name in reversed(path):
        value = {name: value}
    return {"uuid": uuid, **value} if uuid is not None else dict(value)
