"""What `instep run` runs, here and in other processes: how those are started, and what they are
made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from instep.cli.heap import share_one_heap
from instep.cli.log_lines import OUTPUT, log_to_stderr
from instep.cli.output import Format
from instep.cli.signals import until_signalled
from instep.config.file import ConsumerConfiguration, Isolation, PublisherConfiguration
from instep.config.plugins import (
    build_conformance,
    build_sink,
    build_source,
    build_target,
    check_publisher,
    store_plugin,
)
from instep.errors import ConfigurationError
from instep.ports.listener import Listener
from instep.ports.sink import Sink
from instep.ports.source import Source
from instep.runtime.child_process import OUTLIVE_HANGUP
from instep.runtime.consumer import Consumer
from instep.runtime.lifecycle import Service
from instep.runtime.publisher_service import PublisherService
from instep.runtime.receiver import Receiver
from instep.runtime.tee import TeeSink
from instep.runtime.workers.consumer import MultiProcessConsumer
from instep.runtime.workers.isolated import isolated
from instep.runtime.workers.isolated_program import run_isolated
from instep.runtime.workers.program import WorkerParts, run_worker

__all__ = ["main", "main_isolated", "multi_process_consumer", "publisher_of", "services_of"]

# Without -P the working directory could stand in for any module.
_PROGRAM: Final = ("-P", "-c", f"{OUTLIVE_HANGUP}; from instep.cli.worker import main; main()")
_ISOLATED: Final = (
    "-P",
    "-c",
    f"{OUTLIVE_HANGUP}; from instep.cli.worker import main_isolated; main_isolated()",
)


class _Request(msgspec.Struct, frozen=True):
    """What a process is made of. The file may have changed since: it is not read again."""

    consumer: ConsumerConfiguration
    output: Format


_decode: Final = msgspec.msgpack.Decoder(_Request).decode


def services_of(one: ConsumerConfiguration) -> Sequence[Service]:
    """What runs a configured consumer: one, or of a tee one for each sink. Raises
    `ConfigurationError`.
    """
    # Those of another process are made here, too: what is wrong is told before anything starts.
    services = _services(one)
    if one.isolation is Isolation.NONE:
        return services
    return isolated(
        services,
        one.settings,
        program=_ISOLATED,
        request=_request(one),
        memory_limit_bytes=one.memory_limit_bytes,
    )


def publisher_of(one: PublisherConfiguration) -> PublisherService:
    """What runs a configured publisher. Raises `ConfigurationError`."""
    check_publisher(one)
    table = one.table
    plugin = store_plugin(table.store)
    return PublisherService(
        table.name,
        lambda: plugin.reader(table.store),
        lambda: build_target(one.target),
        from_now=table.from_now,
        consumer=table.consumer,
        stream=table.stream,
        classes=table.classes,
        below=table.below,
        batch_changes=table.batch_changes,
    )


def main() -> None:
    """The program of a worker process."""
    until_signalled(run_worker(_parts))


def main_isolated() -> None:
    """The program of a consumer in a process of its own."""
    until_signalled(run_isolated(_made))


def _services(one: ConsumerConfiguration) -> Sequence[Service]:
    source, sink = build_source(one.source), build_sink(one.sink)
    conformance = build_conformance(one, source)
    if one.workers > 1:
        if isinstance(source, Listener):
            raise ConfigurationError(
                "messages are received by one process, and this consumer has several workers",
                where=f"{one.source.where.removesuffix('.source')}.workers",
                hint="leave workers out",
            )
        return [multi_process_consumer(one, source, sink)]
    if isinstance(sink, TeeSink):
        if isinstance(source, Listener):
            raise ConfigurationError(
                "messages are kept by one sink, and a tee has several",
                where=one.sink.where,
                hint="name the sink that keeps them instead of the tee",
            )
        return sink.consumers(one.name, source, one.settings, conformance=conformance)
    if isinstance(source, Listener):
        return [Receiver(one.name, source, sink, one.settings, conformance=conformance)]
    return [Consumer(one.name, source, sink, one.settings, conformance=conformance)]


def multi_process_consumer(
    one: ConsumerConfiguration, source: Source, sink: Sink
) -> MultiProcessConsumer:
    """The consumer of a configuration with several workers. Raises `ConfigurationError`."""
    if not sink.several_processes:
        raise ConfigurationError(
            "several workers cannot share this sink",
            where=f"{one.sink.where.removesuffix('.sink')}.workers",
            hint="leave workers out, or use a SQLite file or a PostgreSQL server",
            key="workers",
        )
    return MultiProcessConsumer(
        one.name,
        source,
        sink,
        one.settings,
        workers=one.workers,
        program=_PROGRAM,
        request=_request(one),
    )


def _request(one: ConsumerConfiguration) -> bytes:
    return msgspec.msgpack.encode(_Request(one, OUTPUT.get()))


def _begin(request: bytes) -> ConsumerConfiguration:
    """Set up this process as the one that asked for it is. Returns what it runs."""
    share_one_heap()
    read = _decode(request)
    log_to_stderr(read.output)
    return read.consumer


def _made(request: bytes) -> Sequence[Service]:
    return _services(_begin(request))


def _parts(request: bytes) -> WorkerParts:
    one = _begin(request)
    source = build_source(one.source)
    assert isinstance(source, Source)
    return WorkerParts(one.name, source, build_sink(one.sink), one.settings)
