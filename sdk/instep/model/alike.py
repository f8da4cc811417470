"""Compares two statements of an entity by meaning, and completes one by the other (A12, A13)."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any, Final

import msgspec

from instep.model.entities import folded_uuid
from instep.model.json_merge import by_identity

__all__ = ["agrees", "alike", "completed"]

_NOTHING: Final = object()


def alike(left: bytes | bytearray, right: bytes | bytearray, contained: AbstractSet[str]) -> bool:
    """Whether two JSON texts state the same of an entity (A13).

    The order of object members does not matter, nor the case of a uuid. Neither does the order of a
    list whose elements each have an identity (see `by_identity`). Members in `contained` hold
    entities with records of their own, and are left out. A text that is not JSON equals only its
    own bytes.
    """
    if left == right:
        return True
    try:
        one, other = msgspec.json.decode(left), msgspec.json.decode(right)
        if contained:
            one, other = _without(one, contained), _without(other, contained)
        return _same(one, other)
    except (msgspec.DecodeError, RecursionError):
        return False


def completed(stated: bytes, stored: bytes | bytearray, contained: AbstractSet[str]) -> bytes:
    """What a baseline or an audit states of an entity, with what is stored where it states only
    identifiers (A12): all of the entity, or entities that have records of their own.
    """
    try:
        one, other = msgspec.json.decode(stated), msgspec.json.decode(stored)
        whole = _filled(one, other, contained)
    except (msgspec.DecodeError, RecursionError):
        return stated
    return stated if whole == one else msgspec.json.encode(whole)


def agrees(stated: bytes, stored: bytes | bytearray, contained: AbstractSet[str]) -> bool:
    """Whether what a baseline states of an entity is so in the store. An identifier alone states
    only that it exists.
    """
    return alike(completed(stated, stored, contained), stored, contained)


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        first, second = by_identity(left), by_identity(right)
        if first and second:
            return _same(first, second)
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, str) and isinstance(right, str):
        return folded_uuid(left) == folded_uuid(right)
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


def _without(value: Any, contained: AbstractSet[str]) -> Any:
    """`value` without the contained entities; `_NOTHING` where nothing else was in it."""
    if isinstance(value, dict):
        kept = {
            name: own
            for name, inner in value.items()
            if not (_plain(name) in contained and _holds_entities(inner))
            and (own := _without(inner, contained)) is not _NOTHING
        }
        return kept if kept or not value else _NOTHING
    if isinstance(value, list):
        items = [own for item in value if (own := _without(item, contained)) is not _NOTHING]
        return items if items or not value else _NOTHING
    return value


def _filled(stated: Any, stored: Any, contained: AbstractSet[str], *, inside: bool = True) -> Any:
    """`inside`: whether this is an entity of which an identifier alone may be stated."""
    if isinstance(stated, dict) and isinstance(stored, dict):
        if inside and len(stated) == 1 and stated.items() <= stored.items():
            return stored
        return {
            name: _filled(inner, stored[name], contained, inside=_plain(name) in contained)
            if name in stored
            else inner
            for name, inner in stated.items()
        }
    if isinstance(stated, list) and isinstance(stored, list):
        known = by_identity(stored) or {}
        named = by_identity(stated) or {}
        return [
            _filled(element, known[identity], contained, inside=inside)
            if identity in known
            else element
            for identity, element in named.items()
        ] or stated
    return stated


def _holds_entities(value: Any) -> bool:
    items = value if isinstance(value, list) else [value]
    return all(isinstance(item, dict) and item.keys() & {"uuid", "local-id"} for item in items)


def _plain(member: str) -> str:
    return member.rpartition(":")[2]
