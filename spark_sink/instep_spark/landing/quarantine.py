"""Records that could not be read, kept with their bytes in a table of their own (A11)."""

from __future__ import annotations

from collections.abc import Sequence
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

    def keep(self, stream: str, unreadable: Sequence[Unreadable], now_us: int) -> None:
        """Add records. Raises `StoreUnavailableError` where the quarantine is full."""
        if not unreadable:
            return
        kept = self._of(stream)
        new = {digest(one) or index: one for index, one in enumerate(unreadable)}
        new = {name: one for name, one in new.items() if name not in kept.digests}
        if not new:
            return
        records = kept.records + len(new)
        size_bytes = kept.size_bytes + sum(len(one.raw) for one in new.values())
        self._refuse_beyond_limits(records, size_bytes)
        rows = quarantine_rows(self._consumer, list(new.values()), now_us)
        self._writer.append("quarantine", rows)
        kept.records, kept.size_bytes = records, size_bytes
        kept.digests.update(rows["digest"].to_pylist())

    def _refuse_beyond_limits(self, records: int, size_bytes: int) -> None:
        options = self._options
        limit_records, limit_bytes = options.quarantine_max_records, options.quarantine_max_bytes
        if records > limit_records or size_bytes > limit_bytes:
            raise StoreUnavailableError(
                f"the quarantine of the stream is full ({limit_records:,} records or "
                f"{limit_bytes:,} bytes)",
                where=options.location("quarantine"),
                hint="look at it with `instep quarantine list`, and raise quarantine_max_records "
                "or quarantine_max_bytes",
                limit_records=limit_records,
                limit_bytes=limit_bytes,
            )

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
