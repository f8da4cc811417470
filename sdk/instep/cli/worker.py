"""The worker processes of `instep run`: how one is started, and what it is made of."""

from __future__ import annotations

from typing import Final

import msgspec

from instep.cli.log_lines import OUTPUT, log_to_stderr
from instep.cli.output import Format
from instep.cli.signals import until_signalled
from instep.config.file import ConsumerConfiguration
from instep.config.plugins import build_sink, build_source
from instep.errors import ConfigurationError
from instep.ports.sink import Sink
from instep.ports.source import Source
from instep.runtime.child_process import OUTLIVE_HANGUP
from instep.runtime.workers.consumer import MultiProcessConsumer
from instep.runtime.workers.program import WorkerParts, run_worker

__all__ = ["main", "multi_process_consumer"]

# Without -P the working directory could stand in for any module.
_PROGRAM: Final = ("-P", "-c", f"{OUTLIVE_HANGUP}; from instep.cli.worker import main; main()")


class _Request(msgspec.Struct, frozen=True):
    """What a worker is made of. The file may have changed since: it is not read again."""

    consumer: ConsumerConfiguration
    output: Format


_decode: Final = msgspec.msgpack.Decoder(_Request).decode


def multi_process_consumer(
    one: ConsumerConfiguration, source: Source, sink: Sink
) -> MultiProcessConsumer:
    """The consumer of a configuration with several workers. Raises `ConfigurationError`."""
    if not sink.several_processes:
        raise ConfigurationError(
            "several workers cannot write into this sink",
            where=f"{one.sink.where.removesuffix('.sink')}.workers",
            hint="leave workers out, or name a SQLite file or a PostgreSQL server",
            key="workers",
        )
    return MultiProcessConsumer(
        one.name,
        source,
        sink,
        one.settings,
        workers=one.workers,
        program=_PROGRAM,
        request=msgspec.msgpack.encode(_Request(one, OUTPUT.get())),
    )


def main() -> None:
    """The program of a worker process."""
    until_signalled(run_worker(_parts))


def _parts(request: bytes) -> WorkerParts:
    made = _decode(request)
    log_to_stderr(made.output)
    one = made.consumer
    source = build_source(one.source)
    assert isinstance(source, Source)
    return WorkerParts(one.name, source, build_sink(one.sink), one.settings)
