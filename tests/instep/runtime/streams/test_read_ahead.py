"""Of what time a silence is the provider's, and what is asked meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from instep import ConsumerSettings
from instep.alignment.settings import AlignmentSettings
from instep.errors import StreamGoneError, UnreachableError
from instep.model import RecordChunk, StreamState, Unreadable
from instep.runtime.streams.read_ahead import ReadAhead
from tests.instep.scripted_source_kit import ScriptedFeed, ScriptedSource, info, records

pytestmark = pytest.mark.asyncio

SETTINGS = ConsumerSettings(
    batch_records=2, poll_state_s=0.002, alignment=AlignmentSettings(quiet_s=0.02)
)
DEADLINE_S = 10.0


class Clock:
    """Time that a test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class AnsweringFeed(ScriptedFeed):
    """A connection that can be asked whether it is there."""

    unheard_s = under_way_s = 0.0

    def __init__(self, *chunks: RecordChunk) -> None:
        super().__init__(list(chunks))
        self.pings = 0

    async def ping(self) -> None:
        self.pings += 1


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not done():
            await asyncio.sleep(0.001)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def source() -> ScriptedSource:
    return ScriptedSource()


@pytest_asyncio.fixture
async def start_reading(
    clock: Clock, source: ScriptedSource
) -> AsyncIterator[Callable[[ScriptedFeed], ReadAhead]]:
    tasks: list[asyncio.Task[None]] = []

    def make(feed: ScriptedFeed) -> ReadAhead:
        read_ahead = ReadAhead(feed, source, info(), SETTINGS, clock)

        async def listen() -> None:
            async with read_ahead.listening():
                await asyncio.Event().wait()

        tasks.append(asyncio.create_task(listen()))
        return read_ahead

    yield make
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


StartReading = Callable[[ScriptedFeed], ReadAhead]


async def test_a_silence_counts_up_to_the_last_sign_of_life(
    start_reading: StartReading, clock: Clock
) -> None:
    feed = AnsweringFeed()
    read_ahead = start_reading(feed)
    assert await read_ahead.take(0.001) is None
    clock.now_s, feed.unheard_s = 160.0, 20.0
    assert read_ahead.silence_s() == (100.0, 140.0)


async def test_a_feed_without_pings_counts_only_what_it_delivers(
    start_reading: StartReading, clock: Clock
) -> None:
    read_ahead = start_reading(ScriptedFeed([]))
    assert await read_ahead.take(0.001) is None
    clock.now_s = 160.0
    assert read_ahead.silence_s() == (100.0, 160.0)


async def test_before_a_record_that_waited_for_us_no_silence_is_longer_than_till_it_came(
    start_reading: StartReading, clock: Clock
) -> None:
    feed = AnsweringFeed(records(1))
    read_ahead = start_reading(feed)
    await until(lambda: bool(read_ahead._queue))
    clock.now_s = 160.0
    assert await read_ahead.take(0.0) is not None
    assert read_ahead.silence_s() == (100.0, 100.0)


async def test_a5_the_silence_before_a_message_ends_where_it_may_have_begun(
    start_reading: StartReading, clock: Clock
) -> None:
    feed = AnsweringFeed(records(1))
    feed.under_way_s = 50.0
    clock.now_s = 160.0
    read_ahead = start_reading(feed)
    assert await read_ahead.take(1.0) is not None
    assert read_ahead.silence_s()[1] == 110.0


async def test_while_we_hold_the_stream_back_its_silence_proves_nothing(
    start_reading: StartReading, clock: Clock
) -> None:
    feed = AnsweringFeed(records(1, 2), records(3))
    read_ahead = start_reading(feed)
    await until(read_ahead._queue._put_lock.locked)
    clock.now_s = 160.0
    assert await read_ahead.take(0.0) is not None
    await until(lambda: bool(read_ahead._queue))
    assert await read_ahead.take(0.0) is not None
    assert read_ahead.silence_s() == (160.0, 160.0)


async def test_a_silent_stream_is_asked_for_a_sign_of_life_and_for_its_state(
    start_reading: StartReading, clock: Clock, source: ScriptedSource
) -> None:
    feed = AnsweringFeed()
    source.stream_state = StreamState.PAUSED
    read_ahead = start_reading(feed)
    clock.now_s = 160.0
    await until(lambda: feed.pings > 1)
    await until(lambda: read_ahead.state is StreamState.PAUSED)


