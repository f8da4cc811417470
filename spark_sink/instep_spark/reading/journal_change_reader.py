"""ChangeReader of the journal of a SQL store, for `format("instep")`. Offsets are its cursors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from itertools import islice, pairwise
from typing import Any, Final, cast

import pyarrow as pa

from instep.config.plugins import open_reader
from instep.model.entities import Change, JournalEnd
from instep.ports.reader import StoreReader
from instep_spark.reading.change_filter import CHANGE_SCHEMA, ChangeFilter

__all__ = ["JournalChangeReader", "even_ranges"]

_BATCH_RECORDS: Final = 1_000


class JournalChangeReader:
    """Reads ranges of a journal, wherever Spark runs it."""

    def __init__(self, url: str, change_filter: ChangeFilter, *, after: int = 0) -> None:
        """`after`: the cursor to begin behind; 0 begins with the oldest change kept."""
        self._url = url
        self._after = after
        self.change_filter = change_filter

    def first(self) -> dict[str, Any]:
        """Where to begin."""
        return {"cursor": self._after or asyncio.run(self._before_oldest())}

    def newest(self, after: dict[str, Any], limit: int | None) -> dict[str, Any]:
        """The newest cursor, or one at most `limit` behind `after`, with its epoch.

        Raises `JournalDivergedError` where `after` is of another journal: the store was restored or
        copied, or a replica that lagged was promoted.
        """
        end = asyncio.run(self._end(JournalEnd(after["cursor"], after.get("epoch", "")), limit))
        return {"cursor": end.cursor, "epoch": end.epoch}

    def cut(self, after: dict[str, Any], upto: dict[str, Any], parts: int) -> list[tuple[int, int]]:
        """The range in `parts` parts at most, each a cursor to begin behind and a last one."""
        return even_ranges(after["cursor"], upto["cursor"], parts)

    def read(self, part: tuple[int, int]) -> Iterator[pa.RecordBatch]:
        """The chosen changes of a part, in order, in bounded memory."""
        changes = self._changes(*part)
        while page := list(islice(changes, _BATCH_RECORDS)):
            yield from self.change_filter.apply(_rows(page)).to_batches()

    def _changes(self, after: int, upto: int) -> Iterator[Change]:
        loop = asyncio.new_event_loop()
        reader = self._reader()
        # What one value can say is left to the store.
        changes: Any = reader.changes(
            after,
            consumer=_only(self.change_filter.consumers),
            stream=_only(self.change_filter.streams),
            entity_class=_only(self.change_filter.classes),
        )
        try:
            while True:
                change = loop.run_until_complete(anext(changes, None))
                if change is None or change.cursor > upto:
                    break
                yield change
        finally:
            loop.run_until_complete(changes.aclose())
            loop.run_until_complete(reader.close())
            loop.close()

    async def _end(self, after: JournalEnd, limit: int | None) -> JournalEnd:
        reader = self._reader()
        try:
            end = await reader.journal_end()
            if end.cursor < after.cursor or end.epoch != after.epoch:
                # The journal says whether it knows that epoch, and how far it goes.
                await _first(reader, after)
            if limit is None or end.cursor <= after.cursor + limit:
                return end
            last = await _first(reader, JournalEnd(after.cursor + limit - 1))
            return JournalEnd(last.cursor, last.epoch) if last is not None else end
        finally:
            await reader.close()

    async def _before_oldest(self) -> int:
        reader = self._reader()
        try:
            changes: Any = reader.changes()
            async with aclosing(changes):
                async for change in changes:
                    return int(change.cursor) - 1
            return await reader.newest_cursor()
        finally:
            await reader.close()

    def _reader(self) -> StoreReader:
        return open_reader(self._url)


async def _first(reader: StoreReader, after: JournalEnd) -> Change | None:
    """The first change after this one. Raises where that is of another journal."""
    changes: Any = reader.changes(after.cursor, epoch=after.epoch)
    async with aclosing(changes):
        async for change in changes:
            return cast("Change", change)
    return None


def even_ranges(after: int, upto: int, parts: int) -> list[tuple[int, int]]:
    """Whole numbers behind `after` and up to `upto`, in at most `parts` ranges of like size."""
    count = min(parts, upto - after)
    edges = [after + (upto - after) * n // max(count, 1) for n in range(count + 1)]
    return list(pairwise(edges))


def _only(names: frozenset[str] | None) -> str | None:
    return next(iter(names)) if names is not None and len(names) == 1 else None


def _rows(changes: list[Change]) -> pa.Table:
    columns = (
        [one.cursor for one in changes],
        [one.consumer for one in changes],
        [one.stream for one in changes],
        [one.key for one in changes],
        [one.entity_class for one in changes],
        [one.change.value for one in changes],
        [None if one.kind is None else one.kind.name for one in changes],
        [one.token for one in changes],
        [one.appended_at_us for one in changes],
        [one.committed_at_us for one in changes],
        [one.body.decode() or None for one in changes],
        [None if one.previous is None else one.previous.decode() for one in changes],
    )
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, CHANGE_SCHEMA, strict=True)],
        schema=CHANGE_SCHEMA,
    )
