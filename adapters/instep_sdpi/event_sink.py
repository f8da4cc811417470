"""An event sink without a store: confirms reports, so that the provider goes on sending them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

import msgspec

from instep.errors import SourceError
from instep.model.position import Phase, Position
from instep.model.streams import StreamInfo
from instep.ports.source import Feed
from instep_sdpi.source import SdpiSource

__all__ = ["InjectedFault", "receive_reports"]

_RETRY_S: Final = 1.0
_REFUSED_AFTER_S: Final = 0.5
_FAULTED_NUMBER: Final = 3


class InjectedFault(msgspec.Struct):
    """A fault of ours, once, to see what the provider does: the third report is answered late."""

    refuse: bool = False
    """It is answered with a fault before, and has to come again."""
    hold_s: float = 0.0
    """It has no answer for so many seconds, and may come again."""
    done: bool = False

    @property
    def feed(self) -> dict[str, Any]:
        """The settings of the feed with which it is done."""
        answer_within_s = _REFUSED_AFTER_S if self.refuse else self.hold_s + 60
        return {"answer_within_s": answer_within_s}

    def wait_s(self, number: int) -> float:
        """Seconds to wait before the report with this number is confirmed."""
        if self.done or number < _FAULTED_NUMBER:
            return 0.0
        self.done = True
        return 2 * _REFUSED_AFTER_S if self.refuse else self.hold_s


async def receive_reports(source: SdpiSource, seconds: float, fault: InjectedFault) -> None:
    """Receive and confirm the reports of all streams for this time. Raises `SourceError` where
    nothing can be subscribed at first.
    """
    try:
        streams = await source.discover()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for stream in streams:
                    group.create_task(_receive(source, stream, fault))
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    finally:
        await source.close()


async def _receive(source: SdpiSource, stream: StreamInfo, fault: InjectedFault) -> None:
    subscribed = False
    while True:
        try:
            async with source.feed(stream, "") as feed:
                subscribed = True
                await _confirm(feed, fault)
        except SourceError:
            if not subscribed:
                raise
            await asyncio.sleep(_RETRY_S)


async def _confirm(feed: Feed, fault: InjectedFault) -> None:
    """Until the session is over."""
    feed.committed(Position(phase=Phase.ALIGNING))
    while True:
        chunk = await feed.receive()
        for record in chunk.decode().records:
            await asyncio.sleep(fault.wait_s(record.offset))
            feed.committed(Position(phase=Phase.ALIGNED, offsets={record.partition: record.offset}))
        if chunk.realign:
            return
