"""`entity_history`: the states of each entity with their intervals (type 2), by the provider's
append times.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from instep_spark.derivations import EVENT_DETAILS
from instep_spark.lake.batches.micro_batch import (
    CONTENTS,
    PendingRows,
    content_counts,
    without_contents,
)
from instep_spark.lake.sql.dialect import Dialect
from instep_spark.lake.sql.supersede import IDENTITY
from instep_spark.lake.tables.intervals import END_PLACE, SAME, SHOWN, IntervalTable
from instep_spark.lake.tables.schema import HISTORY
from instep_spark.place import LakePlace

__all__ = ["EntityHistoryTable"]

_WHO: Final = "consumer, stream, id"
_TAKEN: Final = (
    *("consumer", "stream", "id", "key", "class", "token", "lineage", "partition"),
    *("record_offset", "appended_at", "event_at", "ordinal", "attempt", "parent_address", "uuid"),
    *("body", "envelope", *EVENT_DETAILS),
)


class EntityHistoryTable(IntervalTable):
    """Each statement that counts closes the interval before it, to the microsecond, and opens its
    own; an end only closes.

    An interval begins when its statement was appended, but never before what was known of the
    entity ended: another lineage has another clock.
    """

    def __init__(self, place: LakePlace) -> None:
        super().__init__(HISTORY, place)
        ended = [f"end_{name}" for name in END_PLACE]
        self.updated = ["valid_to", "valid_to_basis", "ended_by", "end_ordinal", "open", *ended]
        self.content = CONTENTS
        self.remembered = {"floor": ("valid_to", "valid_to")}

    def concerns(self, pending: PendingRows) -> bool:
        return any(stats.earliest_us is not None for stats in pending.stats_by_stream.values())

    def concerned(self, held: pa.Table) -> pa.Table:
        """All rows; contents that need not be compared stay with the driver."""
        return held if content_counts(held) else without_contents(held)

    def completed(self, moved: pa.Table, whole: pa.Table) -> pa.Table:
        """Give new rows the contents of their statements."""
        if content_counts(whole):
            return moved
        key = [*IDENTITY, "ordinal"]
        joined = moved.drop_columns(CONTENTS).join(whole.select([*key, *CONTENTS]), key)
        return joined.select(moved.column_names)

    def closed_since(self, earliest_us: int, dialect: Dialect) -> str:
        # No end of an interval lies before the append time of what ended it.
        return f"valid_to >= {dialect.time_of(earliest_us)}"

    def class_of_row(self) -> str:
        return "o.class"

    def close(self, ordinal: str, at: str) -> str:
        return (
            f"t.valid_to = greatest(t.valid_from, {at}), t.valid_to_basis = 'SWEPT', "
            "t.ended_by = 'SWEEP', "
            f"t.end_ordinal = {ordinal}, t.open = false"
        )

    def moved(self, held: pa.Table | None) -> str:
        del held
        taken = ", ".join(f"`{name}`" for name in _TAKEN)
        # An update is no end: its own interval follows.
        ended = ", ".join(
            f"CASE WHEN next.ends THEN next.`{name}` END AS end_{name}" for name in END_PLACE
        )
        return f"""
            WITH statements AS (
                SELECT {taken}, kind, ends, false AS known, xxhash64(body) AS digest,
                       greatest(appended_at, coalesce(floor, appended_at)) AS stated_at
                FROM instep_rows LEFT JOIN (SELECT {_WHO}, floor FROM instep_closed)
                    USING (consumer, stream, id)
                UNION ALL
                SELECT {taken}, '' AS kind, false AS ends, true AS known,
                       xxhash64(body) AS digest, valid_from AS stated_at
                FROM instep_open
            ), shown AS (
                SELECT *, lag(named_struct('ends', ends, 'digest', digest)) OVER (
                    PARTITION BY {_WHO} ORDER BY ordinal) AS told
                FROM statements
            ), compared AS (
                SELECT *, lag(named_struct(
                    'lineage', lineage, 'partition', `partition`, 'ends', ends,
                    'record_offset', record_offset, 'appended_at', appended_at,
                    'digest', digest)) OVER in_order AS earlier
                FROM shown WHERE NOT {SHOWN}
                WINDOW in_order AS (PARTITION BY {_WHO} ORDER BY ordinal)
            ), begun AS (
                SELECT *, max(stated_at) OVER (
                    PARTITION BY {_WHO} ORDER BY ordinal
                    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS valid_from
                FROM compared WHERE NOT {SAME} AND NOT (ends AND coalesce(earlier.ends, true))
            ), followed AS (
                SELECT *, lead(named_struct(
                    'at', valid_from, 'ordinal', ordinal, 'ends', ends, 'lineage', lineage,
                    'partition', `partition`, 'record_offset', record_offset,
                    'appended_at', appended_at, 'ended_by', CASE
                        WHEN NOT ends THEN 'UPDATE'
                        WHEN kind = 'CREATE_UPDATE' THEN 'CLEAR' ELSE kind END)) OVER in_order
                    AS next
                FROM begun WINDOW in_order AS (PARTITION BY {_WHO} ORDER BY ordinal)
            )
            SELECT {taken}, known, valid_from, next.at AS valid_to, next.ended_by AS ended_by,
                   CASE WHEN next IS NOT NULL THEN 'STATED' END AS valid_to_basis,
                   next.ordinal AS end_ordinal, next IS NULL AS open, {ended}
            FROM followed WHERE NOT ends AND (NOT known OR next IS NOT NULL)
        """
