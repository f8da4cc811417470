"""The rows of `instep_entity` that a step of a sweep looks for (A5).

The journal writes what is about to go, then the sweep removes it.
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
        """Those of the stream `no` with ids above `cursor`, up to and with `upto`."""
        condition = "stream_no = :no AND id > :cursor AND id <= :upto AND attempt < :attempt"
        return cls(condition, {"no": no, "cursor": cursor, "upto": upto, "attempt": attempt})

    def of_classes(self, dialect: Dialect, classes: Collection[str]) -> UnmarkedRows:
        """Those of them that are of one of these classes."""
        condition = f"{self.condition} AND class IN {dialect.members('classes')}"
        return UnmarkedRows(condition, {**self.values, "classes": json_array(classes)})
