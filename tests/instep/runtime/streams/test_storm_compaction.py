"""The short cut for storms leaves what the plain way leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep import ConsumerSettings, Position
from instep.alignment.machine import Alignment
from instep.errors import UnreachableError
from instep.model.batches import Batch, CommitResult
from instep.model.columns import CompactedColumns, HeaderArrays, HeaderColumns, RecordColumns
from instep.model.entities import StoredEntity
from instep.model.ordering import rounds_per_key
from instep.model.records import (
    DecodedRecords,
    Record,
    RecordChunk,
    RecordHeader,
    RecordType,
    Unreadable,
)
from instep.runtime.streams import read_ahead as read_ahead_module
from instep.runtime.streams.read_ahead import ReadAhead
from instep.runtime.streams.storm_compaction import decoded_storm
from instep_sql import SqlStore
from tests.instep.scripted_source_kit import STREAM, T0_US, ScriptedFeed, ScriptedSource, info


class Headers(HeaderColumns[RecordHeader]):
    """Headers of records that are not decoded."""

    def at(self, index: int) -> RecordHeader:
        keys, offsets, times_us, kinds, tokens = self.headers[2:]
        return RecordHeader(
            STREAM, keys[index], kinds[index], tokens[index], times_us[index], "0", offsets[index]
        )


def columns(records: Sequence[RecordHeader]) -> HeaderArrays:
    names = ("key", "offset", "appended_at_us", "kind", "token")
    arrays: list[Any] = [[getattr(one, name) for one in records] for name in names]
    return HeaderArrays(STREAM, "0", *arrays)


def decode(records: Sequence[RecordHeader]) -> DecodedRecords:
    """Decode all but the records with the key `bad`, which cannot be read."""
    good = [one for one in records if not one.key.startswith("bad")]
    unreadable = [
        Unreadable(STREAM, one.token.encode(), "bad", one.token)
        for one in records
        if one.key.startswith("bad")
    ]
    ends = [one.kind is not RecordType.CREATE_UPDATE for one in good]
    decoded = RecordColumns(
        columns(good),
        ["NODE"] * len(good),
        [
            b"" if ended else b'{"at":%d}' % one.offset
            for one, ended in zip(good, ends, strict=True)
        ],
        [b"{}"] * len(good),
        ends,
        [""] * len(good),
        whole=True,
    )
    return DecodedRecords(decoded, unreadable)


PAIR = st.tuples(st.sampled_from(["a", "b", "c", "bad"]), st.sampled_from(RecordType))
CHUNKS = st.lists(st.lists(PAIR, min_size=1, max_size=12), min_size=1, max_size=6)


Statements = list[list[tuple[str, RecordType]]]


def chunks(statements: Statements) -> list[RecordChunk]:
    found, offset = [], 0
    for pairs in statements:
        some = []
        for key, kind in pairs:
            offset += 1
            some.append(RecordHeader(STREAM, key, kind, f"t{offset}", T0_US + offset, "0", offset))
        found.append(RecordChunk(Headers(columns(some)), size_bytes=len(some), decoder=decode))
    return found


def batches(prepared: Sequence[RecordChunk]) -> Iterator[Batch]:
    """Yield the batches of the alignment for a sink that keeps the latest record of each key."""
    core = Alignment(info(), Position(), latest_only=True)
    core.start(T0_US)
    core.opened(T0_US)
    for chunk in prepared:
        batch = core.receive(chunk, T0_US + 1_000_000)
        assert batch is not None
        yield batch
        core.committed(batch, CommitResult())
        core.effects()


def plain(statements: Statements) -> list[RecordChunk]:
    return [chunk.decoded() for chunk in chunks(statements)]


def compact(statements: Statements) -> list[RecordChunk]:
    return [decoded_storm(chunk) for chunk in chunks(statements)]


def final_state(made: Iterable[Batch]) -> tuple[dict[str, Record], list[Position]]:
    """Return the entities after all batches are written, one write a key, and the position of each
    batch.
    """
    state: dict[str, Record] = {}
    positions = []
    for batch in made:
        positions.append(batch.position)
        for written in rounds_per_key(batch.records):
            state |= written
    return {key: record for key, record in state.items() if not record.ends}, positions


@given(statements=CHUNKS)
def test_compacted_and_plain_make_the_same_batches(statements: Statements) -> None:
    state, positions = final_state(batches(compact(statements)))
    plain_state, plain_positions = final_state(batches(plain(statements)))
    assert state == plain_state
    if not any(key == "bad" for pairs in statements for key, _ in pairs):
        # What cannot be read counts as a place in the log only where it was not looked into.
        assert positions == plain_positions


async def stored(made: Iterable[Batch]) -> tuple[list[StoredEntity], Position]:
    async with SqlStore("sqlite://", clock_us=lambda: T0_US) as store:
        await store.open("test")
        for batch in made:
            await store.commit(batch)
        return [one async for one in store.reader.entities()], await store.position(info())


@pytest.mark.asyncio
async def test_compacted_and_plain_leave_the_same_store() -> None:
    create, tombstone = RecordType.CREATE_UPDATE, RecordType.TOMBSTONE
    statements = [
        [("a", create)] * 3 + [("b", create)],
        [("c", create), ("a", tombstone), ("c", create), *[("b", create)] * 3],
        [("c", tombstone), ("c", create), ("a", create), ("a", create)],
    ]
    assert all(isinstance(chunk.records, CompactedColumns) for chunk in compact(statements))
    entities, position = await stored(batches(compact(statements)))
    assert (entities, position) == await stored(batches(plain(statements)))
    assert [one.key for one in entities] == ["b", "c", "a"]


def test_only_a_storm_is_compacted() -> None:
    def chunk_of(keys: str) -> RecordChunk:
        return chunks([[(key, RecordType.CREATE_UPDATE) for key in keys]])[0]

    assert isinstance(decoded_storm(chunk_of("abca")).records, RecordColumns)
    stormy = decoded_storm(chunk_of("aaab")).records
    assert isinstance(stormy, CompactedColumns)
    assert [one.offset for one in stormy.latest_records()] == [3, 4]


def test_a_chunk_that_is_no_columns_is_decoded() -> None:
    [chunk] = chunks([[("a", RecordType.CREATE_UPDATE)] * 4])
    listed = RecordChunk(list(chunk.records), decoder=decode)
    assert len(decoded_storm(listed).records) == 4


@pytest.mark.asyncio
@pytest.mark.parametrize("compacts", [True, False])
async def test_in_a_storm_no_timer_delays_reading(
    monkeypatch: pytest.MonkeyPatch, compacts: bool
) -> None:
    storm = [("a", RecordType.CREATE_UPDATE)] * 4
    feed = ScriptedFeed(chunks([storm] * 5))
    read_ahead = ReadAhead(
        feed, ScriptedSource([]), info(), ConsumerSettings(), lambda: 0.0, compacts=compacts
    )
    loop = asyncio.get_running_loop()
    async with read_ahead.listening():
        # No timer ends.
        monkeypatch.setattr(loop, "call_later", lambda *_: loop.call_soon(lambda: None))
        for _ in range(100):
            await asyncio.sleep(0)
        monkeypatch.undo()
        taken = await read_ahead.take(0.0)
    assert taken is not None
    assert len(taken.records) == 20


async def _taken(settings: ConsumerSettings, *counts: int, timeout_s: float = 60.0) -> list[int]:
    """How many records each `take` gets, of chunks of so many records about one entity each, until
    the connection ends.
    """
    statements = [[("a", RecordType.CREATE_UPDATE)] * count for count in counts]
    feed = ScriptedFeed([*chunks(statements), UnreachableError("gone")])
    read_ahead = ReadAhead(feed, ScriptedSource([]), info(), settings, lambda: 0.0, compacts=True)
    taken: list[int] = []
    async with read_ahead.listening():
        while sum(taken) < sum(counts):
            chunk = await read_ahead.take(timeout_s)
            taken += [len(chunk.records)] if chunk is not None else []
            await asyncio.sleep(0)
    return taken


@pytest.fixture
def endless_gathering(monkeypatch: pytest.MonkeyPatch) -> None:
    """No timer ends the gathering of a storm."""
    monkeypatch.setattr(read_ahead_module, "_STORM_PAUSE_S", 3600.0)


@pytest.mark.usefixtures("endless_gathering")
@pytest.mark.asyncio
async def test_a_commit_waits_for_more_of_a_storm_until_it_or_the_connection_ends() -> None:
    settings = ConsumerSettings()
    assert await _taken(settings, 400, 400, 400, 400) == [1_600]
    assert await _taken(settings, 400, 400, 1, 1) in ([801, 1], [802])


@pytest.mark.usefixtures("endless_gathering")
@pytest.mark.asyncio
async def test_a_commit_waits_for_no_more_of_a_storm_than_half_a_batch() -> None:
    taken = await _taken(ConsumerSettings(batch_records=2_000), *[400] * 9)
    assert sum(taken) == 3_600
    assert 1_200 <= taken[0] <= 2_000


@pytest.mark.usefixtures("endless_gathering")
@pytest.mark.asyncio
async def test_what_else_is_to_be_committed_waits_for_no_storm() -> None:
    storms = [400] * 4
    assert (await _taken(ConsumerSettings(), *storms, timeout_s=0.0))[0] < 1_600


@pytest.mark.usefixtures("endless_gathering")
@pytest.mark.asyncio
async def test_a_few_records_of_one_entity_are_committed_at_once() -> None:
    assert (await _taken(ConsumerSettings(), 4, 4, 4, 4))[0] < 16


@pytest.mark.asyncio
async def test_a_storm_that_pauses_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead_module, "_STORM_LOOKS", 1_000_000)
    storm = chunks([[("a", RecordType.CREATE_UPDATE)] * 400])
    feed, settings = ScriptedFeed(storm), ConsumerSettings()
    read_ahead = ReadAhead(feed, ScriptedSource([]), info(), settings, lambda: 0.0, compacts=True)
    async with read_ahead.listening():
        taken = await read_ahead.take(60.0)
    assert taken is not None
    assert len(taken.records) == 400


class _EndlessFeed(ScriptedFeed):
    """A storm without end: a chunk of it whenever it is asked for."""

    async def receive(self) -> RecordChunk:
        await asyncio.sleep(0.0005)
        return chunks([[("a", RecordType.CREATE_UPDATE)] * 400])[0]


@pytest.mark.asyncio
async def test_a_storm_without_pause_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead_module, "_STORM_PAUSE_S", 0.01)
    settings = ConsumerSettings(batch_records=1_000_000)
    read_ahead = ReadAhead(
        _EndlessFeed([]), ScriptedSource([]), info(), settings, lambda: 0.0, compacts=True
    )
    async with read_ahead.listening():
        taken = await read_ahead.take(60.0)
    assert taken is not None
    assert 400 < len(taken.records) < 500_000


@pytest.mark.usefixtures("endless_gathering")
@pytest.mark.asyncio
async def test_who_waits_for_more_of_a_storm_can_be_woken() -> None:
    storm = chunks([[("a", RecordType.CREATE_UPDATE)] * 400])
    feed, settings = ScriptedFeed(storm), ConsumerSettings()
    read_ahead = ReadAhead(feed, ScriptedSource([]), info(), settings, lambda: 0.0, compacts=True)
    async with read_ahead.listening():
        take = asyncio.create_task(read_ahead.take(60.0))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not take.done()
        read_ahead.wake()
        taken = await take
    assert taken is not None
    assert len(taken.records) == 400