async def test_an_aligned_stream_is_asked_less_often_the_longer_it_is_silent(
    start_reading: StartReading, clock: Clock
) -> None:
    feed = AnsweringFeed()
    read_ahead = start_reading(feed)
    usual_s = read_ahead.tick_s
    feed.detects_dead_peer = read_ahead.aligned = True
    assert read_ahead.tick_s == usual_s
    clock.now_s += 2.0
    assert read_ahead.tick_s == 8.0
    await asyncio.sleep(20 * SETTINGS.poll_state_s)
    assert feed.pings == 0
    clock.now_s += 3600.0
    assert read_ahead.tick_s == 60.0


@pytest.mark.parametrize(
    ("aligned", "detects_dead_peer"),
    [(False, True), (True, False)],
    ids=["not aligned", "a connection that may be half open"],
)
async def test_any_other_silent_stream_is_asked_as_often_as_before(
    start_reading: StartReading, clock: Clock, *, aligned: bool, detects_dead_peer: bool
) -> None:
    feed = AnsweringFeed()
    feed.detects_dead_peer = detects_dead_peer
    read_ahead = start_reading(feed)
    read_ahead.aligned = aligned
    usual_s = read_ahead.tick_s
    clock.now_s += 3600.0
    assert read_ahead.tick_s == usual_s
    await until(lambda: feed.pings > 5)


async def test_a_stream_whose_log_forgets_soon_is_never_asked_rarely(
    clock: Clock, source: ScriptedSource
) -> None:
    feed = AnsweringFeed()
    feed.detects_dead_peer = True
    read_ahead = ReadAhead(feed, source, info(tombstone_retention_s=8.0), SETTINGS, clock)
    read_ahead.aligned = True
    clock.now_s += 3600.0
    assert read_ahead.tick_s == 1.0


async def test_take_returns_when_it_is_woken(start_reading: StartReading) -> None:
    read_ahead = start_reading(AnsweringFeed())
    take = asyncio.create_task(read_ahead.take(DEADLINE_S))
    await asyncio.sleep(0)
    read_ahead.wake()
    async with asyncio.timeout(DEADLINE_S / 2):
        assert await take is None


async def test_a_stream_that_is_terminated_ends_the_connection(
    start_reading: StartReading, clock: Clock, source: ScriptedSource
) -> None:
    source.stream_state = StreamState.TERMINATED
    read_ahead = start_reading(AnsweringFeed())
    clock.now_s = 160.0
    with pytest.raises(StreamGoneError):
        await read_ahead.take(DEADLINE_S)


async def test_what_was_read_is_taken_as_one_chunk_in_order_and_then_the_end(
    start_reading: StartReading,
) -> None:
    bad = Unreadable("s", b"x", "no JSON")
    feed = ScriptedFeed(
        [
            records(1),
            RecordChunk([], [bad], {"short-identity": 2}),
            RecordChunk(records(2).records, [], {"short-identity": 1}, 5),
            UnreachableError("gone"),
        ]
    )
    read_ahead = start_reading(feed)
    await until(lambda: read_ahead._queue.error is not None)
    taken = await read_ahead.take(0.0)
    assert taken is not None
    assert [record.offset for record in taken.records] == [1, 2]
    assert taken.unreadable == [bad]
    assert taken.deviations == {"short-identity": 3}
    assert taken.size_bytes == 5
    with pytest.raises(UnreachableError, match="gone"):
        await read_ahead.take(DEADLINE_S)


async def test_cancelling_take_loses_nothing(start_reading: StartReading) -> None:
    feed = ScriptedFeed([records(1), records(2)])
    read_ahead = start_reading(feed)
    offsets: list[int] = []
    for turns in range(6):
        take = asyncio.create_task(read_ahead.take(0.01))
        for _ in range(turns):
            await asyncio.sleep(0)
        take.cancel()
        [chunk] = await asyncio.gather(take, return_exceptions=True)
        if isinstance(chunk, RecordChunk):
            offsets += [record.offset for record in chunk.records]
    while (rest := await read_ahead.take(0.05)) is not None:
        offsets += [record.offset for record in rest.records]
    assert offsets == [1, 2]
