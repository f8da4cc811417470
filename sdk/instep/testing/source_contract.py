"""Whether a source keeps the promises of `instep.ports.Source` and `instep.ports.Feed`."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from instep.errors import SourceError, TokenRefusedError
from instep.model.batches import Batch
from instep.model.position import Position
from instep.model.records import Record, RecordChunk, RecordHeader
from instep.model.streams import Mode, Start, StreamInfo, StreamState
from instep.ports.source import Feed, Source
from instep.testing.memory_sink import MemorySink
from instep.testing.promises import Contract, require
from instep.testing.task_leaks import described, watched_tasks

__all__ = ["SESSION_PROMISES", "SOURCE_PROMISES", "check_source"]

MakeSource = Callable[[], Source]

_SETTLES_S: Final = 5.0
"""Seconds of silence after which a feed with fewer records than expected counts as stuck."""
_CANCELS: Final = 12
"""Steps of the loop after which a `receive` is cancelled, from 0 up to this."""
_NO_TOKEN: Final = "no-such-token-of-instep-testing"  # noqa: S105 - a place in a log, no secret
_OPENED_AT_US: Final = 1_700_000_000_000_000


class _NoLogError(Exception):
    """The promise is about a log, and the stream has none."""


class _Subject:
    """A source, and the least number of records of its first stream."""

    def __init__(self, make: MakeSource, least_records: int) -> None:
        self._make = make
        self.least_records = least_records
        self._sources: list[Source] = []

    def source(self) -> Source:
        source = self._make()
        self._sources.append(source)
        return source

    async def stream(self, source: Source) -> StreamInfo:
        """The first stream, from a discovery."""
        streams = list(await source.discover())
        require(bool(streams), "discover() found no stream")
        return streams[0]

    def require_log(self, stream: StreamInfo) -> None:
        """Leave a promise about the log of a stream where each opening is a session of its own."""
        if not stream.resumable:
            raise _NoLogError

    async def read(
        self, feed: Feed, count: int, *, cancels: Sequence[int] = ()
    ) -> list[RecordHeader]:
        """Read at least `count` records of a connection. `cancels`: for each, a `receive` is
        cancelled after this many steps of the event loop, before the records are read.
        """
        found: list[RecordHeader] = []
        for yields in cancels:
            task = asyncio.ensure_future(feed.receive())
            for _ in range(yields):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                found += (await task).records
        while len(found) < count:
            try:
                async with asyncio.timeout(_SETTLES_S):
                    found += (await feed.receive()).records
            except TimeoutError:
                require(
                    kept=False,
                    found=f"{len(found)} records came, at least {count} were expected, and nothing"
                    f" more for {_SETTLES_S:g} s",
                )
        return found

    async def log(self, source: Source, stream: StreamInfo) -> list[RecordHeader]:
        """The log from its oldest record on, as far as it is known to reach."""
        self.require_log(stream)
        async with source.feed(stream, Start.OLDEST) as feed:
            return await self.read(feed, self.least_records)

    async def close(self) -> None:
        sources, self._sources = self._sources, []
        for source in sources:
            await source.close()


def _partitions(records: Sequence[RecordHeader]) -> dict[str, list[tuple[str, str]]]:
    """(key, token) of the records, in order, by partition."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for record in records:
        found[record.partition].append((record.key, record.token))
    return found


def _same_log(one: Sequence[RecordHeader], other: Sequence[RecordHeader], between: str) -> None:
    """Require that two readings of a log are equal, as far as both reach."""
    first, second = _partitions(one), _partitions(other)
    for partition in first.keys() & second.keys():
        both = min(len(first[partition]), len(second[partition]))
        a, b = first[partition][:both], second[partition][:both]
        at = next((n for n in range(both) if a[n] != b[n]), None)
        if at is not None:
            found = f"record {at} of partition {partition!r} is {b[at]} instead of {a[at]}"
            require(kept=False, found=f"{found} {between}")


_CONTRACT: Final[Contract[_Subject]] = Contract("instep.ports.Source")
_promise = _CONTRACT.promise


@_promise("discover returns streams, each id once, and the same ones when it is asked again")
async def _discovery_is_repeatable(at: _Subject) -> None:
    source = at.source()
    ids = [stream.id for stream in await source.discover()]
    require(bool(ids), "discover() found no stream")
    require(len(ids) == len(set(ids)) and all(ids), f"the ids are {ids}")
    again = [stream.id for stream in await source.discover()]
    require(sorted(again) == sorted(ids), f"first they were {ids}, then {again}")


