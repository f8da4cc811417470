"""Records that could not be read, kept with their bytes in a table of their own (A11)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from instep.model.records import Unreadable
from instep_spark.landing.arrow_rows import quarantine_rows
from instep_spark.landing.writers.base import Writer
from instep_spark.options import DeltaOptions

__all__ = ["Quarantine"]

_KEPT: Final = """
    SELECT digest, raw FROM {{quarantine}}
    WHERE consumer = {consumer} AND stream = {stream}
"""
_STREAMS: Final = "SELECT DISTINCT stream FROM {{quarantine}} WHERE consumer = {consumer}"


class _Kept(msgspec.Struct):
    """What a stream has in quarantine."""

    records: int
    size_bytes: int
    digests: set[str | None]


class Quarantine:
    """The quarantine of one consumer. A record received again is kept once.

    Nothing is deleted from the table, so where it is full, others are not kept: it never stops a
    stream of healthy records.
    """

    def __init__(self, writer: Writer, options: DeltaOptions, consumer: str) -> None:
        self._writer = writer
        self._options = options
        self._consumer = consumer
        self._kept: dict[str, _Kept] = {}
        self._all_known = False

    def keep(self, stream: str, unreadable: Sequence[Unreadable], now_us: int) -> int:
        """Add records, each once (A11). Returns how many found no room."""
        if not unreadable:
            return 0
        kept = self._of(stream)
        new = {one.digest: one for one in unreadable}
        fitting: list[Unreadable] = []
        more = [one for digest, one in new.items() if digest not in kept.digests]
        for one in more:
            if self._has_room(kept, fitting, one):
                fitting.append(one)
        if fitting:
            self._writer.append("quarantine", quarantine_rows(self._consumer, fitting, now_us))
            kept.records += len(fitting)
            kept.size_bytes += sum(len(one.raw) for one in fitting)
            kept.digests.update(one.digest for one in fitting)
        return len(more) - len(fitting)

    def _has_room(self, kept: _Kept, before: Sequence[Unreadable], one: Unreadable) -> bool:
        """Whether the stream, and the consumer, have room for one more behind these."""
        options, total = self._options, self._every()
        records = len(before) + 1
        size_bytes = sum(len(other.raw) for other in before) + len(one.raw)
        return (
            kept.records + records <= options.quarantine_max_records
            and kept.size_bytes + size_bytes <= options.quarantine_max_bytes
            and sum(each.records for each in total) + records <= options.quarantine_total_records
            and sum(each.size_bytes for each in total) + size_bytes
            <= options.quarantine_total_bytes
        )

    def _every(self) -> Collection[_Kept]:
        """What each stream has. The bytes of one stream at a time are held to count them."""
        if not self._all_known:
            query = _STREAMS.format(consumer=self._writer.text(self._consumer))
            for stream in self._writer.query(query)["stream"].to_pylist():
                self._of(stream)
            self._all_known = True
        return self._kept.values()

    def _of(self, stream: str) -> _Kept:
        found = self._kept.get(stream)
        if found is None:
            text = self._writer.text
            query = _KEPT.format(consumer=text(self._consumer), stream=text(stream))
            rows = self._writer.query(query)
            size_bytes = pc.sum(pc.binary_length(rows["raw"].cast(pa.binary()))).as_py() or 0
            digests = set(rows["digest"].to_pylist())
            found = self._kept[stream] = _Kept(len(rows), size_bytes, digests)
        return found
