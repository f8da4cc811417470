"""The rows of `instep_entity` that a step of a sweep removes (A5).

The journal first appends a row for each, then the sweep removes them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from instep.model.holds import Hold
from instep_sql.engine.dialect import Dialect, json_array

__all__ = ["UnmarkedRows", "held_sql"]


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

    def of_other_classes(self, dialect: Dialect, classes: Collection[str]) -> UnmarkedRows:
        """The same rows, but only those of no such class."""
        condition = f"{self.condition} AND class NOT IN {dialect.members('classes')}"
        return UnmarkedRows(condition, {**self.values, "classes": json_array(classes)})

    def but_held(self, holds: Sequence[Hold]) -> UnmarkedRows:
        """The same rows without those that are held (A17)."""
        values = dict(self.values)
        return UnmarkedRows(f"{self.condition} AND NOT ({held_sql(holds, values)})", values)


def held_sql(holds: Sequence[Hold], values: dict[str, Any]) -> str:
    """SQL for a WHERE over `instep_entity`: what one of these holds (A17, `absence.is_held`). Adds
    its parameters to `values`.
    """
    return " OR ".join(_hold_sql(hold, f"hold{at}", values) for at, hold in enumerate(holds))


def _hold_sql(hold: Hold, name: str, values: dict[str, Any]) -> str:
    conditions = ["1 = 1"]
    if hold.entity_class:
        conditions.append(f"class = :{name}_class")
        values[f"{name}_class"] = hold.entity_class
    if hold.partition is not None:
        inside = f"partition = :{name}_partition"
        values[f"{name}_partition"] = hold.partition
        if hold.met_before and hold.offset >= 0:
            later = f'lineage = :{name}_lineage AND "offset" > :{name}_offset'
            inside = f"({inside} AND NOT ({later}))"
            values[f"{name}_lineage"] = hold.lineage
            values[f"{name}_offset"] = hold.offset
        conditions.append(f"(token = '' OR {inside})")
    return f"({' AND '.join(conditions)})"
