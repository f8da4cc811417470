"""Sinks in memory and of the example keep the promises, and every promise can be broken."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from instep import FencedError, Position, StreamInfo
from instep.model import Batch, CommitResult, SweepEstimate
from instep.ports import Sink
from instep.testing import SINK_PROMISES, BrokenPromiseError, MemorySink, MemoryStore, check_sink

pytestmark = pytest.mark.asyncio

REPOSITORY = Path(__file__).resolve().parents[3]


def making(kind: type[MemorySink]) -> Callable[[str], MemorySink]:
    stores: dict[str, MemoryStore] = {}
    return lambda name: kind(stores.setdefault(name, MemoryStore()))


async def bodies(sink: Sink, stream: str) -> Mapping[str, bytes]:
    assert isinstance(sink, MemorySink)
    return {key: record.body for key, record in sink.entities(stream).items()}


@pytest.mark.parametrize("promise", SINK_PROMISES)
async def test_a_sink_in_memory_keeps(promise: str) -> None:
    await check_sink(making(MemorySink), entities=bodies, only=promise)


@pytest.mark.parametrize("promise", SINK_PROMISES)
async def test_the_sink_of_the_example_keeps(promise: str, tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("plug_in", REPOSITORY / "examples/plug_in.py")
    assert spec is not None
    assert spec.loader is not None
    plug_in = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plug_in)

    async def read(sink: Sink, stream: str) -> Mapping[str, bytes]:
        entities = sink._stream(stream).entities  # type: ignore[attr-defined]
        return {key: one.record.body for key, one in entities.items()}

    await check_sink(
        lambda name: plug_in.JsonFile(tmp_path / f"{name}.json"), entities=read, only=promise
    )


async def test_all_are_checked_where_none_is_named() -> None:
    await check_sink(making(MemorySink), entities=bodies)


async def test_a_promise_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="no promise is named 'x'; there are a-new-stream"):
        await check_sink(making(MemorySink), only="x")


# -- every promise can be broken ---------------------------------------------------------------


class BeginsElsewhere(MemorySink):
    async def position(self, stream: StreamInfo) -> Position:
        return msgspec.structs.replace(await super().position(stream), records=7)


class ForgetsTheRest(MemorySink):
    """Keeps of a position what is in its columns."""

    async def position(self, stream: StreamInfo) -> Position:
        kept = await super().position(stream)
        return Position(token=kept.token, ordinal=kept.ordinal)


class ForgetsAll(MemorySink):
    def __init__(self, _store: MemoryStore) -> None:
        super().__init__()


class Unfenced(MemorySink):
    async def commit(self, batch: Batch) -> CommitResult:
        stands = self._stream(batch.stream).position.ordinal
        return await super().commit(_expecting(batch, stands))


def _expecting(batch: Batch, ordinal: int) -> Batch:
    return batch.replace(expects_ordinal=ordinal)


class Torn(MemorySink):
    """Stores the position, and then what it covers."""

    async def commit(self, batch: Batch) -> CommitResult:
        stream = self._stream(batch.stream)
        if stream.position.ordinal != batch.expects_ordinal:
            raise FencedError("no")
        before, stream.position = stream.position, batch.position
        for _ in range(3):
            await asyncio.sleep(0)
        stream.position = before
        return await super().commit(batch)


class TornByCancelling(Torn):
    async def commit(self, batch: Batch) -> CommitResult:
        stream = self._stream(batch.stream)
        try:
            return await super().commit(batch)
        except asyncio.CancelledError:
            stream.position = batch.position
            raise


class Each(MemorySink):
    """Passes the records on one by one, each changed."""

    def changed(self, batch: Batch, record: Any) -> Any:
        raise NotImplementedError

    async def commit(self, batch: Batch) -> CommitResult:
        records = [self.changed(batch, record) for record in batch.records]
        return await super().commit(batch.replace(records=[one for one in records if one]))


class TakesWhatIsOlder(Each):
    def changed(self, batch: Batch, record: Any) -> Any:
        self._stream(batch.stream).entities.pop(record.key, None)
        return record


class MarksNothingAgain(Each):
    def changed(self, batch: Batch, record: Any) -> Any:
        known = self.entities(batch.stream).get(record.key)
        return None if known == record else record


class ComparesLineages(Each):
    def changed(self, batch: Batch, record: Any) -> Any:
        known = self.entities(batch.stream).get(record.key)
        return None if known and known.offset > record.offset >= 0 else record


class ComparesTimesAlone(Each):
    def changed(self, batch: Batch, record: Any) -> Any:
        del batch
        return msgspec.structs.replace(record, offset=-1)


class KeepsWhatEnded(Each):
    def changed(self, batch: Batch, record: Any) -> Any:
        del batch
        return None if record.ends else record


class KeepsWhatEndsWithABody(Each):
    def changed(self, batch: Batch, record: Any) -> Any:
        del batch
        return None if record.ends and record.body else record


class TakesTheFirstOfABatch(MemorySink):
    async def commit(self, batch: Batch) -> CommitResult:
        first: dict[str, Any] = {}
        for record in batch.records:
            first.setdefault(record.key, record)
        return await super().commit(batch.replace(records=list(first.values())))


class ShortensBodies(Each):
    def changed(self, batch: Batch, record: Any) -> Any:
        del batch
        return msgspec.structs.replace(record, body=record.body[:8])


class TakesAPage(MemorySink):
    async def commit(self, batch: Batch) -> CommitResult:
        return await super().commit(batch.replace(records=list(batch.records)[:1_000]))


class StopsAtTheUnreadable(MemorySink):
    async def commit(self, batch: Batch) -> CommitResult:
        if batch.unreadable:
            raise ValueError(batch.unreadable[0].reason)
        return await super().commit(batch)


class SweepsMarked(MemorySink):
    async def commit(self, batch: Batch) -> CommitResult:
        if batch.sweep is not None:
            step = msgspec.structs.replace(batch.sweep, attempt=batch.sweep.attempt + 1)
            batch = batch.replace(sweep=step)
        return await super().commit(batch)


class SweepsForEver(MemorySink):
    async def commit(self, batch: Batch) -> CommitResult:
        return msgspec.structs.replace(await super().commit(batch), sweep_done=False)


class TakesBaselines(MemorySink):
    """And sweeps what no baseline can prove absent."""

    async def position(self, stream: StreamInfo) -> Position:
        return self._stream(stream.id).position


class OneSweep(MemorySink):
    """Counts the entities of all streams."""

    async def estimate_sweep(self, stream: str, attempt: int) -> SweepEstimate:
        streams = [one for (_, one) in self._store._streams]
        found = [await super(OneSweep, self).estimate_sweep(one, attempt) for one in streams]
        own = await super().estimate_sweep(stream, attempt)
        return SweepEstimate(sum(one.total for one in found), own.unmarked)


class KnowsTheFirst(MemorySink):
    async def position(self, stream: StreamInfo) -> Position:
        info = self._stream(stream.id).info
        position = await super().position(stream)
        self._stream(stream.id).info = info or stream
        return position


class ReleasesAll(MemorySink):
    async def is_sweep_released(self, stream: str, attempt: int) -> bool:
        del stream, attempt
        return True


class ClosesOnce(MemorySink):
    async def close(self) -> None:
        del self._consumer


BROKEN: dict[str, type[MemorySink]] = {
    "a-new-stream-begins-at-the-beginning": BeginsElsewhere,
    "the-position-is-kept-as-it-was-committed": ForgetsTheRest,
    "a-commit-outlives-the-sink": ForgetsAll,
    "a-batch-from-elsewhere-changes-nothing": Unfenced,
    "the-second-writer-is-fenced": Unfenced,
    "cancelling-tears-nothing": TornByCancelling,
    "an-older-record-is-ignored": TakesWhatIsOlder,
    "a-record-that-is-not-older-is-marked": MarksNothingAgain,
    "another-lineage-is-not-compared": ComparesLineages,
    "offsets-decide-before-append-times": ComparesTimesAlone,
    "an-end-removes-its-entity": KeepsWhatEnded,
    "what-is-gone-is-gone": KeepsWhatEndsWithABody,
    "a-batch-is-its-records-in-order": TakesTheFirstOfABatch,
    "the-newest-body-is-kept": ShortensBodies,
    "records-opened-late-are-written": TakesAPage,
    "what-cannot-be-read-does-not-stop-the-stream": StopsAtTheUnreadable,
    "a-sweep-removes-the-unmarked-alone": SweepsMarked,
    "a-sweep-in-steps-removes-as-much": SweepsForEver,
    "a-baseline-proves-no-class-that-it-does-not-show": TakesBaselines,
    "streams-are-apart": OneSweep,
    "known-streams-are-as-last-given": KnowsTheFirst,
    "nothing-is-released-by-itself": ReleasesAll,
    "closing-twice-is-no-error": ClosesOnce,
}


@pytest.mark.parametrize("promise", SINK_PROMISES)
async def test_a_broken_promise_is_found(promise: str) -> None:
    with pytest.raises(BrokenPromiseError) as caught:
        await check_sink(making(BROKEN[promise]), entities=bodies, only=promise)
    assert caught.value.promise == promise
    assert caught.value.where.startswith("instep.ports.Sink")
    assert promise in str(caught.value)
    raises = {"what-cannot-be-read-does-not-stop-the-stream", "closing-twice-is-no-error"}
    assert (caught.value.__cause__ is not None) is (promise in raises)


async def test_without_a_name_the_first_broken_promise_is_reported() -> None:
    with pytest.raises(BrokenPromiseError, match=r"^an-older-record-is-ignored: .*, rule A3\)"):
        await check_sink(making(TakesWhatIsOlder))
