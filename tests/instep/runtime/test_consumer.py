"""The runtime with a scripted source and a real store: retries, reopenings, cancellation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from instep import (
    AlignmentSettings,
    Consumer,
    ConsumerState,
    Environment,
    Mode,
    Phase,
    Record,
    StreamInfo,
    SweepHeldError,
    TokenRefusedError,
)
from instep.errors import AuthenticationError, StreamGoneError, UnreachableError
from instep.model import RecordChunk, Start, StreamState
from instep.testing import ScriptedFeed
from instep_sql import SqlStore
from tests.instep.runtime.consumer_kit import LATER, QUICK, clock, consumer, drained, keys, store
from tests.instep.scripted_source_kit import (
    SILENT,
    STREAM,
    T0_US,
    ConnectionRefused,
    ScriptedSource,
    Step,
    info,
    record,
    records,
)

pytestmark = pytest.mark.asyncio

__all__ = ["store"]


async def test_a_first_alignment_starts_from_the_oldest_and_ends_aligned(store: SqlStore) -> None:
    source = ScriptedSource([records(0, 1, 2), SILENT])
    async with consumer(source, store) as started:
        await started.aligned(5)
        assert started.health().aligned
        assert "aligned" in repr(started)
    assert source.starts == [Start.OLDEST]
    assert source.closed
    assert await keys(store) == ["key-0", "key-1", "key-2"]


async def test_a_lost_connection_goes_on_after_the_last_committed_token(store: SqlStore) -> None:
    source = ScriptedSource(
        [records(0, 1), UnreachableError("reset")],
        [records(2), UnreachableError("reset")],
        [SILENT],
    )
    async with consumer(source, store) as started:
        await started.aligned(5)
    assert source.starts[:3] == [Start.OLDEST, "token-1", "token-2"]
    assert await keys(store) == ["key-0", "key-1", "key-2"]


async def test_a_new_process_goes_on_after_the_last_committed_token(
    store: SqlStore, tmp_path: Path
) -> None:
    async with consumer(ScriptedSource([records(0, 1), SILENT]), store) as first:
        await first.aligned(5)
    source = ScriptedSource([records(2), SILENT])
    async with consumer(source, SqlStore(f"sqlite:///{tmp_path}/store.db")) as second:
        await drained(second, 1)
        assert second.health().streams[0].attempt == 1
        await second.aligned(5)
    assert source.starts == ["token-1"]


async def test_redelivery_of_recent_records_opens_no_attempt(store: SqlStore) -> None:
    source = ScriptedSource(
        [records(*range(100)), UnreachableError("reset")], [records(*range(50, 102)), SILENT]
    )
    async with consumer(source, store) as started:
        await drained(started, 102)
        await started.aligned(5)
        assert started.health().streams[0].attempt == 1
    assert source.starts == [Start.OLDEST, "token-99"]


async def test_a_restart_from_the_oldest_is_one_attempt_and_one_sweep(store: SqlStore) -> None:
    everything: list[Step] = [records(*range(300)), UnreachableError("reset")]
    again = RecordChunk([record(offset) for offset in range(300) if offset != 7])
    source = ScriptedSource(everything, [again, SILENT])
    async with consumer(source, store) as started:
        await drained(started, 300 + 299)
        await started.aligned(5)
        assert started.health().streams[0].attempt == 2
    assert source.starts == [Start.OLDEST, "token-299"]
    assert "key-7" not in await keys(store)
    assert len(await keys(store)) == 299


async def test_a_refused_token_leads_to_the_oldest_record(store: SqlStore) -> None:
    source = ScriptedSource(
        [records(0), UnreachableError("reset")],
        [ConnectionRefused(TokenRefusedError("too old"))],
        [records(0, 1), SILENT],
    )
    async with consumer(source, store) as started:
        await drained(started, 3)
        await started.aligned(5)
    assert source.starts == [Start.OLDEST, "token-0", Start.OLDEST]


async def test_a_stream_that_is_gone_is_discovered_again(store: SqlStore) -> None:
    source = ScriptedSource([records(0), StreamGoneError("404")], [records(0, 1), SILENT])
    source.moved = info(origin="a/2")
    async with consumer(source, store) as started:
        await drained(started, 3)
        await started.aligned(5)
        assert started.health().streams[0].attempt == 2
    assert source.discoveries == 2
    assert source.starts == [Start.OLDEST, Start.OLDEST]


async def test_3_7_1_the_retentions_are_read_anew_at_a_reconnect(store: SqlStore) -> None:
    """Without a discovery, and the stream goes on by its token."""
    source = ScriptedSource([records(0), UnreachableError("gone")], [records(1), SILENT])
    source.refreshed = info(tombstone_retention_s=7_200.0)
    async with consumer(source, store) as started:
        await drained(started, 2)
        assert started.health().streams[0].tombstone_retention_s == 7_200.0
        [stored] = await store.known_streams()
    assert (source.starts, source.discoveries) == ([Start.OLDEST, "token-0"], 1)
    assert stored.tombstone_retention_s == 7_200.0


async def test_a_paused_stream_does_not_come_to_its_sweep_by_silence(store: SqlStore) -> None:
    source = ScriptedSource([records(0), SILENT])
    source.stream_state = StreamState.PAUSED
    async with Consumer("test", source, store, QUICK, environment=clock(86_400)) as started:
        with pytest.raises(TimeoutError):
            await started.aligned(0.4)


async def test_a_terminated_stream_is_discovered_again(store: SqlStore) -> None:
    source = ScriptedSource([records(0), SILENT])
    source.stream_state = StreamState.TERMINATED
    async with consumer(source, store):
        async with asyncio.timeout(5):
            while source.discoveries < 2:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
async def test_a5_a_wall_clock_that_is_set_changes_nothing(store: SqlStore, step_s: float) -> None:
    """An hour forward is no hour of silence, which would sweep what is not read yet, nor a lag. An
    hour back holds up nothing.
    """
    everything: list[Step] = [records(*range(9)), UnreachableError("reset")]
    source = ScriptedSource(everything, [records(0, 1), SILENT])
    wall_s = [T0_US / 1e6 + 60.0]
    settings = msgspec.structs.replace(
        QUICK, alignment=AlignmentSettings(quiet_s=0.2, unreached_quiet_s=2.0)
    )
    environment = Environment(now=lambda: wall_s[0])
    async with Consumer("test", source, store, settings, environment=environment) as started:
        await drained(started, 9 + 2)
        wall_s[0] += step_s
        await asyncio.sleep(0.3)
        stream = started.health().streams[0]
        assert (stream.phase, stream.attempt) == (Phase.ALIGNING, 2)
        assert stream.read_delay_s == pytest.approx(60, abs=10)
        await started.aligned(10)


async def test_a_fatal_error_reaches_the_caller_and_the_health(store: SqlStore) -> None:
    source = ScriptedSource([records(0), AuthenticationError("refused", where="ctrl-a")])
    async with consumer(source, store) as started:
        with pytest.raises(AuthenticationError, match="refused"):
            await started.wait()
        with pytest.raises(AuthenticationError):
            await started.aligned()
        assert started.health().state is ConsumerState.FAILED
        assert "ctrl-a" in started.health().error


async def test_what_came_before_an_error_is_committed(store: SqlStore) -> None:
    source = ScriptedSource([records(0), records(1), AuthenticationError("refused")])
    async with consumer(source, store) as started:
        with pytest.raises(AuthenticationError):
            await started.wait()
    assert await keys(store) == ["key-0", "key-1"]


async def test_a_held_sweep_raises_and_goes_on_when_released(store: SqlStore) -> None:
    few = RecordChunk([record(offset) for offset in range(40)])
    source = ScriptedSource(
        [records(*range(300)), UnreachableError("reset")], [few, SILENT], [few, SILENT]
    )
    async with consumer(source, store) as started:
        await drained(started, 340)
        with pytest.raises(SweepHeldError, match="guard"):
            await started.aligned(5)
        assert len(await keys(store)) == 300
        started.release_sweep(STREAM)
        await started.aligned(5)
    assert len(await keys(store)) == 40


async def test_realign_on_request_reads_from_the_start(store: SqlStore) -> None:
    source = ScriptedSource([records(0, 1), SILENT], [records(0), SILENT])
    async with consumer(source, store) as started:
        await started.aligned(5)
        started.realign(STREAM, "an operator asked")
        async with asyncio.timeout(5):
            while started.health().streams[0].attempt < 2:
                await asyncio.sleep(0.01)
        await started.aligned(5)
    assert await keys(store) == ["key-0"]


async def test_realign_on_request_does_not_wait_for_an_idle_stream(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that has been silent for long is looked at once a minute."""
    monkeypatch.setattr(ScriptedFeed, "detects_dead_peer", True)
    ahead_s = [0.0]
    environment = Environment(now=LATER.now, monotonic=lambda: time.monotonic() + ahead_s[0])
    source = ScriptedSource([records(0, 1), SILENT], [records(0), SILENT])
    async with Consumer("test", source, store, QUICK, environment=environment) as started:
        await started.aligned(5)
        ahead_s[0] = 60.0
        await asyncio.sleep(0.1)
        started.realign(STREAM, "an operator asked")
        async with asyncio.timeout(5):
            while started.health().streams[0].attempt < 2:
                await asyncio.sleep(0.01)


