"""What a consumer and its worker processes tell each other: frames of msgpack over two pipes.

Not JSON: a retention may be infinite. Each frame is preceded by its length.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final, Self

import msgspec

from instep.coordination.lease import LeaseState
from instep.errors import InstepError
from instep.model.streams import StreamInfo
from instep.runtime.health import ConsumerEvent, Health
from instep.runtime.settings import ConsumerSettings

__all__ = [
    "PROCESS_SETTINGS",
    "Assignment",
    "ConsumersReport",
    "ErrorData",
    "Reconfiguration",
    "ToProcess",
    "WorkerReport",
    "as_frame",
    "read_frame",
]

PROCESS_SETTINGS: Final = frozenset(
    {"settings.kill_silent_after_s", "settings.stale_after_s", "settings.start_order"}
)
"""What a process keeps as it was started with."""
_LENGTH_BYTES: Final = 4


class Reconfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """To a process: what has changed of the configuration that it was started with."""

    settings: ConsumerSettings
    source: dict[str, Any] | None
    """The options of its source, where they have changed."""
    where: str
    """Their place in the file."""


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """To a worker: what it follows from now on."""

    streams: tuple[StreamInfo, ...]
    """The streams of all workers."""
    assigned: frozenset[str]
    """The ids of its own; they only grow."""
    lease: LeaseState | None = None
    """The lease of the consumer, under which it writes. It lasts as long as the worker."""
    reconfiguration: Reconfiguration | None = None
    """None while nothing has changed."""


class ErrorData(msgspec.Struct, frozen=True, kw_only=True):
    """A fatal error of a worker, as data."""

    code: str
    message: str
    where: str = ""
    hint: str = ""
    retriable: bool = False
    stream_only: bool = False

    @classmethod
    def of(cls, error: Exception) -> Self:
        """The error as data. One that is no `InstepError` is a mistake in a program."""
        if not isinstance(error, InstepError):
            text = f"{type(error).__name__}: {error}"[:500]
            return cls(code=InstepError.code, message=text, where="a worker process")
        return cls(
            code=error.code,
            message=error.message,
            where=error.where,
            hint=error.hint,
            retriable=error.retriable,
            stream_only=error.stream_only,
        )

    def error(self) -> InstepError:
        """The error again, of the class that has its code."""
        class_ = next((one for one in _classes() if one.code == self.code), InstepError)
        return class_(
            self.message,
            where=self.where,
            hint=self.hint,
            retriable=self.retriable,
            stream_only=self.stream_only,
        )


class WorkerReport(msgspec.Struct, frozen=True, kw_only=True):
    """From a worker: its health and what happened since the last report."""

    health: Health | None = None
    """None where it has none: its parts could not be made."""
    events: tuple[ConsumerEvent, ...] = ()
    failure: ErrorData | None = None
    """Its fatal error: this is the last report."""


class ConsumersReport(msgspec.Struct, frozen=True, kw_only=True):
    """From a process that runs all of a consumer: one or, of a tee, one for each sink. They are
    told apart by their place.
    """

    healths: tuple[Health, ...] = ()
    """Empty where there are none: their parts could not be made."""
    events: tuple[tuple[int, ConsumerEvent], ...] = ()
    """What happened since the last report, with the place of the consumer."""
    received_bytes: tuple[int | None, ...] = ()
    """See `Service.received_bytes`; what peers sent before these events."""
    aligned: frozenset[int] = frozenset()
    """Those whose `aligned` has returned …"""
    not_aligned: dict[int, ErrorData] = {}
    """… and what it raised, of others."""
    failures: dict[int, ErrorData] = {}
    """Fatal errors."""
    failure: ErrorData | None = None
    """Why the parts could not be made."""


ToProcess = Assignment | Reconfiguration
"""What a process is told while it runs."""


def as_frame(message: ToProcess | WorkerReport | ConsumersReport | bytes) -> bytes:
    """The bytes that carry a message; bytes are carried as they are."""
    content = message if isinstance(message, bytes) else msgspec.msgpack.encode(message)
    return len(content).to_bytes(_LENGTH_BYTES) + content


async def read_frame(stream: asyncio.StreamReader) -> bytes | None:
    """The content of the next frame; None where the other side has ended."""
    try:
        size = int.from_bytes(await stream.readexactly(_LENGTH_BYTES))
        return await stream.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def _classes(of: type[InstepError] = InstepError) -> Iterator[type[InstepError]]:
    for one in of.__subclasses__():
        yield one
        yield from _classes(one)
