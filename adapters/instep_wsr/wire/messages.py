"""The content of the headers, as data. Ranges are `(low, high)`, both ends included."""

from __future__ import annotations

import msgspec

from instep_wsr.wire.names import ReplyPattern, RmFaultCode

__all__ = ["GroupReply", "Pairs", "PollRequest", "PolledGroup", "Request", "WsrHeaders"]

Pairs = list[tuple[int, int]]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Request: the place of a message in its group, and what its sender wants."""

    group_id: str
    number: int | None
    """SequenceNum/@number, from 0; None: the message is the only one of its group."""
    last: bool = False
    group_expires_at_us: int = 0
    """groupExpiryTime, in microseconds since 1970; 0: not stated."""
    group_max_idle_s: float | None = None
    """groupMaxIdleDuration, in seconds; None: not stated."""
    expires_at_us: int
    """ExpiryTime, in microseconds since 1970."""
    pattern: ReplyPattern
    reply_to: str = ""
    """ReplyTo/BareURI; only of a callback."""
    ack_requested: bool = False
    duplicate_elimination: bool = False
    message_order: bool = False


class PolledGroup(msgspec.Struct, frozen=True):
    """RefToMessageIds: the messages of a group that replies are wanted of."""

    group_id: str
    ranges: Pairs = []
    """None: the whole group."""


class PollRequest(msgspec.Struct, frozen=True):
    """PollRequest."""

    groups: list[PolledGroup]
    reply_to: str = ""
    """Where the replies go; empty: into the HTTP response."""


class WsrHeaders(msgspec.Struct, frozen=True):
    """What an envelope says about groups."""

    request: Request | None = None
    poll: PollRequest | None = None
    replies: bool = False
    """Whether there is a Response."""


class GroupReply(msgspec.Struct, frozen=True, gc=False):
    """The reply about one group: NonSequenceReply or SequenceReplies."""

    group_id: str
    sequenced: bool
    """False: the group is one message without SequenceNum."""
    acknowledged: Pairs = []
    faults: list[tuple[int, int, RmFaultCode]] = []
    """`(low, high, code)`."""

    def acknowledges(self, number: int) -> bool:
        """Whether it acknowledges this message."""
        return any(low <= number <= high for low, high in self.acknowledged)

    def __bool__(self) -> bool:
        return bool(self.acknowledged or self.faults)
