"""What was observed of a peer, event by event: the trace that the rules of conformance judge. Pure.

An event holds what came over the wire and when, and never what we sent to log in.
"""

from __future__ import annotations

import msgspec

__all__ = [
    "ConnectionClosed",
    "ConnectionOpened",
    "ConnectionRefused",
    "Event",
    "MessageReceived",
    "MessagesSkipped",
    "PongSent",
    "PongsWithheld",
    "ReadingPaused",
    "ReadingResumed",
    "RequestAnswered",
    "RequestReceived",
    "ResendRequested",
    "ResponseReceived",
]


class ConnectionOpened(msgspec.Struct, frozen=True, tag="opened"):
    """A connection to a stream was opened."""

    at_us: int
    """Microseconds since 1970, by our clock."""
    connection: int
    """Counts the connections of the trace."""
    stream: str
    """The identity of the stream, as its provider states it."""
    start: str = ""
    """The token behind which it is to begin, `latest`, or empty: at the oldest record."""
    asked_us: int = 0
    """When we asked for it; 0: that is not known."""


class ConnectionRefused(msgspec.Struct, frozen=True, tag="refused"):
    """The peer refused to open a connection to a stream."""

    at_us: int
    stream: str
    start: str
    """See `ConnectionOpened`."""
    status: int
    """Of HTTP."""


class MessageReceived(msgspec.Struct, frozen=True, tag="frame"):
    """A whole message came over a connection."""

    at_us: int
    connection: int
    content: bytes


class ConnectionClosed(msgspec.Struct, frozen=True, tag="closed"):
    """A connection was closed, by either side."""

    at_us: int
    connection: int
    reason: str = ""
    by_us: bool = False
    """Whether we have closed it, for whatever reason; else the peer, or what is between."""


class PongSent(msgspec.Struct, frozen=True, tag="pong"):
    """We sent a Pong that nobody had asked for: it keeps an idle connection open."""

    at_us: int
    connection: int


class PongsWithheld(msgspec.Struct, frozen=True, tag="withheld"):
    """From here on we send no Pong on a connection."""

    at_us: int
    connection: int


class ReadingPaused(msgspec.Struct, frozen=True, tag="paused"):
    """We read nothing of a connection, as a client does that is too slow."""

    at_us: int
    connection: int


class ReadingResumed(msgspec.Struct, frozen=True, tag="resumed"):
    """We read a connection again, after a pause."""

    at_us: int
    connection: int
    backed_up: bool = True
    """Whether so much had come that we let it stand: else its sender has felt no slow client."""


class MessagesSkipped(msgspec.Struct, frozen=True, tag="skipped"):
    """Messages of a connection came that are not in the trace."""

    at_us: int
    connection: int
    """0: of any."""
    messages: int = 0
    """How many; 0: that is not known, or was told before."""


class ResponseReceived(msgspec.Struct, frozen=True, tag="answered"):
    """A reading of ours was answered."""

    at_us: int
    path: str
    """The path of the resource, without a query."""
    status: int
    content: bytes
    ahead_us: int = 0
    """The peer's clock minus ours, by its Date headers; 0 where it is less than they can show."""


class RequestReceived(msgspec.Struct, frozen=True, tag="received"):
    """A numbered request of a sender came."""

    at_us: int
    session: str
    """What numbers are counted in: a subscription, a sequence, a group, a thread."""
    number: int | None
    """None: it has none that can be read."""
    digest: str
    """The same for requests that state the same."""
    content: bytes


class RequestAnswered(msgspec.Struct, frozen=True, tag="replied"):
    """The last request with this number got our answer."""

    at_us: int
    session: str
    number: int | None
    confirmed: bool
    """Whether it was confirmed; else it got a fault."""
    reason: str = ""
    """Why it got a fault, as we stated it."""
    content: bytes = b""
    """The envelope of our answer, where it has one."""


class ResendRequested(msgspec.Struct, frozen=True, tag="asked"):
    """We asked the sender for messages that are missing."""

    at_us: int
    session: str
    ranges: tuple[tuple[int, int], ...]
    """Of numbers, both ends included."""


Event = (
    ConnectionOpened
    | ConnectionRefused
    | MessageReceived
    | PongSent
    | PongsWithheld
    | ReadingPaused
    | ReadingResumed
    | ConnectionClosed
    | MessagesSkipped
    | ResponseReceived
    | RequestReceived
    | RequestAnswered
    | ResendRequested
)
"""Any event of a trace."""
