"""A sink of your own: entities and positions in one JSON file, replaced whole with each commit.

It is small, so it shows what every sink has to do (`instep.Sink`): the comparison of
rule A3, the marks, the sweep, and one commit for all of it. It fits some thousand entities, not
more. It runs on its own, too, and says what it holds:

    python examples/plug_in.py [URL] [--file network.json]

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
    CommitResult,
    ConfigurationError,
    Consumer,
    FencedError,
    Mode,
    Position,
    Record,
    Sink,
    StoreReader,
    StoreUnavailableError,
    StreamInfo,
    SweepEstimate,
    SweepStep,
    Unreadable,
    is_held,
    supersedes,
)
from instep_tapi import TapiSource, read_options


class Entity(msgspec.Struct, frozen=True):
    """An entity: its last record, which log that is from, and the attempt that proved it."""

    record: Record
    lineage: int
    attempt: int


class Stream(msgspec.Struct):
    """Everything that is kept of a stream."""

    position: Position = Position()
    entities: dict[str, Entity] = {}
    quarantine: list[Unreadable] = []


class JsonFile(Sink):
    """A sink for logs that give state alone (`Mode.LOG`). One process
    a file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    async def open(self, consumer: str) -> None:  # noqa: ARG002 - one consumer a file
        self._read()

    async def position(self, stream: StreamInfo) -> Position:
        if stream.mode is not Mode.LOG or stream.partial_updates:
            raise ConfigurationError(
                "this sink takes whole entities from a log that gives state alone",
                where=stream.id,
                hint="leave this stream out of streams.ids",
            )
        return self._stream(stream.id).position

    async def commit(self, batch: Batch) -> CommitResult:
        """The content is changed in memory; it is committed once the file is replaced."""
        streams = self._read()
        stream = streams.setdefault(batch.stream, Stream())
        if stream.position.ordinal != batch.expects_ordinal:
            raise FencedError("another process has committed", where=str(self._path))
        stream.position = batch.position
        written = sum([_apply(stream, record) for record in batch.records])
        swept = _sweep(stream, batch.sweep) if batch.sweep else 0
        stream.quarantine += batch.unreadable
        self._write(streams)
        return CommitResult(written=written, swept=swept, sweep_done=batch.sweep is not None)

    async def estimate_sweep(self, stream: str, attempt: int) -> SweepEstimate:
        entities = self._stream(stream).entities.values()
        unmarked = sum(entity.attempt < attempt for entity in entities)
        return SweepEstimate(total=len(entities), unmarked=unmarked)

    async def close(self) -> None:
        """Nothing is open between two commits."""

    def _stream(self, name: str) -> Stream:
        return self._read().get(name) or Stream()

    def _read(self) -> dict[str, Stream]:
        if not self._path.exists():
            return {}
        return msgspec.json.decode(self._path.read_bytes(), type=dict[str, Stream])

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


def _apply(stream: Stream, record: Record) -> bool:
    """Apply rule A3 to one record. Returns whether an entity was written."""
    position = stream.position
    known = stream.entities.get(record.key)
    if known and known.lineage == position.lineage and supersedes(known.record, record):
        return False  # ignored, and not marked
    if record.ends:
        stream.entities.pop(record.key, None)
        return False
    stream.entities[record.key] = Entity(record, position.lineage, position.attempt)
    return True


def _sweep(stream: Stream, step: SweepStep) -> int:
    """Remove in one step what the attempt did not mark, unless it could not read all that may be
    about it (A17). Returns how many entities were removed.
    """
    gone = [
        key
        for key, entity in stream.entities.items()
        if entity.attempt < step.attempt
        and not is_held(step.holds, entity.record, entity.record.entity_class, entity.lineage)
    ]
    for key in gone:
        del stream.entities[key]
    return len(gone)


class Plugin:
    """Implements `instep.ports.plugin.SinkPlugin`: what the entry point names."""

    def check(self, options: Mapping[str, Any], where: str) -> None:
        if list(options) != ["path"]:
            raise ConfigurationError("give path, and nothing else", where=where)

    def build(self, options: Mapping[str, Any], where: str) -> JsonFile:
        self.check(options, where)
        return JsonFile(Path(options["path"]))

    def reads(self, url: str) -> bool:  # noqa: ARG002 - none is
        return False

    def reader(self, url: str) -> StoreReader:
        raise ConfigurationError("a JSON file is read by other means", where=url)


sink = Plugin()


async def main(endpoint: str, file: str) -> None:
    source = TapiSource(read_options({"endpoints": [endpoint]}, "plug_in.py"))
    async with Consumer("plug-in", source, JsonFile(Path(file))) as consumer:
        await consumer.aligned()
    print(f"{file} holds:")
    for name, stream in msgspec.json.decode(
        Path(file).read_bytes(), type=dict[str, Stream]
    ).items():
        print(f"  {len(stream.entities)} entities of {name}, at ordinal {stream.position.ordinal}")


if __name__ == "__main__":
    from simulation import options, run, temporary

    parser = options(__doc__)
    parser.add_argument("--file", default=temporary("network.json"), help="where they are kept")
    run(main, parser)
