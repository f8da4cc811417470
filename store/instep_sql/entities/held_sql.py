"""SQL for what a sweep leaves, because something could not be read (A17, `absence.is_held`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from instep.model.holds import Hold

__all__ = ["held_sql"]


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
