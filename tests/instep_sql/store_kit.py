"""What the tests of the store make: records, batches, streams, and a store with one stream open."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import pytest

from instep.model.batches import Batch, CommitResult
from instep.model.columns import HeaderArrays, RecordColumns
from instep.model.entities import Change, StoredEntity
from instep.model.position import Position
from instep.model.records import Record, RecordType
from instep.model.streams import Mode, StreamInfo
from instep_sql import SqlStore

STREAM = "s1"

ON_SQLITE = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
"""For the many cases of what Python decides; others of the same file run its statements on both."""


def stream_info(stream: str = STREAM, **changes: Any) -> StreamInfo:
    return StreamInfo(id=stream, origin="wss://a", kind="tapi", **changes)


BASELINE = stream_info(mode=Mode.BASELINE)
CHANGE_ONLY = stream_info(partial_updates=True)


def create_update(key: str, at: int, body: bytes = b"", **changes: Any) -> Record:
    """A statement appended at `at` microseconds, at that offset, too."""
    given = {"offset": at, "body": body or b'{"at":%d}' % at, "entity_class": "NODE", **changes}
    return Record(STREAM, key, RecordType.CREATE_UPDATE, f"t{at}", at, **given)


def end_record(key: str, at: int, kind: RecordType = RecordType.DELETE, **changes: Any) -> Record:
    """The end of a key, header only."""
    given = {"offset": at, **changes}
    return Record(STREAM, key, kind, f"t{at}", at, ends=True, **given)


def baseline_row(
    uuid: str, opened_at: int, body: bytes = b'{"of":"get"}', **changes: Any
) -> Record:
    """A row of a baseline."""
    given = {"entity_class": "NODE", **changes}
    return Record(
        STREAM, uuid, RecordType.CREATE_UPDATE, "", opened_at, body=body, uuid=uuid, **given
    )


def record_columns(pairs: list[tuple[str, bool]]) -> RecordColumns:
    """Records in columns, one a key and whether it ends, at the offsets from 0 on."""
    numbers = range(len(pairs))
    keys, kinds = [key for key, _ in pairs], [RecordType.CREATE_UPDATE] * len(pairs)
    tokens = [f"t{n}" for n in numbers]
    columns: list[Any] = [
        ["NODE"] * len(pairs),
        [bytearray(b"{%d}" % n) for n in numbers],
        [bytearray(b"[%d]" % n) for n in numbers],
        [ends for _, ends in pairs],
        [f"u{n}" for n in numbers],
    ]
    headers = HeaderArrays(STREAM, "0", keys, numbers, numbers, kinds, tokens)
    return RecordColumns(headers, *columns, whole=True)


def columns_of(records: Sequence[Record]) -> RecordColumns:
    """The same records in columns."""
    names = ("key", "offset", "appended_at_us", "kind", "token")
    more = ("entity_class", "body", "envelope", "ends", "uuid")
    columns: list[Any] = [[getattr(one, name) for one in records] for name in (*names, *more)]
    headers = HeaderArrays(STREAM, records[0].partition, *columns[:5])
    return RecordColumns(headers, *columns[5:], whole=True)


class Stage:
    """A store with one stream, committed to step by step."""

    def __init__(self, store: SqlStore, position: Position) -> None:
        self.store = store
        self.position = position
        self.attempt = 1
        self.lineage = 1

    def batch(self, *records: Record, **changes: Any) -> Batch:
        given: dict[str, Any] = {
            "position": Position(
                token=records[-1].token if records else self.position.token,
                ordinal=self.position.ordinal + 1,
                attempt=self.attempt,
                lineage=self.lineage,
            ),
            "expects_ordinal": self.position.ordinal,
            "records": list(records),
            **changes,
        }
        return Batch(stream=STREAM, **given)

    async def commit(self, *records: Record, **changes: Any) -> CommitResult:
        batch = self.batch(*records, **changes)
        result = await self.store.commit(batch)
        self.position = batch.position
        return result

    async def entities(self) -> dict[str, StoredEntity]:
        return {entity.key: entity async for entity in self.store.reader.entities()}

    async def bodies(self) -> dict[str, bytes]:
        return {key: entity.body for key, entity in (await self.entities()).items()}

    async def changes(self, cursor: int = 0) -> list[Change]:
        return [change async for change in self.store.changes(cursor)]

    async def journal(self) -> list[tuple[str, str]]:
        return [(change.key, change.change.value) for change in await self.changes()]


class Stages(Protocol):
    """Opens a store and one stream in it."""

    def __call__(
        self, stream: StreamInfo | None = None, **options: Any
    ) -> AbstractAsyncContextManager[Stage]: ...


@asynccontextmanager
async def stage(
    url: str = "sqlite://", stream: StreamInfo | None = None, **options: Any
) -> AsyncIterator[Stage]:
    async with SqlStore(url, **options) as store:
        await store.open("east")
        yield Stage(store, await store.position(stream or stream_info()))
