"""What `instep run` prints: a live table for people, JSON lines for machines."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from types import TracebackType
from typing import Final, Self

import msgspec
from rich.console import Console, RenderableType
from rich.live import Live

from instep.cli.live_screen import live_screen, stream_lines
from instep.cli.log_lines import tell_left_out
from instep.cli.output import json_bytes, json_line, stamp
from instep.runtime.group import Group
from instep.runtime.health import ConsumerEvent, Health, StreamHealth
from instep.runtime.lifecycle import Service
from instep.runtime.sampling import SUMMARY_EVERY_S, EventSampler

__all__ = ["LinesView", "LiveView", "View"]

_REFRESH_S: Final = 0.25
_EVENTS_KEPT: Final = 50
_LAST_EVENTS_S: Final = 0.5


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
        self._samplers = {one.name: EventSampler() for one in group.consumers}
        self._recent: deque[ConsumerEvent] = deque(maxlen=_EVENTS_KEPT)

    @property
    def recent(self) -> list[dict[str, str | int]]:
        """The newest events that were shown, in order, as their JSON lines have them."""
        return [_line_of(event) for event in self._recent]

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
        if exc_type in (None, asyncio.CancelledError):  # else the output may be gone
            self._tell_left_out(after_s=0.0)

    def follow(self, consumer: Service) -> None:
        """Follow a consumer that is added; call it before it starts."""
        self._samplers[consumer.name] = EventSampler()
        self._followers = [one for one in self._followers if not one.done()]
        self._followers.append(asyncio.create_task(self._follow(consumer)))

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
            self._tell_left_out()
            self.health(self._group.health())
            if not following:
                # All have failed: waiting for the group raises the reason.
                await asyncio.sleep(self._period_s)

    async def _follow(self, consumer: Service) -> None:
        sampler = self._samplers[consumer.name]
        async for event in consumer.events():
            size, received = self.size_of(event), consumer.received_bytes
            if sampler.admits(event.kind, size, received, time.monotonic()):
                self._recent.append(event)
                self.event(event)

    def _tell_left_out(self, after_s: float = SUMMARY_EVERY_S) -> None:
        """Tell how many events were not told, and show them as events of the kind `left-out`."""
        tell_left_out()
        now_s, at_us = time.monotonic(), time.time_ns() // 1_000
        for consumer in self._group.consumers:
            sampler = self._samplers[consumer.name]
            received = consumer.received_bytes
            for one in sampler.left_out(now_s, after_s):
                text = f"{one.count:,} more of {one.kind} in the last {one.for_s:.0f} s"
                event = ConsumerEvent(at_us, consumer.name, "", "left-out", text)
                if sampler.admits_summary(one.kind, self.size_of(event), received, now_s):
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

    def size_of(self, event: ConsumerEvent) -> int:  # noqa: ARG002 - a screen does not grow
        """The bytes that an event adds to a log."""
        return 0

    @abstractmethod
    def health(self, healths: tuple[Health, ...]) -> None:
        """Show the health of all consumers."""


class LinesView(View):
    """Prints one JSON object a line: `event` is the kind of an event, or `health`."""

    def event(self, event: ConsumerEvent) -> None:
        json_line(_line_of(event), flush=True)

    def size_of(self, event: ConsumerEvent) -> int:
        return len(json_bytes(_line_of(event))) + 1

    def health(self, healths: tuple[Health, ...]) -> None:
        at = stamp(time.time_ns() // 1_000)
        judged = {
            (line.consumer, line.stream): line for line in stream_lines(healths, self.records_per_s)
        }
        for health in healths:
            streams = []
            for stream in health.streams:
                line = judged[health.consumer, stream.stream]
                streams.append(
                    {
                        **msgspec.to_builtins(stream),
                        "records_per_s": line.records_per_s,
                        "trouble": line.trouble.name.lower(),
                        "state": line.state,
                        "stale": line.stale,
                    }
                )
            json_line(
                {
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
                },
                flush=True,
            )


def _line_of(event: ConsumerEvent) -> dict[str, str | int]:
    return {
        "at": stamp(event.at_us),
        "event": event.kind,
        "consumer": event.consumer,
        "stream": event.stream,
        "text": event.text,
        **event.ids,
    }


class LiveView(View):
    """Shows a screen that is renewed in place (`live_screen`), and leaves the last one behind."""

    def __init__(self, group: Group, console: Console | None = None) -> None:
        super().__init__(group, _REFRESH_S)
        self._console = console or Console(highlight=False)
        # The screen of its own is written over as a whole, so that nothing is left of it when the
        # terminal gets another size. Refreshed by `health` alone: a thread would read what the loop
        # is changing.
        self._live = Live(console=self._console, auto_refresh=False, screen=True)

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
        finally:
            self._live.stop()
        self._console.print(self._screen(self._group.health()))

    def event(self, event: ConsumerEvent) -> None:
        """It is shown with the next health."""

    def health(self, healths: tuple[Health, ...]) -> None:
        self._live.update(self._screen(healths), refresh=True)

    def _screen(self, healths: tuple[Health, ...]) -> RenderableType:
        width, height = self._console.size
        lines = stream_lines(healths, self.records_per_s)
        return live_screen(lines, tuple(self._recent), width, height)
