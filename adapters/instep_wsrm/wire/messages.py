"""The content of an RM envelope, as data. Ranges are `(low, high)`, both ends included."""

from __future__ import annotations

import msgspec
from lxml.etree import _Element

from instep_soap import EndpointReference
from instep_wsrm.wire.names import RmVersion

__all__ = [
    "AckRequest",
    "Acknowledgement",
    "CloseSequence",
    "CreateSequence",
    "NumberRanges",
    "Offer",
    "Pairs",
    "RmMessage",
    "SequenceHeader",
    "TerminateSequence",
]

Pairs = list[tuple[int, int]]


class SequenceHeader(msgspec.Struct, frozen=True, gc=False):
    """Sequence: the number of the message that it travels with."""

    identifier: str
    number: int | None
    """None: it has only ranges to fill."""
    last: bool = False
    """LastMessage (1.0)."""
    fill: tuple[tuple[int, int], ...] = ()
    """MessageRange within it, as the cancellation proposal describes one spelling of a fill."""


class NumberRanges(msgspec.Struct, frozen=True):
    """SequenceCancel or SequenceFill: numbers of a sequence."""

    identifier: str
    ranges: Pairs


class AckRequest(msgspec.Struct, frozen=True):
    """AckRequested."""

    identifier: str
    highest: int | None = None
    """MaxMessageNumberUsed (1.0)."""


class Acknowledgement(msgspec.Struct, frozen=True):
    """SequenceAcknowledgement, as it is sent to a source."""

    identifier: str
    ranges: Pairs = []
    nacks: list[int] = []
    final: bool = False
    element: _Element | None = None
    """As it was received."""


class Offer(msgspec.Struct, frozen=True):
    """A sequence that the source offers for the replies."""

    identifier: str
    endpoint: EndpointReference | None
    expires_s: float | None


class CreateSequence(msgspec.Struct, frozen=True):
    """The request to open a sequence."""

    acks_to: EndpointReference
    expires_s: float | None = None
    """How long it is to last; None: nothing is said, 0: for ever."""
    offer: Offer | None = None


class CloseSequence(msgspec.Struct, frozen=True):
    """The request to accept nothing more (1.1)."""

    identifier: str
    last_number: int | None = None


class TerminateSequence(msgspec.Struct, frozen=True):
    """The statement that the sequence is not used any more."""

    identifier: str
    last_number: int | None = None


class RmMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """All that an envelope says about sequences."""

    version: RmVersion | None
    """None: it says nothing about any."""
    sequence: SequenceHeader | None = None
    cancels: tuple[NumberRanges, ...] = ()
    fills: tuple[NumberRanges, ...] = ()
    ack_requests: tuple[AckRequest, ...] = ()
    acknowledgements: tuple[Acknowledgement, ...] = ()
    body: CreateSequence | CloseSequence | TerminateSequence | None = None
    """None: the body is the application's, or empty."""

    @property
    def message_alone(self) -> bool:
        """Whether nothing is said but the number of a message."""
        others = self.cancels or self.fills or self.ack_requests or self.acknowledgements
        return self.body is None and not others