@_promise("what is kept of a stream can be stored as JSON, and is the same when it is read")
async def _a_stream_can_be_stored(at: _Subject) -> None:
    source = at.source()
    for stream in await source.discover():
        again = StreamInfo.from_stored(json.loads(json.dumps(msgspec.to_builtins(stream))))
        require(again == stream, f"{stream} became {again}")
        require(bool(stream.origin) and bool(stream.kind), f"origin or kind is empty: {stream}")


@_promise("records name their stream and their entity, and a token to resume after")
async def _records_have_headers(at: _Subject) -> None:
    source = at.source()
    stream = await at.stream(source)
    for record in await at.log(source, stream):
        require(record.stream == stream.id, f"stream {stream.id!r} gave {record}")
        require(bool(record.key) and bool(record.token), f"no key, or no token: {record}")


@_promise(
    "decoded, a chunk gives the same records with JSON objects, or what cannot be read", "A11"
)
async def _records_can_be_opened(at: _Subject) -> None:
    source = at.source()
    stream = await at.stream(source)
    at.require_log(stream)
    count = 0
    async with source.feed(stream, Start.OLDEST) as feed:
        while count < at.least_records:
            async with asyncio.timeout(_SETTLES_S):
                chunk = await feed.receive()
            decoded = chunk.decode()
            for record in decoded.records:
                require(isinstance(record, Record), f"decoded, a record is a {type(record)}")
                if record.body:
                    _require_object(record)
            stated = {record.token for record in chunk.records}
            read = {record.token for record in decoded.records}
            lost = len(stated - read) - len(decoded.unreadable)
            require(lost <= 0, f"{lost} of {len(chunk.records)} records are gone once decoded")
            count += len(chunk.records) + len(chunk.unreadable)


def _require_object(record: Record) -> None:
    try:
        stated = msgspec.json.decode(record.body)
    except msgspec.DecodeError as error:
        require(kept=False, found=f"the body of {record.token!r} is no JSON: {error}")
    else:
        require(isinstance(stated, dict), f"the body of {record.token!r} is {stated!r}")


@_promise("entity-keys, tokens and their order are the same on every connection", "A9")
async def _every_connection_tells_the_same(at: _Subject) -> None:
    source = at.source()
    stream = await at.stream(source)
    first = await at.log(source, stream)
    _same_log(first, await at.log(source, stream), "on a second connection")
    other = at.source()
    second = await at.log(other, await at.stream(other))
    _same_log(first, second, "in a second source")


@_promise("offsets grow within a partition", "A9")
async def _offsets_grow(at: _Subject) -> None:
    source = at.source()
    last: dict[str, int] = {}
    for record in await at.log(source, await at.stream(source)):
        if record.offset >= 0:
            before = last.get(record.partition, -1)
            found = f"after offset {before} of partition {record.partition!r} came {record.offset}"
            require(record.offset >= before, found)
            last[record.partition] = record.offset


