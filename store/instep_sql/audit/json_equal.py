"""Whether two bodies state the same of an entity, however each is written."""

from __future__ import annotations

from typing import Any

import msgspec

from instep.model.json_merge import by_identity

__all__ = ["json_equal"]


def json_equal(one: bytes, other: bytes) -> bool:
    """Whether two JSON texts mean the same.

    Members may be in any order, and so may the elements of a list that are told apart by an
    identity of their own. What cannot be read is like nothing but itself.
    """
    if one == other:
        return True
    try:
        return _same(msgspec.json.decode(one), msgspec.json.decode(other))
    except (msgspec.DecodeError, RecursionError):
        return False


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        first, second = by_identity(one), by_identity(other)
        if first and second:
            return _same(first, second)
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
