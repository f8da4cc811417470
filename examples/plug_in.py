"""A sink of your own: entities and positions in one JSON file, replaced whole with each commit.

It is small, so it shows what every sink has to do (`instep.Sink`): the comparison of rule 3, the
marks, the sweep, and one commit for all of it. It fits a few thousand entities, not more.

To use it from `instep.toml` as ``kind = "json"``, install it with an entry point:

    [project.entry-points."instep.sinks"]
    json = "plug_in:sink"
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from instep import (
    Batch,
    Census,
    CommitResult,
    ConfigurationError,
    FencedError,
    Position,
    Record,
    StoreReader,
    StoreUnavailableError,
    StreamInfo,
    Unreadable,
)


class Entity(msgspec.Struct, frozen=True):
    """What is kept of an entity: its last record, the log it is from, the attempt that proved it."""

    record: Record
    lineage: int
    attempt: int


class Stream(msgspec.Struct):
    """Everything that is kept of a stream; `ordinal` of the position tells who committed last."""

    position: Position = Position()
    entities: dict[str, Entity] = {}
    quarantine: list[Unreadable] = []


class JsonFile:
    """Implements `instep.Sink`. One consumer a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._streams: dict[str, Stream] = {}

    async def open(self, consumer: str) -> None:
        self._streams = {}
        if self._path.exists():
            self._streams = msgspec.json.decode(self._path.read_bytes(), type=dict[str, Stream])

    async def position(self, stream: StreamInfo) -> Position:
        return self._stream(stream.id).position

    async def commit(self, batch: Batch) -> CommitResult:
        """A copy is changed and written; it counts from the moment the file is replaced."""
        old = self._stream(batch.stream)
        if old.position.ordinal != batch.expects_ordinal:
            raise FencedError("another process has committed", where=str(self._path))
        new = Stream(batch.position, dict(old.entities), [*old.quarantine, *batch.unreadable])
        written = sum(_apply(new, record) for record in batch.records)
        swept = _sweep(new, batch)
        self._write({**self._streams, batch.stream: new})
        return CommitResult(written=written, swept=swept, sweep_done=batch.sweep is not None)

    async def census(self, stream: str, attempt: int) -> Census:
        entities = self._stream(stream).entities.values()
        unmarked = sum(entity.attempt < attempt for entity in entities)
        return Census(total=len(entities), unmarked=unmarked)

    async def holds_before(self, stream: str, record: Record, lineage: int) -> bool:
        return any(
            entity.lineage == lineage
            and entity.record.partition == record.partition
            and _place(entity.record) < _place(record)
            for entity in self._stream(stream).entities.values()
        )

    async def close(self) -> None:
        """Nothing is open between two commits."""

    def _stream(self, name: str) -> Stream:
        return self._streams.get(name) or Stream()

    def _write(self, streams: dict[str, Stream]) -> None:
        beside = self._path.with_suffix(".new")
        try:
            with beside.open("wb") as file:
                file.write(msgspec.json.encode(streams))
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
        except OSError as error:
            raise StoreUnavailableError(str(error), where=str(self._path)) from error
        self._streams = streams


def _apply(stream: Stream, record: Record) -> bool:
    """Rule 3 for one record; whether an entity was written."""
    position = stream.position
    known = stream.entities.get(record.key)
    if known and known.lineage == position.lineage and _place(known.record) > _place(record):
        return False  # newer is stored: ignored and not marked
    if record.ends:
        stream.entities.pop(record.key, None)
        return False
    stream.entities[record.key] = Entity(record, position.lineage, position.attempt)
    return True


def _sweep(stream: Stream, batch: Batch) -> int:
    """All in one step: what the attempt did not mark goes. How many went."""
    if batch.sweep is None:
        return 0
    attempt = batch.sweep.attempt
    gone = [key for key, entity in stream.entities.items() if entity.attempt < attempt]
    for key in gone:
        del stream.entities[key]
    return len(gone)


def _place(record: Record) -> int:
    """Where a record lies in its partition: its offset, else its append time."""
    return record.offset if record.offset >= 0 else record.appended_at_us


class Plugin:
    """Implements `instep.SinkPlugin`: what the entry point names."""

    def check(self, options: Mapping[str, Any], where: str) -> None:
        if list(options) != ["path"]:
            raise ConfigurationError("give path, and nothing else", where=where)

    def build(self, options: Mapping[str, Any], where: str) -> JsonFile:
        self.check(options, where)
        return JsonFile(Path(options["path"]))

    def reads(self, url: str) -> bool:
        return False

    def reader(self, url: str) -> StoreReader:
        raise ConfigurationError("a JSON file is read by other means", where=url)


sink = Plugin()
