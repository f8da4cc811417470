"""Reads a stream once to learn what it carries, and stores nothing (A20)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import chain

import msgspec

from instep.errors import StreamGoneError
from instep.model.batches import Batch, CommitResult
from instep.model.entities import identity_digest
from instep.model.position import Position
from instep.model.records import Record
from instep.model.streams import StreamInfo, SweepEstimate
from instep.ports.sink import Sink
from instep.ports.source import Source
from instep.runtime.retry import Environment
from instep.runtime.settings import ConsumerSettings
from instep.runtime.streams.worker import StreamWorker

__all__ = ["IdentitySnapshot"]


class IdentitySnapshot:
    """One stream, read until it is aligned as any other; only what its entities are is kept."""

    def __init__(
        self,
        stream: StreamInfo,
        source: Source,
        settings: ConsumerSettings,
        environment: Environment,
        now: Callable[[], float],
        *,
        report: Callable[[str, str, str], None],
    ) -> None:
        self.stream = stream
        self._names = _Names()
        self._read = asyncio.Event()
        self._report = report
        self.worker = StreamWorker(
            stream,
            source,
            self._names,
            settings,
            environment,
            now,
            report=self._heard,
            rediscover=_no_other,
        )

    async def read(self) -> None:
        """Wait until all that the stream held has been read."""
        await self._read.wait()

    @property
    def entities(self) -> int:
        """How many entities the stream states."""
        return len({identity for identity, _ in self._names.by_key.values()})

    @property
    def names(self) -> frozenset[int]:
        """What these are, as `identity_digest` names it: by uuid, and by key for a store that does
        not know the uuids of the stream.
        """
        return frozenset(chain.from_iterable(self._names.by_key.values()))

    async def run(self) -> None:
        """Read until the stream is aligned. Raises the error with which that is not possible."""
        reading = asyncio.create_task(self.worker.run())
        done = asyncio.create_task(self._read.wait())
        try:
            await asyncio.wait({reading, done}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()
        finally:
            for task in (reading, done):
                task.cancel()
            await asyncio.gather(reading, done, return_exceptions=True)

    def _heard(self, stream: str, kind: str, text: str, _ids: Mapping[str, int]) -> None:
        if kind == "aligned":
            self._read.set()
        elif kind in ("disconnected", "no-progress"):
            self._report(stream, kind, text)


async def _no_other(gone: StreamInfo) -> StreamInfo:
    raise StreamGoneError("the stream is not offered any more", where=gone.id)


class _Named(msgspec.Struct):
    uuid: str = ""


_named = msgspec.json.Decoder(_Named).decode


class _Names(Sink):
    """Keeps what each key is, as `identity_digest` names it: by uuid, and by key."""

    def __init__(self) -> None:
        self.by_key: dict[str, tuple[int, int]] = {}

    @property
    def latest_only(self) -> bool:
        return True

    async def open(self, consumer: str) -> None:
        """Nothing is to be opened."""

    async def position(self, stream: StreamInfo) -> Position:  # noqa: ARG002 — there is one
        self.by_key.clear()
        return Position()

    async def commit(self, batch: Batch) -> CommitResult:
        await asyncio.to_thread(self._keep, batch)
        return CommitResult(sweep_done=batch.sweep is not None)

    def _keep(self, batch: Batch) -> None:
        for record in batch.records:
            if record.ends:
                self.by_key.pop(record.key, None)
            else:
                self.by_key[record.key] = _identity(record)

    async def estimate_sweep(
        self,
        stream: str,  # noqa: ARG002 — nothing is kept that could be swept
        attempt: int,  # noqa: ARG002
    ) -> SweepEstimate:
        return SweepEstimate(0, 0)

    async def close(self) -> None:
        """Nothing is open."""


def _identity(record: Record) -> tuple[int, int]:
    uuid = record.uuid
    if not uuid and record.body:
        try:
            uuid = _named(record.body).uuid
        except msgspec.MsgspecError:
            uuid = ""
    by_key = identity_digest(record.entity_class, "", record.key)
    return identity_digest(record.entity_class, uuid, record.key) if uuid else by_key, by_key
