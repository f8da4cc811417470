"""The scripted source keeps the promises, and every promise can be broken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from instep import (
    AlignmentSettings,
    Consumer,
    ConsumerSettings,
    Mode,
    Record,
    RecordType,
    StreamInfo,
)
from instep.errors import UnreachableError
from instep.model import RecordChunk, Start, StreamState
from instep.model.records import DecodedRecords
from instep.ports import Feed, Source
from instep.runtime.streams.fan_out import SharedSource
from instep.testing import (
    SOURCE_PROMISES,
    BrokenPromiseError,
    MemorySink,
    ScriptedSource,
    check_source,
)
from instep.testing.scripted_source import Script, ScriptedFeed, log_script
from instep_sql import SqlStore
from tests.instep.scripted_source_kit import info, record

pytestmark = pytest.mark.asyncio

LOG = [
    *(record(offset, f"key-{offset % 3}") for offset in range(5)),
    record(5, "key-2", ends=True),
]
BASELINE = info(mode=Mode.BASELINE, readable=frozenset({"NODE"}))
ROW = msgspec.structs.replace(
    LOG[0], token="", offset=-1, partition="", appended_at_us=1_700_000_000_000_000
)


def honest(**changes: Any) -> ScriptedSource:
    return ScriptedSource(log_script(LOG), stream=info(**changes))


@pytest.mark.parametrize("promise", SOURCE_PROMISES)
async def test_a_scripted_source_keeps(promise: str) -> None:
    await check_source(honest, least_records=len(LOG), only=promise)


@pytest.mark.parametrize("promise", SOURCE_PROMISES)
async def test_a_connection_for_several_consumers_keeps(promise: str) -> None:
    await check_source(lambda: SharedSource(honest(), 1), least_records=len(LOG), only=promise)


async def test_all_are_checked_where_none_is_named() -> None:
    def make() -> ScriptedSource:
        source = ScriptedSource(log_script(LOG), stream=BASELINE)
        source.pages = [[ROW], []]
        return source

    await check_source(make, least_records=len(LOG))


async def test_what_is_asked_for_makes_sense() -> None:
    with pytest.raises(ValueError, match="no promise is named 'x'"):
        await check_source(honest, only="x")
    with pytest.raises(ValueError, match="less than 3 records"):
        await check_source(honest, least_records=2)


async def test_a_feed_that_is_stuck_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.testing.source_contract._SETTLES_S", 0.05)
    with pytest.raises(BrokenPromiseError, match="6 records came, at least 7 were expected"):
        await check_source(honest, least_records=7, only="records-have-headers")


# -- every promise can be broken ---------------------------------------------------------------


def changed(**changes: Any) -> Callable[[], Source]:
    """Every record is stated with these changes."""
    log = [msgspec.structs.replace(one, **changes) for one in LOG]
    return lambda: ScriptedSource(log_script(log), stream=info())


def scripted(*connections: Script, stream: StreamInfo | None = None) -> Callable[[], Source]:
    return lambda: ScriptedSource(*connections, stream=stream or info())


class NamesAnew(ScriptedSource):
    async def discover(self) -> Sequence[StreamInfo]:
        await super().discover()
        return [msgspec.structs.replace(self.stream, id=f"s{self.discoveries}")]


class LosesWhenCancelled(Feed):
    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    async def receive(self) -> RecordChunk:
        chunk = await self._feed.receive()
        await asyncio.sleep(0)
        return chunk


class RaisesWhenAsked(ScriptedFeed):
    async def ping(self) -> None:
        raise UnreachableError("gone")


class Feeds(ScriptedSource):
    def __init__(self, wrap: Callable[[ScriptedFeed], Feed]) -> None:
        super().__init__(log_script(LOG), stream=info())
        self._wrap = wrap

    @asynccontextmanager
    async def feed(self, stream: StreamInfo, start: str | Start) -> AsyncIterator[Any]:
        async with super().feed(stream, start) as feed:
            yield self._wrap(feed)


class OneConnection(ScriptedSource):
    """All feeds read from one connection."""

    shared: ScriptedFeed | None = None

    @asynccontextmanager
    async def feed(self, stream: StreamInfo, start: str | Start) -> AsyncIterator[ScriptedFeed]:
        async with super().feed(stream, start) as feed:
            self.shared = self.shared or feed
            yield self.shared


class Unfinished(ScriptedSource):
    """A source that leaves a task of its own running."""

    async def discover(self) -> Sequence[StreamInfo]:
        self.prober = asyncio.create_task(asyncio.sleep(0.5), name="prober")
        return await super().discover()


def over() -> ScriptedSource:
    source = honest()
    source.stream_state = StreamState.TERMINATED
    return source


def states_a_token() -> ScriptedSource:
    source = ScriptedSource(log_script(LOG), stream=BASELINE)
    source.pages = [[LOG[0]]]
    return source


def ends_late() -> ScriptedSource:
    """Its ends look older than what they end."""
    log = [msgspec.structs.replace(one, offset=-1) for one in LOG]
    log[-1] = msgspec.structs.replace(log[-1], appended_at_us=1)
    return ScriptedSource(log_script(log), stream=info())


def opens_half(records: Sequence[Any]) -> Any:
    chunk = RecordChunk(list(LOG))
    return chunk.decode(records[::2])


BROKEN: dict[str, Callable[[], Source]] = {
    "discovery-is-repeatable": lambda: NamesAnew(log_script(LOG), stream=info()),
    "a-stream-can-be-stored": lambda: honest(details={"at": (1, 2)}),
    "records-have-headers": changed(token=""),
    "records-can-be-opened": scripted([RecordChunk(LOG, decoder=opens_half)]),
    "every-connection-tells-the-same": scripted(
        log_script(LOG), log_script([*LOG[:2], LOG[3], LOG[2], *LOG[4:]])
    ),
    "offsets-grow": scripted(log_script([*LOG[:2], LOG[4], LOG[3], LOG[5], LOG[2]])),
    "resuming-skips-nothing": scripted(
        log_script(LOG), lambda _: [RecordChunk(LOG[2:]), RecordChunk(LOG)]
    ),
    "an-unknown-token-is-no-crash": scripted(log_script(LOG), [ValueError("not a number")]),
    "what-is-gone-is-gone": ends_late,
    "cancelling-receive-loses-nothing": lambda: Feeds(LosesWhenCancelled),
    "two-feeds-do-not-share-records": lambda: OneConnection(log_script(LOG * 2), stream=info()),
    "a-feed-can-be-asked-for-life": lambda: Feeds(lambda _: RaisesWhenAsked([])),
    "a-stream-has-a-state": over,
    "a-baseline-states-what-is": states_a_token,
    "closing-twice-is-no-error": lambda: Unfinished(log_script(LOG), stream=info()),
}
RAISES = {"an-unknown-token-is-no-crash", "a-feed-can-be-asked-for-life"}


@pytest.mark.parametrize("promise", SOURCE_PROMISES)
async def test_a_broken_promise_is_found(promise: str) -> None:
    with pytest.raises(BrokenPromiseError) as caught:
        await check_source(BROKEN[promise], least_records=len(LOG), only=promise)
    assert caught.value.promise == promise
    assert caught.value.where.startswith("instep.ports.Source")
    assert (caught.value.__cause__ is not None) is (promise in RAISES)


async def test_a_body_that_is_no_object_is_found() -> None:
    for body in (b"[]", b"{"):
        with pytest.raises(BrokenPromiseError, match="the body of 'token-0' is"):
            await check_source(changed(body=body), only="records-can-be-opened")


async def test_a_token_that_was_just_given_is_not_refused() -> None:
    with pytest.raises(BrokenPromiseError, match="is refused, and was just given"):
        await check_source(
            scripted(log_script(LOG), log_script([])),
            least_records=len(LOG),
            only="resuming-skips-nothing",
        )


# -- what is gone is gone ----------------------------------------------------------------------

GONE = "what-is-gone-is-gone"
LETTERS = [
    ("a", RecordType.CREATE_UPDATE, b'{"is": 1}'),
    ("b", RecordType.CREATE_UPDATE, b'{"is": 2}'),
    ("b", RecordType.DELETE, b""),
    ("b", RecordType.TOMBSTONE, b""),
]


def letters(*log: tuple[str, RecordType, bytes], **changes: Any) -> Callable[[], ScriptedSource]:
    """A source of these statements, written as an author writes them: by their kinds alone."""
    stated = [
        Record("letters", key, kind, str(n), n, offset=n, body=body, entity_class="L")
        for n, (key, kind, body) in enumerate(log, 1)
    ]
    fields = {"id": "letters", "origin": "x", "kind": "list", "classes": ("L",), **changes}
    return lambda: ScriptedSource(log_script(stated), stream=StreamInfo(**fields))


async def test_what_a_delete_ends_is_in_no_store(tmp_path: Path) -> None:
    await check_source(letters(*LETTERS), least_records=4)
    quick, sink = ConsumerSettings(alignment=AlignmentSettings(quiet_s=0.2)), MemorySink()
    async with Consumer("c", letters(*LETTERS)(), sink, quick) as consumer:
        await consumer.aligned(timeout_s=30)
    assert sink.entities("letters").keys() == {"a"}
    store = SqlStore(f"sqlite:///{tmp_path}/s.db", journal="bodies")
    async with Consumer("c", letters(*LETTERS)(), store, quick) as consumer:
        await consumer.aligned(timeout_s=30)
        reader = store.reader
        assert [(one.key, one.body) async for one in reader.entities()] == [("a", b'{"is": 1}')]
        changes = [(one.key, one.change.value, one.body) async for one in reader.changes(0)]
    assert changes == [
        ("a", "created", b'{"is": 1}'),
        ("b", "created", b'{"is": 2}'),
        ("b", "deleted", b""),
    ]


async def test_an_update_to_nothing_is_found() -> None:
    log = [*LETTERS[:2], ("b", RecordType.CREATE_UPDATE, b"")]
    with pytest.raises(BrokenPromiseError, match="'3' updates 'b' to nothing: state an end as"):
        await check_source(letters(*log), only=GONE)


async def test_an_end_that_is_lost_when_it_is_decoded_is_found() -> None:
    def goes_on(headers: Sequence[Any]) -> DecodedRecords:
        update = {"kind": RecordType.CREATE_UPDATE, "ends": False, "body": b"{}"}
        return DecodedRecords([msgspec.structs.replace(one, **update) for one in headers])

    with pytest.raises(BrokenPromiseError, match="the header of 'token-5' ends its entity"):
        await check_source(
            scripted([RecordChunk(LOG, decoder=goes_on)]), least_records=len(LOG), only=GONE
        )


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"key": "key-2", "uuid": "other"}, "key-2: the log ends it, and the baseline states it"),
        ({"key": "place", "uuid": "u2"}, "place: the log ends it, and the baseline states it"),
        ({"key": "key-1", "uuid": "u1"}, ""),
    ],
)
async def test_a_baseline_that_states_what_has_ended_is_found(
    row: dict[str, str], told: str
) -> None:
    log = [msgspec.structs.replace(one, uuid=f"u{one.key[-1]}") for one in LOG]

    def make() -> ScriptedSource:
        source = ScriptedSource(log_script(log), stream=BASELINE)
        source.pages = [[msgspec.structs.replace(ROW, **row)]]
        return source

    if not told:
        await check_source(make, least_records=len(LOG), only=GONE)
        return
    with pytest.raises(BrokenPromiseError, match=told):
        await check_source(make, least_records=len(LOG), only=GONE)
