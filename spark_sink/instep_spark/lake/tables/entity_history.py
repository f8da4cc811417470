"""`entity_history`: the states of each entity with their intervals (type 2), by the provider's
append times.
"""

from __future__ import annotations

from typing import Final

from instep_spark.lake.batches.micro_batch import PendingRows
from instep_spark.lake.batches.stats import Sweep
from instep_spark.lake.tables.intervals import SAME, IntervalTable
from instep_spark.lake.tables.schema import HISTORY

__all__ = ["EntityHistoryTable"]

_WHO: Final = "consumer, stream, id"
_TAKEN: Final = (
    *("consumer", "stream", "id", "key", "class", "token", "lineage", "partition"),
    *("record_offset", "appended_at", "event_at", "ordinal", "attempt", "parent_address", "uuid"),
    *("body", "envelope"),
)


class EntityHistoryTable(IntervalTable):
    """Each statement that counts closes the interval before it, to the microsecond, and opens its
    own; an end only closes.

    An interval begins when its statement was appended, but never before what was known of the
    entity ended: another lineage has another clock.
    """

    def __init__(self, url: str, changes: str) -> None:
        super().__init__(HISTORY, url, changes)
        self.updated = ["valid_to", "ended_by", "end_ordinal", "open"]

    def concerns(self, pending: PendingRows) -> bool:
        return any(stats.earliest_us is not None for stats in pending.stats_by_stream.values())

    def closed_since(self) -> str:
        return "valid_to"

    def class_of_row(self) -> str:
        return "o.class"

    def close(self, sweep: Sweep, at: str) -> str:
        return (
            f"t.valid_to = greatest(t.valid_from, {at}), t.ended_by = 'SWEEP', "
            f"t.end_ordinal = {sweep.ordinal}, t.open = false"
        )

    def moved(self) -> str:
        taken = ", ".join(f"`{name}`" for name in _TAKEN)
        return f"""
            WITH floors AS (
                SELECT {_WHO}, max(valid_to) AS floor FROM instep_closed GROUP BY {_WHO}
            ), statements AS (
                SELECT {taken}, kind, ends, false AS known, xxhash64(body) AS digest,
                       greatest(appended_at, coalesce(floor, appended_at)) AS stated_at
                FROM instep_rows LEFT JOIN floors USING (consumer, stream, id)
                UNION ALL
                SELECT {taken}, '' AS kind, false AS ends, true AS known,
                       xxhash64(body) AS digest, valid_from AS stated_at
                FROM instep_open
            ), compared AS (
                SELECT *, lag(named_struct(
                    'lineage', lineage, 'partition', `partition`, 'ends', ends,
                    'record_offset', record_offset, 'appended_at', appended_at,
                    'digest', digest)) OVER in_order AS earlier
                FROM statements WINDOW in_order AS (PARTITION BY {_WHO} ORDER BY ordinal)
            ), begun AS (
                SELECT *, max(stated_at) OVER (
                    PARTITION BY {_WHO} ORDER BY ordinal
                    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS valid_from
                FROM compared WHERE NOT {SAME}
            ), followed AS (
                SELECT *, lead(named_struct(
                    'at', valid_from, 'ordinal', ordinal, 'ended_by', CASE
                        WHEN NOT ends THEN 'UPDATE'
                        WHEN kind = 'CREATE_UPDATE' THEN 'CLEAR' ELSE kind END)) OVER in_order
                    AS next
                FROM begun WINDOW in_order AS (PARTITION BY {_WHO} ORDER BY ordinal)
            )
            SELECT {taken}, known, valid_from, next.at AS valid_to, next.ended_by AS ended_by,
                   next.ordinal AS end_ordinal, next IS NULL AS open
            FROM followed WHERE NOT ends AND (NOT known OR next IS NOT NULL)
        """  # noqa: S608 — constants only