async def test_a_baseline_is_read_while_the_stream_is_held(store: SqlStore) -> None:
    stream = info(mode=Mode.BASELINE, readable=frozenset({"NODE"}))
    source = ScriptedSource(
        [RecordChunk([record(5, "b", ends=True), record(6, "c")]), SILENT], stream=stream
    )
    source.pages = [
        [
            Record(
                STREAM, key, record(0).kind, "", T0_US, entity_class="NODE", body=b"{}", uuid=key
            )
            for key in ("a", "b")
        ]
    ]
    async with consumer(source, store) as started:
        await started.aligned(5)
        await drained(started, 2 + 2)
    assert source.starts == [Start.LATEST]
    assert await keys(store) == ["a", "c"]


class ClockSetBack(ScriptedSource):
    """Its provider's clock is set back by five seconds while the first attempt is read."""

    async def refresh(self, stream: StreamInfo) -> StreamInfo:
        offset_us = -5_000_000 if len(self.starts) == 1 else 0
        return msgspec.structs.replace(stream, clock_offset_us=offset_us)


@pytest.mark.parametrize("classes", [("NODE", "LINK"), ("NODE",)])
async def test_a14_a_clock_set_back_after_a_baseline_has_it_read_again(
    store: SqlStore, classes: tuple[str, ...]
) -> None:
    """Where records are compared with it by their times: from the oldest record."""
    stream = info(mode=Mode.BASELINE, classes=classes, readable=frozenset({"NODE"}))
    source = ClockSetBack([records(0), SILENT], [records(0), SILENT], stream=stream)
    async with consumer(source, store) as started:
        await started.aligned(5)
        attempt = started.health().streams[0].attempt
    compares = len(classes) > 1
    assert source.starts == ([Start.OLDEST] * 2 if compares else [Start.LATEST])
    assert attempt == len(source.starts)


