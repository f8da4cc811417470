"""The decisions of a sequencer: what to store, deliver, answer and carry out. Plain data."""

from __future__ import annotations

import msgspec

from instep.model.messages import MessageHeader
from instep.sequencing.ends import EndedNumbers
from instep.sequencing.transitions import Refusal, SequenceEvent

__all__ = [
    "AskResend",
    "Decision",
    "OwedEffect",
    "RealignSequence",
    "ReportFault",
    "ReportLoss",
    "SequenceEffect",
    "SequenceEnded",
    "SequenceFailed",
]


Pairs = list[tuple[int, int]]
"""Ranges of numbers `(low, high)`, both ends included."""

REPORTED_RANGES = 256
"""Most ranges in one request or report; the lowest go first."""


class AskResend(msgspec.Struct, frozen=True, tag="ask-resend"):
    """Ask the sender for these numbers (Nack, `received_orders`)."""

    missing: Pairs


class RealignSequence(msgspec.Struct, frozen=True, tag="realign"):
    """Obtain by other means the state that these numbers stood for, then apply `Realigned` (or
    `Reset`). The effect is repeated for missing numbers until then. A number that is not missing
    arrived with other content than before (`ChangedContentPolicy.REALIGN`): it is reported once.
    """

    missing: Pairs


class ReportLoss(msgspec.Struct, frozen=True, tag="loss"):
    """Report to the operator that delivery goes on without these numbers."""

    lost: Pairs
    reason: str


class ReportFault(msgspec.Struct, frozen=True, tag="fault"):
    """Report to the sender that these numbers will not be delivered, acknowledged or not (S6).

    `Claims.faulted` keeps the same numbers for later queries.
    """

    faulted: Pairs
    reason: Refusal


class SequenceFailed(msgspec.Struct, frozen=True, tag="failed"):
    """Report to the sender and the operator that the sequence has failed."""

    reason: str


class SequenceEnded(msgspec.Struct, frozen=True, tag="ended"):
    """Report to the sender that the sequence has ended by itself (SequenceTerminated, group
    expiry; S10).
    """

    reason: SequenceEvent
    """EXPIRED or IDLE."""


SequenceEffect = (
    AskResend | RealignSequence | ReportLoss | ReportFault | SequenceFailed | SequenceEnded
)


OwedEffect = ReportFault | SequenceFailed | SequenceEnded
"""An effect that the peer must receive. The sequence emits it once, so it is stored with the
decision until it was sent (S12).
"""


class Decision(msgspec.Struct):
    """The result of one call, however many events it was given (S11).

    In the transaction that stores `Sequencer.checkpoint`, move `dropped` to the dead letter, keep
    `accepted`, release `deliver` and record `ended`, in this order: new content may replace an
    expired message. After the transaction, answer and carry out `effects` (S3). Numbers belong to
    the sequencer's epoch after the call; where the call began with a `Reset`, `dropped` belong to
    the epoch before. Each of `dropped` is among `ended`, with its reason (S13).
    """

    accepted: list[MessageHeader] = []
    """New messages, to be made durable; those also in `deliver` need no place in the inbox."""
    deliver: list[int] = []
    """Numbers to deliver now, in order of delivery."""
    dropped: list[int] = []
    """Numbers that earlier decisions kept and that will never be delivered: expired, faulted,
    discarded. A message that arrived with this same decision is in `refused` instead.
    """
    dropped_bytes: dict[int, int] = {}
    """The sizes of `dropped`: number → bytes."""
    duplicates: list[MessageHeader] = []
    """Received before: acknowledge again, do not deliver again (S1)."""
    deviations: list[MessageHeader] = []
    """Those of `duplicates` whose content differs from before, without a fault between (S7)."""
    other_headers: list[MessageHeader] = []
    """Those of `duplicates` with the content from before and other headers."""
    uncompared: list[MessageHeader] = []
    """Those of `duplicates` whose first content the sequencer no longer remembers. The driver
    compares them with the content that it kept, and applies `Changed` where it differs (S7).
    """
    refused: list[tuple[MessageHeader, Refusal]] = []
    effects: list[SequenceEffect] = []
    ended: list[EndedNumbers] = []
    """Numbers that have ended otherwise than by delivery, in the order of the decision (S13)."""
