"""Records that could not be read, kept with their bytes in a table of their own (A11)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from instep.errors import StoreUnavailableError
from instep.model.records import Unreadable
from instep_spark.landing.arrow_rows import digest, quarantine_rows
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
    """The quarantine of one consumer. A record received again is kept once."""

    def __init__(self, writer: Writer, options: DeltaOptions, consumer: str) -> None:
        self._writer = writer
        self._options = options
        self._consumer = consumer
        self._kept: dict[str, _Kept] = {}
        self._all_known = False

    def keep(self, stream: str, unreadable: Sequence[Unreadable], now_us: int) -> None:
        """Add records, each once (A11). Raises `StoreUnavailableError` where there is no room."""
        if not unreadable:
            return
        kept = self._of(stream)
        new = {digest(one) or index: one for index, one in enumerate(unreadable)}
        new = {name: one for name, one in new.items() if name not in kept.digests}
        if not new:
            return
        size_bytes = sum(len(one.raw) for one in new.values())
        options = self._options
        self._refuse_beyond(
            ("stream", "quarantine_max"),
            (kept.records + len(new), kept.size_bytes + size_bytes),
            (options.quarantine_max_records, options.quarantine_max_bytes),
        )
        total = self._every()
        self._refuse_beyond(
            ("consumer", "quarantine_total"),
            (
                sum(one.records for one in total) + len(new),
                sum(one.size_bytes for one in total) + size_bytes,
            ),
            (options.quarantine_total_records, options.quarantine_total_bytes),
        )
        rows = quarantine_rows(self._consumer, list(new.values()), now_us)
        self._writer.append("quarantine", rows)
        kept.records += len(new)
        kept.size_bytes += size_bytes
        kept.digests.update(rows["digest"].to_pylist())

    def _refuse_beyond(
        self, whose: tuple[str, str], found: tuple[int, int], limits: tuple[int, int]
    ) -> None:
        """`found` and `limits`: records and bytes."""
        owner, key = whose
        if found[0] > limits[0] or found[1] > limits[1]:
            raise StoreUnavailableError(
                f"the quarantine of the {owner} is full ({limits[0]:,} records or "
                f"{limits[1]:,} bytes)",
                where=self._options.location("quarantine"),
                hint="look at it with `instep quarantine list`, and raise "
                f"{key}_records or {key}_bytes",
                limit_records=limits[0],
                limit_bytes=limits[1],
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
