"""Records that could not be read, kept with their bytes in a table of their own (DESIGN 3,
rule 11).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from instep.errors import StoreUnavailableError
from instep.records import Unreadable
from instep_spark.options import DeltaOptions
from instep_spark.rows import digest, quarantine_rows
from instep_spark.writer import Writer

__all__ = ["Quarantine"]

_KEPT: Final = """
    SELECT digest FROM {{quarantine}} WHERE consumer = {consumer} AND stream = {stream}
"""


class Quarantine:
    """The quarantine of one consumer. A record received again is kept once."""

    def __init__(self, writer: Writer, options: DeltaOptions, consumer: str) -> None:
        self._writer = writer
        self._options = options
        self._consumer = consumer
        self._kept: dict[str, list[str | None]] = {}

    def keep(self, stream: str, unreadable: Sequence[Unreadable], now_us: int) -> None:
        """Add records. Raises `StoreUnavailableError` where the quarantine is full."""
        if not unreadable:
            return
        kept = self._digests(stream)
        new = {digest(one) or index: one for index, one in enumerate(unreadable)}
        new = {name: one for name, one in new.items() if name not in kept}
        if not new:
            return
        limit = self._options.quarantine_max_records
        if len(kept) + len(new) > limit:
            raise StoreUnavailableError(
                f"the quarantine of the stream is full ({limit:,} records)",
                where=self._options.location("quarantine"),
                hint="look at it with `instep quarantine list`, drop what is not needed, or raise "
                "quarantine_max_records",
                limit_records=limit,
            )
        rows = quarantine_rows(self._consumer, list(new.values()), now_us)
        self._writer.append("quarantine", rows)
        kept += rows["digest"].to_pylist()

    def _digests(self, stream: str) -> list[str | None]:
        found = self._kept.get(stream)
        if found is None:
            text = self._writer.text
            query = _KEPT.format(consumer=text(self._consumer), stream=text(stream))
            found = self._kept[stream] = self._writer.query(query)["digest"].to_pylist()
        return found
