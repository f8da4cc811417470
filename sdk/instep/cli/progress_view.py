"""What `instep run` prints: a live table for people, JSON lines for machines."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from types import TracebackType
from typing import Final, Self

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.console import Group as Stacked
from rich.live import Live
from rich.table import Table
from rich.text import Text

from instep.alignment.lag import Fidelity
from instep.cli.output import duration, json_line, moment, plain, stamp
from instep.model.position import Phase
from instep.runtime.group import Group
from instep.runtime.health import ConsumerEvent, ConsumerState, Health, StreamHealth
from instep.runtime.lifecycle import Service

__all__ = ["LinesView", "LiveView", "View"]

_REFRESH_S: Final = 0.25
_EVENTS_SHOWN: Final = 8
_LAST_EVENTS_S: Final = 0.5
_FIDELITY_STYLES: Final = {
    Fidelity.FULL: "green",
    Fidelity.REDUCED: "yellow",
    Fidelity.AT_RISK: "bold yellow",
    Fidelity.LOST: "bold red",
}


class View(ABC):
    """Follows the events of a group and, every `period_s`, its health.

    Enter it before the group, so that it misses no event; leave it after, so that it shows the
    last.
    """

    def __init__(self, group: Group, period_s: float) -> None:
        self._group = group
        self._period_s = period_s
        self._followers: list[asyncio.Task[None]] = []
        self._last: dict[tuple[str, str], tuple[float, int]] = {}

    async def __aenter__(self) -> Self:
        self._followers = [asyncio.create_task(self._follow(c)) for c in self._group.consumers]
        await asyncio.sleep(0)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # The consumers have stopped, so their iterators of events end by themselves.
        await asyncio.wait(self._followers, timeout=_LAST_EVENTS_S)
        for follower in self._followers:
            follower.cancel()
        await asyncio.gather(*self._followers, return_exceptions=True)

    async def watch(self) -> None:
        """Show until cancelled. Raises when the output cannot be written, as when its reader is
        gone.
        """
        while True:
            done, following = await asyncio.wait(
                self._followers, timeout=self._period_s, return_when=asyncio.FIRST_EXCEPTION
            )
            for follower in done:
                follower.result()
            self.health(self._group.health())
            if not following:
                # All have failed: waiting for the group raises the reason.
                await asyncio.sleep(self._period_s)

    async def _follow(self, consumer: Service) -> None:
        async for event in consumer.events():
            self.event(event)

    def records_per_s(self, consumer: str, stream: StreamHealth) -> float:
        """Records committed per second since the last call."""
        now_s, key = time.monotonic(), (consumer, stream.stream)
        before_s, records = self._last.get(key, (now_s, stream.records))
        self._last[key] = (now_s, stream.records)
        return (stream.records - records) / (now_s - before_s) if now_s > before_s else 0.0

    @abstractmethod
    def event(self, event: ConsumerEvent) -> None:
        """Show something that happened to a consumer."""

    @abstractmethod
    def health(self, healths: tuple[Health, ...]) -> None:
        """Show the health of all consumers."""


class LinesView(View):
    """Prints one JSON object a line: `event` is the kind of an event, or `health`."""

    def event(self, event: ConsumerEvent) -> None:
        line = {
            "at": stamp(event.at_us),
            "event": event.kind,
            "consumer": event.consumer,
            "stream": event.stream,
            "text": event.text,
        }
        json_line(line, flush=True)

    def health(self, healths: tuple[Health, ...]) -> None:
        at = stamp(time.time_ns() // 1_000)
        for health in healths:
            streams = [
                {
                    **msgspec.to_builtins(stream),
                    "records_per_s": round(self.records_per_s(health.consumer, stream), 1),
                }
                for stream in health.streams
            ]
            line = {
                "at": at,
                "event": "health",
                "consumer": health.consumer,
                "state": health.state,
                "error": health.error,
                "left": health.left,
                "pair": msgspec.to_builtins(health.pair),
                "intake": msgspec.to_builtins(health.intake),
                "loop_lag_s": round(health.loop_lag_s, 3),
                "streams": streams,
            }
            json_line(line, flush=True)


class LiveView(View):
    """Prints a table that is updated in place, with the last events below it."""

    def __init__(self, group: Group, console: Console | None = None) -> None:
        super().__init__(group, _REFRESH_S)
        self._events: deque[ConsumerEvent] = deque(maxlen=_EVENTS_SHOWN)
        # Refreshed by `health` alone: a thread would read what the loop is changing.
        self._live = Live(console=console or Console(highlight=False), auto_refresh=False)

    async def __aenter__(self) -> Self:
        self._live.start()
        return await super().__aenter__()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await super().__aexit__(exc_type, exc, traceback)
            self.health(self._group.health())
        finally:
            self._live.stop()

    def event(self, event: ConsumerEvent) -> None:
        self._events.append(event)

    def health(self, healths: tuple[Health, ...]) -> None:
        self._live.update(Stacked(self._table(healths), *self._event_lines()), refresh=True)

    def _table(self, healths: tuple[Health, ...]) -> Table:
        table = Table(box=SIMPLE_HEAD, expand=True)
        table.add_column("Stream", ratio=3, overflow="fold")
        table.add_column("Alignment", width=14)
        table.add_column("Records", width=11, justify="right")
        table.add_column("Read delay", width=17)
        table.add_column("Remarks", ratio=5, overflow="fold")
        for health in healths:
            if not health.streams:
                table.add_row(
                    plain_text(health.consumer),
                    Text(health.state),
                    f"{health.intake.accepted:,}" if health.intake else "",
                    "",
                    plain_text(*_remarks(health)),
                )
            for stream in health.streams:
                table.add_row(*self._cells(health, stream))
        return table

    def _cells(self, health: Health, stream: StreamHealth) -> tuple[Text, ...]:
        aligned = Text(
            f"{stream.phase}\nattempt {stream.attempt}",
            style="green" if stream.phase is Phase.ALIGNED else "yellow",
        )
        if not stream.connected:
            over = health.state in (ConsumerState.STOPPED, ConsumerState.FAILED)
            aligned.append(f"\n{health.state if over else 'no connection'}", style="yellow")
        rate = self.records_per_s(health.consumer, stream)
        # The compaction delay and the tombstone retention: beyond them a lag loses something.
        limits = f"{duration(stream.compaction_delay_s)} / {duration(stream.tombstone_retention_s)}"
        delay = f"{duration(stream.read_delay_s)}\nof {limits}\n{stream.fidelity}"
        remarks = [f"{kind} × {count:,}" for kind, count in sorted(stream.deviations.items())]
        remarks += [f"{stream.unreadable:,} in quarantine"] if stream.unreadable else []
        remarks += [f"no progress: {stream.no_progress}"] if stream.no_progress else []
        remarks += [stream.last_error] if stream.last_error else []
        remarks += [f"left {health.left}"] if health.left else []
        remarks += _pair_remarks(health)
        return (
            plain_text(health.consumer, stream.stream),
            aligned,
            Text(f"{stream.records:,}\n{rate:,.0f}/s"),
            Text(delay, style=_FIDELITY_STYLES[stream.fidelity]),
            plain_text(*remarks),
        )

    def _event_lines(self) -> list[Text]:
        lines: list[Text] = []
        for event in self._events:
            at, about = moment(event.at_us)[11:], event.stream or event.consumer
            lines.append(plain_text(f"  {at}  {about}  {event.kind}: {event.text}"))
            lines[-1].no_wrap, lines[-1].overflow = True, "ellipsis"
        return lines


def _remarks(health: Health) -> list[str]:
    """Remarks about a consumer without streams: its pair, its intake, its error."""
    lines, intake = _pair_remarks(health), health.intake
    if intake is not None:
        lines += [f"listens at {intake.address}"] if intake.address else []
        lines += [f"{intake.duplicates:,} duplicates, {intake.refused:,} refused"]
        lines += [f"{kind} × {count:,}" for kind, count in sorted(intake.deviations.items())]
        if intake.blocked:
            lines += [f"{len(intake.blocked):,} blocked, the first: {intake.blocked[0]}"]
    return lines + [health.error] * bool(health.error)


def _pair_remarks(health: Health) -> list[str]:
    """Which process of a pair consumes, as text."""
    if health.pair is None:
        return []
    holder = health.pair.holder or "nobody"
    return [f"{health.pair.role}; lease held by {holder}, epoch {health.pair.epoch}"]


def plain_text(*lines: str) -> Text:
    """Lines from a peer as rich text: no markup, no control characters."""
    return Text("\n".join(map(plain, lines)))
