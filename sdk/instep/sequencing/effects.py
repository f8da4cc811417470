"""What a sequencer decided: what to keep, to hand over, to answer and to do. Plain data."""

from __future__ import annotations

import msgspec

from instep.model.messages import MessageHeader
from instep.sequencing.transitions import Refusal

__all__ = [
    "AskResend",
    "Decision",
    "RealignSequence",
    "ReportFault",
    "ReportLoss",
    "SequenceEffect",
    "SequenceFailed",
]


Pairs = list[tuple[int, int]]
"""Ranges of numbers `(low, high)`, both ends included."""


class AskResend(msgspec.Struct, frozen=True):
    """Ask the sender for these numbers (Nack, `received_orders`)."""

    missing: Pairs


class RealignSequence(msgspec.Struct, frozen=True):
    """Obtain by other means the state that the missing numbers stood for, then `reset` or
    `give_up`; asked again until then.
    """

    missing: Pairs


class ReportLoss(msgspec.Struct, frozen=True):
    """Tell the operator: delivery goes on without these numbers."""

    lost: Pairs
    reason: str


class ReportFault(msgspec.Struct, frozen=True):
    """Tell the sender that these numbers will not be delivered, acknowledged or not (S6).

    `Sequencer.faulted` goes on saying so, for who asks later.
    """

    faulted: Pairs
    reason: Refusal


class SequenceFailed(msgspec.Struct, frozen=True):
    """Tell sender and operator that the sequence has failed."""

    reason: str


SequenceEffect = AskResend | RealignSequence | ReportLoss | ReportFault | SequenceFailed


class Decision(msgspec.Struct):
    """The result of one call.

    Forget `dropped`, keep `accepted` and release `deliver`, in this order (new content may replace
    what has expired), in the transaction that stores `Sequencer.checkpoint`; answer and carry out
    `effects` after it (S3).
    """

    accepted: list[MessageHeader] = []
    """New, to be made durable; those that are also in `deliver` need no place in the inbox."""
    deliver: list[int] = []
    """Numbers whose turn has come, in order."""
    dropped: list[int] = []
    """Numbers that were kept and will never be delivered: expired, faulted, discarded."""
    duplicates: list[MessageHeader] = []
    """Received before: acknowledge again, do not deliver again (S1)."""
    deviations: list[MessageHeader] = []
    """Those of `duplicates` that have other content than before, without a fault (S7)."""
    refused: list[tuple[MessageHeader, Refusal]] = []
    effects: list[SequenceEffect] = []
