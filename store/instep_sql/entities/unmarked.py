"""The rows of `instep_entity` that a step of a sweep removes (A5).

The journal first appends a row for each, then the sweep removes them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from instep_sql.engine.dialect import Dialect, json_array

__all__ = ["UnmarkedRows"]


class UnmarkedRows(msgspec.Struct, frozen=True):
    """The rows of one stream, in a window of ids, that an attempt has not marked."""

    condition: str
    """SQL for a WHERE over `instep_entity`."""
    values: dict[str, Any]
    """The parameters of `condition`."""

    @classmethod
    def of(cls, no: int, attempt: int, *, cursor: int, upto: int) -> UnmarkedRows:
        """The unmarked rows of the stream `no` with ids above `cursor`, up to and
        including `upto`.
        """
        condition = "stream_no = :no AND id > :cursor AND id <= :upto AND attempt < :attempt"
        return cls(condition, {"no": no, "cursor": cursor, "upto": upto, "attempt": attempt})

    def of_classes(self, dialect: Dialect, classes: Collection[str]) -> UnmarkedRows:
        """The same rows, but only those of these classes."""
        condition = f"{self.condition} AND class IN {dialect.members('classes')}"
        return UnmarkedRows(condition, {**self.values, "classes": json_array(classes)})