class ClockSetBackWhileAway(ScriptedSource):
    """Its provider's clock is set back by five seconds between the first two connections."""

    @asynccontextmanager
    async def feed(self, stream: StreamInfo, start: str | Start) -> AsyncIterator[ScriptedFeed]:
        async with super().feed(stream, start) as feed:
            feed.clock_offset_us = self._offset_us()
            yield feed

    async def refresh(self, stream: StreamInfo) -> StreamInfo:
        return msgspec.structs.replace(stream, clock_offset_us=self._offset_us())

    def _offset_us(self) -> int:
        return -5_000_000 if len(self.starts) > 1 else 0


async def test_a14_a_clock_set_back_while_disconnected_has_the_baseline_read_again(
    store: SqlStore,
) -> None:
    stream = info(mode=Mode.BASELINE, classes=("NODE", "LINK"), readable=frozenset({"NODE"}))
    source = ClockSetBackWhileAway(
        [records(0), UnreachableError("reset")],
        [SILENT],
        [records(0), SILENT],
        stream=stream,
    )
    async with consumer(source, store) as started:
        await started.aligned(5)
    assert source.starts == [Start.OLDEST, "token-0", Start.OLDEST]


@pytest.mark.parametrize("pauses", range(0, 60, 3))
async def test_cancelled_at_any_await_it_goes_on_where_the_store_stands(
    store: SqlStore, tmp_path: Path, pauses: int
) -> None:
    chunks = [records(n) for n in range(20)]
    task = asyncio.create_task(_until_cancelled(ScriptedSource([*chunks, SILENT]), store))
    for _ in range(pauses):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    again = SqlStore(f"sqlite:///{tmp_path}/store.db")
    await again.open("test")
    position = await again.position(info())
    await again.close()
    held = [f"key-{n}" for n in range(position.offsets.get("0", -1) + 1)]
    if position.ordinal:
        assert await keys(again) == sorted(held)
    source = ScriptedSource([*chunks[len(held) :], SILENT])
    async with consumer(source, SqlStore(f"sqlite:///{tmp_path}/store.db")) as second:
        await second.aligned(5)
        assert second.health().streams[0].phase is Phase.ALIGNED
    assert len(await keys(again)) == 20


async def _until_cancelled(source: ScriptedSource, store: SqlStore) -> None:
    async with consumer(source, store) as started:
        await started.wait()


async def test_events_report_each_step_and_end_with_the_consumer(store: SqlStore) -> None:
    source = ScriptedSource([records(0), UnreachableError("reset")], [SILENT])
    kinds: list[str] = []
    started = consumer(source, store)

    async def listen() -> None:
        kinds.extend([event.kind async for event in started.events()])

    listening = asyncio.create_task(listen())
    await asyncio.sleep(0)
    async with started:
        await started.aligned(5)
    async with asyncio.timeout(5):
        await listening
    assert [k for k in kinds if k in {"connected", "attempt", "disconnected", "aligned", "stopped"}]
    assert kinds.index("attempt") < kinds.index("disconnected") < kinds.index("aligned")
    assert kinds[-1] == "stopped"


async def test_a_held_sweep_goes_on_in_a_new_process_whose_guard_lets_it_pass(
    store: SqlStore, tmp_path: Path
) -> None:
    few = RecordChunk([record(offset) for offset in range(40)])
    source = ScriptedSource(
        [records(*range(300)), UnreachableError("reset")], [few, SILENT], [few, SILENT]
    )
    async with consumer(source, store) as started:
        await drained(started, 340)
        with pytest.raises(SweepHeldError):
            await started.aligned(5)
    open_guard = msgspec.structs.replace(
        QUICK, alignment=msgspec.structs.replace(QUICK.alignment, sweep_guard_share=1.0)
    )
    again = SqlStore(f"sqlite:///{tmp_path}/store.db")
    quiet = ScriptedSource([SILENT])
    quiet.oldest = [few]
    async with Consumer("test", quiet, again, open_guard, environment=LATER) as second:
        async with asyncio.timeout(20):
            while not second.health().aligned:
                await asyncio.sleep(0.01)
    assert len(await keys(store)) == 40
