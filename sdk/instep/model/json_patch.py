"""The difference of two JSON values as a JSON Patch (RFC 6902)."""

from __future__ import annotations

from typing import Any, TypeAlias

__all__ = ["Operation", "json_patch"]

Operation: TypeAlias = dict[str, Any]
"""One operation: `op` (add, remove or replace), `path` (a JSON Pointer, RFC 6901) and `value`."""


def json_patch(old: Any, new: Any) -> list[Operation]:
    """The operations that make `new` of `old`, decoded JSON both; none where they are equal.

    Objects are compared member by member. Of lists, what begins and ends alike stays; between, the
    elements are compared in pairs.
    """
    operations: list[Operation] = []
    try:
        _compare(old, new, "", operations)
    except RecursionError:
        return [{"op": "replace", "path": "", "value": new}]
    return operations


def _compare(old: Any, new: Any, path: str, operations: list[Operation]) -> None:
    if isinstance(old, dict) and isinstance(new, dict):
        _members(old, new, path, operations)
    elif isinstance(old, list) and isinstance(new, list):
        _elements(old, new, path, operations)
    elif not _same(old, new):
        operations.append({"op": "replace", "path": path, "value": new})


def _members(
    old: dict[str, Any], new: dict[str, Any], path: str, operations: list[Operation]
) -> None:
    operations += [
        {"op": "remove", "path": f"{path}/{_escaped(name)}"} for name in old if name not in new
    ]
    for name, value in new.items():
        inner = f"{path}/{_escaped(name)}"
        if name in old:
            _compare(old[name], value, inner, operations)
        else:
            operations.append({"op": "add", "path": inner, "value": value})


def _elements(old: list[Any], new: list[Any], path: str, operations: list[Operation]) -> None:
    shorter = min(len(old), len(new))
    begin = 0
    while begin < shorter and _same(old[begin], new[begin]):
        begin += 1
    end = 0
    while end < shorter - begin and _same(old[-1 - end], new[-1 - end]):
        end += 1
    paired = shorter - begin - end
    for at in range(begin, begin + paired):
        _compare(old[at], new[at], f"{path}/{at}", operations)
    begin += paired
    # From the last one down: an index is that at the time of its operation.
    operations += [
        {"op": "remove", "path": f"{path}/{at}"} for at in reversed(range(begin, len(old) - end))
    ]
    operations += [
        {"op": "add", "path": f"{path}/{at}", "value": new[at]}
        for at in range(begin, len(new) - end)
    ]


def _same(old: Any, new: Any) -> bool:
    """Whether two values are one JSON value: 1 is not true, and no text."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(_same(old[name], new[name]) for name in old)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_same, old, new))
    return type(old) is type(new) and bool(old == new)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
