"""What a sequencer decided: what to keep, to hand over, to answer and to do. Plain data."""

from __future__ import annotations

import msgspec

from instep.model.messages import MessageHeader
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
    `Reset`). For missing numbers it is asked again until then; a number that is not missing came
    with other content than before (`ChangedContentPolicy.REALIGN`), and is asked for once.
    """

    missing: Pairs


class ReportLoss(msgspec.Struct, frozen=True, tag="loss"):
    """Tell the operator: delivery goes on without these numbers."""

    lost: Pairs
    reason: str


class ReportFault(msgspec.Struct, frozen=True, tag="fault"):
    """Tell the sender that these numbers will not be delivered, acknowledged or not (S6).

    `Sequencer.faulted` goes on saying so, for who asks later.
    """

    faulted: Pairs
    reason: Refusal


class SequenceFailed(msgspec.Struct, frozen=True, tag="failed"):
    """Tell sender and operator that the sequence has failed."""

    reason: str


class SequenceEnded(msgspec.Struct, frozen=True, tag="ended"):
    """Tell the sender that the sequence has ended by itself (SequenceTerminated, group expiry)."""

    reason: SequenceEvent
    """EXPIRED or IDLE."""


SequenceEffect = (
    AskResend | RealignSequence | ReportLoss | ReportFault | SequenceFailed | SequenceEnded
)


OwedEffect = ReportFault | SequenceFailed | SequenceEnded
"""What is owed to the peer once it is decided: the sequence does not ask for it again, so it is
stored with the decision until it was sent (S12).
"""


class Decision(msgspec.Struct):
    """The result of one call, however many events it was given (S11).

    Forget `dropped`, keep `accepted` and release `deliver`, in this order (new content may replace
    what has expired), in the transaction that stores `Sequencer.checkpoint`; answer and carry out
    `effects` after it (S3). Numbers are of the sequencer's epoch after the call; only where it
    began with a `Reset`, `dropped` are of the epoch before.
    """

    accepted: list[MessageHeader] = []
    """New, to be made durable; those that are also in `deliver` need no place in the inbox."""
    deliver: list[int] = []
    """Numbers whose turn has come, in order."""
    dropped: list[int] = []
    """Numbers that earlier decisions kept and that will never be delivered: expired, faulted,
    discarded. A message that came with this very decision is `refused` instead.
    """
    duplicates: list[MessageHeader] = []
    """Received before: acknowledge again, do not deliver again (S1)."""
    deviations: list[MessageHeader] = []
    """Those of `duplicates` that have other content than before, without a fault (S7)."""
    uncompared: list[MessageHeader] = []
    """Those of `duplicates` whose first content is not remembered any more, so that nobody knows
    whether theirs is the same. Who kept it compares, and applies `Changed` where it differs (S7).
    """
    refused: list[tuple[MessageHeader, Refusal]] = []
    effects: list[SequenceEffect] = []
