"""A short cut for storms: what a later record of the same chunk replaces is let go, not decoded.

The plain way is `RecordChunk.decoded`, which decodes every record; the store then writes the last
of each key. Both leave the same entities: a property test holds them against each other. What
differs is what nobody keeps: a replaced record that cannot be read is not quarantined, and its
deviations are not counted. The short cut applies only where the sink keeps the latest record of
each key and no record is a partial update.

Measured on alarms of 1.3 KB over 100 keys, one a frame, as processor time a record from frame to
committed row (SQLite in memory): 3.8 us instead of 5.4 us in chunks of 400, 2.9 us instead of
6.1 us in chunks of 1,500. In chunks of 100 compaction would take 8.5 us instead of 6.5 us: so it is
left where most records of a chunk count.
"""

from __future__ import annotations

from typing import Final

from instep.model.columns import Columns
from instep.model.ordering import compacted
from instep.model.records import RecordChunk

__all__ = ["decoded_storm"]

_RECORDS_PER_KEY: Final = 2
"""From here on what is saved is more than what compaction costs."""


def decoded_storm(chunk: RecordChunk) -> RecordChunk:
    """The chunk decoded; where it has two records for each key, only those that count (A3)."""
    records = chunk.records
    if isinstance(records, Columns) and (
        len(records) >= _RECORDS_PER_KEY * len(set(records.keys)) > 0
    ):
        return compacted(chunk)
    return chunk.decoded()
