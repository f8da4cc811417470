"""The knobs of a numbered sequence, with the reasons for their defaults. Everything that could grow
is bounded here.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from instep.model.limits import Seconds
from instep.sequencing.gaps import GapPolicy, LastResort

__all__ = ["MAX_MESSAGE_NUMBER", "FaultPolicy", "IncompleteBehavior", "SequencerSettings"]


MAX_MESSAGE_NUMBER = 2**63 - 1
"""The highest MessageNumber of WS-ReliableMessaging 1.1; a database's big integer too."""


class FaultPolicy(StrEnum):
    """What a number that was answered with a fault means to those that follow it."""

    SKIP = "skip"
    """They are delivered without it, unless other content came under it before its turn."""
    WAIT = "wait"
    """It is missing as if it had never come: the gap's policy holds."""
    FAIL = "fail"
    """The sequence fails (WS-Reliability: GroupAborted)."""


class IncompleteBehavior(StrEnum):
    """What is done with messages behind a gap when the sequence is closed (WS-RM 1.1
    IncompleteSequenceBehavior).
    """

    DELIVER = "deliver"
    """They are delivered, and the gap is reported as lost (NoDiscard)."""
    DISCARD = "discard"
    """They are discarded and reported (DiscardFollowingFirstGap)."""


class SequencerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one scope is sequenced. Adapters set what their protocol fixes."""

    first_number: int = 1
    """WS-Reliability counts from 0, the others from 1."""
    max_number: int = MAX_MESSAGE_NUMBER
    gap_policy: GapPolicy = GapPolicy.RESEND
    gap_deadline_s: float = 5.0
    """Longest wait for a missing number before the policy acts; 0: at once."""
    gap_repeat_s: Seconds = 5.0
    """Time between two actions of the policy."""
    gap_attempts: int = 3
    """How often WAIT lets the time pass, or RESEND asks, before the last resort."""
    gap_last_resort: LastResort = LastResort.FAIL
    """Losing a message silently is the worst outcome, so it must be chosen."""
    fault_policy: FaultPolicy = FaultPolicy.SKIP
    incomplete: IncompleteBehavior = IncompleteBehavior.DELIVER
    acknowledge_buffered: bool = True
    """Whether a message is acknowledged when it is kept (WS-RM, WS-Reliability Rel16) or only when
    its turn to be delivered has come (WS-Reliability 1.1).
    """
    limit_messages: int = 10_000
    """Most messages that are held behind a gap; the next one is refused (S8) …"""
    limit_bytes: int = 64 * 1024 * 1024
    """… and most bytes of them."""
    limit_gaps: int = 10_000
    """Most ranges of numbers remembered for good; a sequence with more holes has failed."""
