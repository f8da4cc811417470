"""Deep merge of JSON and removal of sub-trees, for partial updates (CHANGE_ONLY; TR-548
3.8.2.2, and 5.2 of v3.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from instep.model.entities import folded_uuid

__all__ = ["SEPARATORS", "by_identity", "is_same", "is_under", "merge", "prefixes", "without"]

SEPARATORS: Final = frozenset("/:|,;#=[]. ")
"""The separators between the segments of a part's key, which TR-548 3.8.2.2 leaves open."""

_MAX_SEGMENTS: Final = 64
_IDENTITIES: Final = ("uuid", "local-id", "value-name")


def merge(base: Any, change: Any, *, entire_lists: bool = False) -> Any:
    """Merge `change` into `base`: objects by member, lists of identified objects by element.

    Any other value is replaced, and with `entire_lists` each list. Neither argument is modified.
    """
    if isinstance(base, dict) and isinstance(change, dict):
        merged = dict(base)
        for name, value in change.items():
            if name in base:
                value = merge(base[name], value, entire_lists=entire_lists)  # noqa: PLW2901
            merged[name] = value
        return merged
    if isinstance(base, list) and isinstance(change, list) and not entire_lists:
        return _merge_lists(base, change)
    return change


def _merge_lists(base: list[Any], change: list[Any]) -> list[Any]:
    known, stated = by_identity(base), by_identity(change)
    if known is None or not stated:
        # An empty list means that no element is left; members that have not changed are not stated.
        return change
    return [
        merge(element, stated[identity]) if identity in stated else element
        for identity, element in known.items()
    ] + [element for identity, element in stated.items() if identity not in known]


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are equal; identified elements of a list may be in any order."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(v, other[k]) for k, v in one.items())
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        named, others = by_identity(one), by_identity(other)
        return is_same(named, others) if named and others else all(map(is_same, one, other))
    return bool(one == other)


def by_identity(elements: list[Any]) -> dict[str, Any] | None:
    """Map the elements by their identity, a uuid as uuids compare; None if an element has none or
    two share one.
    """
    found: dict[str, Any] = {}
    for element in elements:
        identity = _identity(element)
        if identity is None or identity in found:
            return None
        found[identity] = element
    return found


def _identity(element: Any) -> str | None:
    if isinstance(element, dict):
        for name in _IDENTITIES:
            if isinstance(value := element.get(name), str):
                return folded_uuid(value)
    return None


def prefixes(key: str) -> Iterator[str]:
    """The prefixes of `key` before its separators, longest first: the entities it may
    be a part of.
    """
    places = (at for at, character in enumerate(key) if at and character in SEPARATORS)
    for at in reversed(list(islice(places, _MAX_SEGMENTS))):
        yield key[:at]


def is_under(key: str, parent: str) -> bool:
    """Whether `key` names something inside what `parent` names."""
    return key.startswith(parent) and len(key) > len(parent) and key[len(parent)] in SEPARATORS


def without(node: Any, path: str) -> Any | None:
    """`node` without the sub-tree that `path` names; None where there is no such sub-tree.

    `path` is the rest of a part's key: member names, or the uuid, local-id or value-name of list
    elements, in any mixture; the name of a list may be left out before the identity of its element.
    """
    path = _strip(path)
    if not path:
        return None
    if isinstance(node, dict):
        for name, value in node.items():
            changed = _cut(value, path, name)
            if changed is _GONE:
                return {other: kept for other, kept in node.items() if other != name}
            if changed is None and isinstance(value, list):
                changed = without(value, path)
            if changed is not None:
                return {**node, name: changed}
    elif isinstance(node, list):
        for at, element in enumerate(node):
            identity = _identity(element)
            changed = None if identity is None else _cut(element, path, identity)
            if changed is _GONE:
                return node[:at] + node[at + 1 :]
            if changed is not None:
                return [*node[:at], changed, *node[at + 1 :]]
    return None


_GONE: Final = object()


def _cut(value: Any, path: str, name: str) -> Any | None:
    """`value`, called `name`, without what `path` names: `_GONE` for all of it, None for nothing
    of it.
    """
    for spelling in {name, name.rpartition(":")[2]}:
        if path == spelling:
            return _GONE
        if is_under(path, spelling):
            changed = without(value, path[len(spelling) :])
            if changed is not None:
                return changed
    return None


def _strip(path: str) -> str:
    at = 0
    while at < len(path) and path[at] in SEPARATORS:
        at += 1
    return path[at:]
