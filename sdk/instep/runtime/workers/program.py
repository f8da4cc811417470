"""The worker process: follows the streams assigned to it until its standard input ends."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import BinaryIO, Final, NamedTuple

import msgspec

from instep.ports.sink import Sink
from instep.ports.source import Source
from instep.runtime.consumer import Consumer
from instep.runtime.health import ConsumerEvent
from instep.runtime.lifecycle import REPORTS_WITHIN
from instep.runtime.settings import ConsumerSettings
from instep.runtime.streams.assigned_streams import AssignedStreams
from instep.runtime.supervision import until_first_ended
from instep.runtime.workers.child_pipes import pipes_to_parent, write_report
from instep.runtime.workers.messages import (
    Assignment,
    ErrorData,
    Reconfiguration,
    WorkerReport,
    read_frame,
)

__all__ = ["WorkerParts", "run_worker"]

_LOOK_EVERY_S: Final = 0.1
_HEALTH_EVERY_S: Final = 1.0
_EVENTS_KEPT: Final = 1_000
_decode: Final = msgspec.msgpack.Decoder(Assignment).decode
_TOLD_ELSEWHERE: Final = frozenset({"stream-found", "stream-left", "stopped", "failed"})
"""Events of the consumer as a whole: whoever started the worker tells them."""


class WorkerParts(NamedTuple):
    """What a worker is made of."""

    name: str
    source: Source
    sink: Sink
    settings: ConsumerSettings


async def run_worker(make: Callable[[bytes], WorkerParts]) -> None:
    """Follow what standard input assigns, and report on standard output.

    `make` makes the parts out of the request that `WorkerProcess` was given. A fatal error is in
    the last report. Cancelling completes the commit under way.
    """
    frames, reports = await pipes_to_parent()
    request, first = await read_frame(frames), await read_frame(frames)
    if request is None or first is None:
        return
    try:
        parts = make(request)
        consumer, assigned = _consumer(parts, _decode(first))
    except Exception as error:  # noqa: BLE001 - carried to whoever started us
        await write_report(reports, WorkerReport(failure=ErrorData.of(error)))
        return
    # What start-up has made stays: no garbage collection looks through it again.
    gc.collect()
    gc.freeze()
    events: list[ConsumerEvent] = []
    listening = asyncio.create_task(_listen(consumer, events))
    await asyncio.sleep(0)
    failure: Exception | None = None
    try:
        async with consumer:
            await until_first_ended(
                consumer.wait(),
                _read_assignments(frames, consumer, assigned),
                _tell(consumer, events, reports, parts.settings.stale_after_s / REPORTS_WITHIN),
            )
    except Exception as error:  # noqa: BLE001 - carried to whoever started us
        failure = error
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        carried = None if failure is None else ErrorData.of(failure)
        await write_report(reports, _report(consumer, events, carried))


def _consumer(parts: WorkerParts, assignment: Assignment) -> tuple[Consumer, AssignedStreams]:
    assigned = AssignedStreams()
    assigned.update(assignment.streams, assignment.assigned)
    name, source, sink, settings = parts
    if assignment.lease is not None:
        assert sink.lease is not None
        sink.lease.adopt(assignment.lease)
    consumer = Consumer(name, source, sink, _unordered(settings), assigned=assigned)
    if assignment.reconfiguration is not None:
        _reconfigure(consumer, assignment.reconfiguration)
    return consumer, assigned


def _unordered(settings: ConsumerSettings) -> ConsumerSettings:
    # Whoever assigns a stream has waited for those before it.
    return msgspec.structs.replace(settings, start_order=())


def _reconfigure(consumer: Consumer, changed: Reconfiguration) -> None:
    # What it does not take over, whoever started this process has told.
    consumer.reconfigure(_unordered(changed.settings), changed.source, changed.where)


async def _read_assignments(
    frames: asyncio.StreamReader, consumer: Consumer, assigned: AssignedStreams
) -> None:
    """Take over what is assigned, until whoever assigns has ended or wants us to end."""
    known: Reconfiguration | None = None
    while (frame := await read_frame(frames)) is not None:
        assignment = _decode(frame)
        if assignment.reconfiguration is not None and assignment.reconfiguration != known:
            known = assignment.reconfiguration
            _reconfigure(consumer, known)
        assigned.update(assignment.streams, assignment.assigned)


async def _listen(consumer: Consumer, events: list[ConsumerEvent]) -> None:
    async for event in consumer.events():
        if event.kind not in _TOLD_ELSEWHERE:
            events.append(event)
            del events[:-_EVENTS_KEPT]


async def _tell(
    consumer: Consumer, events: list[ConsumerEvent], reports: BinaryIO, within_s: float
) -> None:
    told_s, every_s = 0.0, min(_HEALTH_EVERY_S, within_s)
    while True:
        now_s = asyncio.get_running_loop().time()
        if events or now_s - told_s >= every_s:
            told_s = now_s
            await write_report(reports, _report(consumer, events))
        await asyncio.sleep(_LOOK_EVERY_S)


def _report(
    consumer: Consumer, events: list[ConsumerEvent], failure: ErrorData | None = None
) -> WorkerReport:
    told = tuple(events)
    events.clear()
    return WorkerReport(health=consumer.health(), events=told, failure=failure)
