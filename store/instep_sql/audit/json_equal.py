"""Compares two JSON bodies of an entity by meaning: two spellings of one state are equal."""

from __future__ import annotations

from typing import Any

import msgspec

from instep.model.json_merge import by_identity

__all__ = ["json_equal"]


def json_equal(left: bytes, right: bytes) -> bool:
    """Whether two JSON texts have the same meaning.

    The order of object members does not matter. Neither does the order of a list whose elements
    each have an identity (see `by_identity`). A text that is not JSON equals only its own bytes.
    """
    if left == right:
        return True
    try:
        return _same(msgspec.json.decode(left), msgspec.json.decode(right))
    except (msgspec.DecodeError, RecursionError):
        return False


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        first, second = by_identity(left), by_identity(right)
        if first and second:
            return _same(first, second)
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)