@_promise("opened after a token, a feed skips nothing: it goes on there or earlier", "A2")
async def _resuming_skips_nothing(at: _Subject) -> None:
    source = at.source()
    stream = await at.stream(source)
    log = await at.log(source, stream)
    for place in sorted({0, len(log) // 2, len(log) - 2}):
        token, rest = log[place].token, _partitions(log[place + 1 :])
        try:
            async with source.feed(stream, token) as feed:
                found = _partitions(await at.read(feed, len(log) - place - 1))
        except TokenRefusedError as error:
            require(kept=False, found=f"token {token!r} is refused, and was just given: {error}")
            return
        for partition, expected in rest.items():
            came = found.get(partition, [])
            wanted = expected[0]
            # A provider may order partitions among each other as it likes.
            skipped = came and came[0] != wanted and came[0] in expected[1:]
            missing = ", ".join(map(str, came[:3]))
            text = f"after {token!r} partition {partition!r} goes on with {missing}: {wanted}"
            require(not skipped, f"{text} is skipped")


@_promise("a token that is not known is refused, or the log is given from its oldest record", "A2")
async def _an_unknown_token_is_no_crash(at: _Subject) -> None:
    source = at.source()
    stream = await at.stream(source)
    log = await at.log(source, stream)
    try:
        async with source.feed(stream, _NO_TOKEN) as feed:
            found = await at.read(feed, 1)
    except SourceError:
        return
    _same_log(log, found, f"when it is opened after {_NO_TOKEN!r}")


@_promise("what is gone is gone: an entity that the log ends is in no store and no baseline", "A4")
async def _what_is_gone_is_gone(at: _Subject) -> None:
    source = at.source()
    stream = await at.stream(source)
    at.require_log(stream)
    sink = MemorySink()
    last: dict[str, Record] = {}
    uuids: dict[str, str] = {}
    count = commits = 0
    async with source.feed(stream, Start.OLDEST) as feed:
        while count < at.least_records:
            async with asyncio.timeout(_SETTLES_S):
                chunk = await feed.receive()
            count += len(chunk.records) + len(chunk.unreadable)
            decoded = chunk.decode().records
            _require_stated_ends(chunk.records, decoded)
            position = Position(ordinal=commits + 1, attempt=1, lineage=1)
            await sink.commit(Batch(stream.id, position, commits, decoded))
            commits += 1
            last |= {record.key: record for record in decoded}
            uuids |= {record.key: record.uuid for record in decoded if record.uuid}
        ended = {key for key, record in last.items() if record.ends}
        back = sorted(ended & sink.entities(stream.id).keys())
        found = "the log ends it, and a store keeps it: its end looks older than its statement (A3)"
        require(not back, f"{', '.join(back)}: {found}")
        if stream.mode is Mode.BASELINE:
            # An alarm that is CLEAR has ended, and a provider may show it as long as it likes.
            gone = {key for key in ended if last[key].kind.ends_entity}
            alive = {uuids.get(key, key) for key in last.keys() - gone}
            gone |= {uuids[key] for key in gone & uuids.keys()} - alive
            async for page in source.baseline(stream, _OPENED_AT_US):
                back = sorted({row.key for row in _rows(page) if {row.key, row.uuid} & gone})
                require(not back, f"{', '.join(back)}: the log ends it, and the baseline states it")


def _require_stated_ends(headers: Sequence[RecordHeader], decoded: Sequence[Record]) -> None:
    """Require that what a header ends is ended by its record, and that what goes on has a body."""
    ends = {one.token for one in headers if one.kind.ends_entity}
    for record in decoded:
        if not record.ends:
            found = f"the header of {record.token!r} ends its entity, and its record is {record}"
            require(record.token not in ends, found)
            found = f"{record.token!r} updates {record.key!r} to nothing: state an end as a DELETE"
            require(bool(record.body) or not record.whole, found)


@_promise("cancelling receive loses nothing")
async def _cancelling_receive_loses_nothing(at: _Subject) -> None:
    source = at.source()
    stream = await at.stream(source)
    log = await at.log(source, stream)
    async with source.feed(stream, Start.OLDEST) as feed:
        found = await at.read(feed, len(log), cancels=range(_CANCELS))
    _same_log(log, found, f"after {_CANCELS} calls of receive() that were cancelled")


@_promise("two connections to a stream are read independently")
async def _two_feeds_do_not_share_records(at: _Subject) -> None:
    source = at.source()
    stream = await at.stream(source)
    at.require_log(stream)
    async with (
        source.feed(stream, Start.OLDEST) as one,
        source.feed(stream, Start.OLDEST) as other,
    ):
        first, second = await asyncio.gather(
            at.read(one, at.least_records), at.read(other, at.least_records)
        )
    _same_log(first, second, "on a connection that is open beside the first")


@_promise("a feed can be asked for a sign of life while it is silent, and never raises", "A5")
async def _a_feed_can_be_asked_for_life(at: _Subject) -> None:
    source = at.source()
    async with source.feed(await at.stream(source), Start.LATEST) as feed:
        for _ in range(3):
            await feed.ping()
        require(feed.unheard_s >= 0, f"unheard_s is {feed.unheard_s}")
        require(isinstance(feed.clock_offset_us, int), f"the offset is {feed.clock_offset_us!r}")


@_promise("state answers with a StreamState for a stream that was discovered")
async def _a_stream_has_a_state(at: _Subject) -> None:
    source = at.source()
    state = await source.state(await at.stream(source))
    require(isinstance(state, StreamState), f"it is {state!r}")
    require(state is not StreamState.TERMINATED, "a stream that is offered is TERMINATED")


@_promise("a baseline is records without token, of readable classes, at the time of its opening")
async def _a_baseline_states_what_is(at: _Subject) -> None:
    source = at.source()
    for stream in await source.discover():
        if stream.mode is not Mode.BASELINE:
            continue
        if stream.resumable:
            await _require_rows(source, stream, at_us=_OPENED_AT_US)
        else:  # the session states the time of its opening
            async with source.feed(stream, Start.OLDEST):
                await _require_rows(source, stream, at_us=None)


async def _require_rows(source: Source, stream: StreamInfo, *, at_us: int | None) -> None:
    """Require rows of one time, which is this one where it is known."""
    async for page in source.baseline(stream, _OPENED_AT_US):
        for row in _rows(page):
            at_us = row.appended_at_us if at_us is None else at_us
            plain = not row.token and row.appended_at_us == at_us and not row.ends
            require(plain and bool(row.key), f"a row is {row}")
            found = f"class {row.entity_class!r} is not among {sorted(stream.readable)}"
            require(row.entity_class in stream.readable, found)


def _rows(page: list[Record] | RecordChunk) -> list[Record]:
    """The records of a page of a baseline."""
    records = page.records if isinstance(page, RecordChunk) else page
    return [one for one in records if isinstance(one, Record)]


@_promise("closing twice is no error, and leaves no task behind")
async def _closing_twice_is_no_error(at: _Subject) -> None:
    with watched_tasks() as watch:
        source = at.source()
        stream = await at.stream(source)
        if stream.resumable:
            await at.log(source, stream)
        else:
            async with source.feed(stream, Start.OLDEST) as feed:
                await feed.ping()
        await source.close()
        await source.close()
        await asyncio.sleep(0)
    left = sorted(map(described, watch.left()))
    require(not left, f"these tasks are still there: {', '.join(left)}")


SOURCE_PROMISES: Final = _CONTRACT.names
"""The names of what `check_source` checks, for tests of one promise each."""
SESSION_PROMISES: Final = (
    "discovery-is-repeatable",
    "a-stream-can-be-stored",
    "a-feed-can-be-asked-for-life",
    "a-stream-has-a-state",
    "a-baseline-states-what-is",
    "closing-twice-is-no-error",
)
"""Those of them that hold for a stream that is not `resumable` too, such as one of a
`SequencedFeed`. The others are about a log, and a session has none."""


async def check_source(
    make: MakeSource, *, least_records: int = 3, only: str | None = None
) -> None:
    """Check that a source keeps the promises of `instep.ports.Source` and its feeds.

    ::

        @pytest.mark.parametrize("promise", SOURCE_PROMISES)
        async def test_my_source(promise):
            async with my_provider(records=10) as url:
                await check_source(lambda: MySource(url), least_records=10, only=promise)

    - `make`: Gives a new source of the same provider, not yet connected. The first stream that it
      discovers is the one that is read; nothing may be appended to it meanwhile.
    - `least_records`: How many records that stream is known to have, 3 at least. Let one of them be
      a DELETE or a TOMBSTONE: without an end in the log, nothing shows that what is gone is gone.
    - `only`: The name of one promise (`SOURCE_PROMISES`); None: all of them, or those of
      `SESSION_PROMISES` where the first stream is not `resumable`.

    Raises `BrokenPromiseError` for the first promise that is not kept, with what was seen;
    `ValueError` where no promise is named `only`, where it is about a log and the stream is not
    `resumable`, or where `least_records` is below 3.
    A task counts as left behind where the source made it, itself or in its callbacks and threads;
    those of a peer in the same event loop that was started before do not.
    Every source that was made is closed. Cancelling leaves a check unfinished, its sources closed.
    """
    if least_records < 3:
        raise ValueError("a log of less than 3 records shows nothing about resuming")
    subjects: list[_Subject] = []

    def subject(_name: str) -> _Subject:
        subjects.append(_Subject(make, least_records))
        return subjects[-1]

    try:
        await _CONTRACT.check(subject, only, passes_over=_NoLogError)
    except _NoLogError:
        raise ValueError(
            f"{only!r} is about a log, and the first stream is not resumable: of such a stream"
            f" check {', '.join(SESSION_PROMISES)} (SESSION_PROMISES)"
        ) from None
    finally:
        for one in subjects:
            with suppress(Exception):
                await one.close()
