"""The process of an isolated consumer: runs all of it until its standard input ends."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Sequence
from typing import BinaryIO, Final

import msgspec

from instep.runtime.group import Group
from instep.runtime.health import ConsumerEvent
from instep.runtime.lifecycle import Service
from instep.runtime.supervision import until_first_ended
from instep.runtime.workers.child_pipes import pipes_to_parent, write_report
from instep.runtime.workers.messages import (
    ConsumersReport,
    ErrorData,
    Reconfiguration,
    read_frame,
)

__all__ = ["run_isolated"]

_decode: Final = msgspec.msgpack.Decoder(Reconfiguration).decode
_LOOK_EVERY_S: Final = 0.05
_HEALTH_EVERY_S: Final = 0.25
_EVENTS_KEPT: Final = 1_000
_TOLD_ELSEWHERE: Final = frozenset({"stopped", "failed"})
"""Events that whoever started the process tells: it knows of ends that are told by nobody."""


async def run_isolated(make: Callable[[bytes], Sequence[Service]]) -> None:
    """Run what `make` makes of the request on standard input, and report on standard output.

    Ends when the input does, or when all have failed. Cancelling completes the commits under way.
    """
    frames, reports = await pipes_to_parent()
    request = await read_frame(frames)
    if request is None:
        return
    try:
        services = make(request)
    except Exception as error:  # noqa: BLE001 - carried to whoever started us
        await write_report(reports, ConsumersReport(failure=ErrorData.of(error)))
        return
    gc.collect()
    gc.freeze()
    told = _Told(services)
    following = [asyncio.create_task(told.follow(place)) for place in range(len(services))]
    await asyncio.sleep(0)
    try:
        async with Group(services) as group:
            waiting = [asyncio.create_task(told.align(place)) for place in range(len(services))]
            following += waiting
            await until_first_ended(
                _failed(group), _read_changes(frames, services), told.report_to(reports)
            )
    finally:
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        await write_report(reports, told.report())


class _Told:
    """What is told of the consumers of this process."""

    def __init__(self, services: Sequence[Service]) -> None:
        self._services = services
        self._events: list[tuple[int, ConsumerEvent]] = []
        self._aligned: set[int] = set()
        self._not_aligned: dict[int, ErrorData] = {}

    async def follow(self, place: int) -> None:
        """Keep the events of a consumer for the next report."""
        async for event in self._services[place].events():
            if event.kind not in _TOLD_ELSEWHERE:
                self._events.append((place, event))
                del self._events[:-_EVENTS_KEPT]

    async def align(self, place: int) -> None:
        """Wait until a consumer is aligned."""
        try:
            await self._services[place].aligned()
        except Exception as error:  # noqa: BLE001 - carried to whoever waits there
            self._not_aligned[place] = ErrorData.of(error)
        else:
            self._aligned.add(place)

    async def report_to(self, reports: BinaryIO) -> None:
        """Report until cancelled."""
        loop, told_s = asyncio.get_running_loop(), 0.0
        while True:
            if self._events or loop.time() - told_s >= _HEALTH_EVERY_S:
                told_s = loop.time()
                await write_report(reports, self.report())
            await asyncio.sleep(_LOOK_EVERY_S)

    def report(self) -> ConsumersReport:
        """What there is to tell now."""
        events, self._events = tuple(self._events), []
        errors = ((place, one.error) for place, one in enumerate(self._services))
        return ConsumersReport(
            healths=tuple(one.health() for one in self._services),
            events=events,
            received_bytes=tuple(one.received_bytes for one in self._services),
            aligned=frozenset(self._aligned),
            not_aligned=dict(self._not_aligned),
            failures={place: ErrorData.of(error) for place, error in errors if error is not None},
        )


async def _failed(group: Group) -> None:
    """Return when all have failed."""
    await asyncio.gather(*(one.wait() for one in group.consumers), return_exceptions=True)


async def _read_changes(frames: asyncio.StreamReader, services: Sequence[Service]) -> None:
    """Take over what is changed of the configuration, until the input ends."""
    while (frame := await read_frame(frames)) is not None:
        changed = _decode(frame)
        for one in services:
            # What it does not take over, whoever started this process has told.
            one.reconfigure(changed.settings, changed.source, changed.where)
