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
from instep.runtime.workers.child import Parts, follow_share
from instep.runtime.workers.consumer import SpreadConsumer

__all__ = ["main", "spread"]

# Without -P the working directory could stand in for any module.
_PROGRAM: Final = ("-P", "-c", "from instep.cli.worker import main; main()")


class _Request(msgspec.Struct, frozen=True):
    """What a worker is made of. The file may have changed since: it is not read again."""

    consumer: ConsumerConfiguration
    output: Format


def spread(one: ConsumerConfiguration, source: Source, sink: Sink) -> SpreadConsumer:
    """The consumer of a configuration with several workers. Raises `ConfigurationError`."""
    if not sink.several_processes:
        raise ConfigurationError(
            "several workers cannot write into this sink",
            where=f"{one.sink.where.removesuffix('.sink')}.workers",
            hint="leave workers out, or name a SQLite file or a PostgreSQL server",
            key="workers",
        )
    return SpreadConsumer(
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
    until_signalled(follow_share(_parts))


def _parts(request: bytes) -> Parts:
    made = msgspec.msgpack.decode(request, type=_Request)
    log_to_stderr(made.output)
    one = made.consumer
    source = build_source(one.source)
    assert isinstance(source, Source)
    return Parts(one.name, source, build_sink(one.sink), one.settings)
