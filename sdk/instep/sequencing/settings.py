"""The settings of a numbered sequence, with the reasons for their defaults. They bound everything
that could grow.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from instep.model.limits import Count, Seconds
from instep.sequencing.gaps import GapPolicy, LastResort

__all__ = [
    "MAX_MESSAGE_NUMBER",
    "ChangedContentPolicy",
    "FaultPolicy",
    "IncompleteBehavior",
    "SequencerSettings",
    "TimeoutBehavior",
]


_Duration = Annotated[float, msgspec.Meta(ge=0.0, le=1e9)]

MAX_MESSAGE_NUMBER = 2**63 - 1
"""The highest MessageNumber of WS-ReliableMessaging 1.1; a database's big integer too."""


class FaultPolicy(StrEnum):
    """What a number that was answered with a fault means for the numbers after it (S7)."""

    SKIP = "skip"
    """They are delivered without it, unless other content arrives for it before it is next."""
    WAIT = "wait"
    """It counts as missing: the gap's policy applies."""
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
    FAULT = "fault"
    """They are discarded and reported to the sender as faults, acknowledged or not: the end is
    their deadline (S6; WS-Reliability)."""


class ChangedContentPolicy(StrEnum):
    """What is done when a received number arrives again with other content, without a fault of ours
    between (S7). A layer before us may have answered with a fault that we never saw. With every
    policy, the message is among the decision's `deviations`.
    """

    IGNORE = "ignore"
    """The first content counts."""
    REALIGN = "realign"
    """The first content counts, and the state that the number stands for is obtained anew."""
    FAIL = "fail"
    """The sequence fails."""


class TimeoutBehavior(StrEnum):
    """How a sequence ends that has expired or was idle for too long (S10)."""

    CLOSE = "close"
    """It is closed: copies are acknowledged again until it is forgotten."""
    TERMINATE = "terminate"
    """It is closed and terminated at once: copies are refused."""


class SequencerSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """How one scope is sequenced. Adapters set the values that their protocol fixes, or those that
    the peer sent when it opened the sequence (S9).
    """

    first_number: int = 1
    """WS-Reliability counts from 0, the others from 1."""
    max_number: int = MAX_MESSAGE_NUMBER
    """The highest number of the protocol: a message with a higher one is refused."""
    ordered: bool = True
    """False: a message is released at once, once, in any order (AtMostOnce and ExactlyOnce without
    InOrder). Nothing is buffered then; gaps keep their deadline and their policy.
    """
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
    on_changed: ChangedContentPolicy = ChangedContentPolicy.IGNORE
    remembered_contents: Count = 8
    """Digests of delivered messages that a copy is compared with; more of them make the state that
    each commit writes larger. What is older is reported as not compared (S7).
    """
    incomplete: IncompleteBehavior = IncompleteBehavior.DELIVER
    acknowledge_buffered: bool = True
    """Whether a message is acknowledged when it is kept (WS-RM, WS-Reliability Rel16) or only when
    its number is next and it is released (WS-Reliability 1.1).
    """
    limit_messages: int = 10_000
    """Most messages that are buffered behind a gap; the next one is refused (S8)."""
    limit_bytes: int = 64 * 1024 * 1024
    """Most bytes of the messages that are buffered behind a gap; the next one is refused (S8)."""
    limit_gaps: int = 10_000
    """Most ranges of numbers remembered for good; a sequence with more holes has failed."""
    limit_jump: Annotated[int, msgspec.Meta(ge=0)] = 1_000_000
    """How far ahead of the next number one may be; a higher one is refused. 0: any distance."""
    idle_timeout_s: _Duration = 0.0
    """The sequence ends when nothing arrived for this long (S10); 0: never."""
    on_timeout: TimeoutBehavior = TimeoutBehavior.CLOSE
    keep_ended_s: _Duration = 7 * 86_400.0
    """How long at least an ended sequence is remembered, because copies may arrive. After it the
    name is unknown again (S10).
    """
    keep_copies_s: _Duration = 30 * 86_400.0
    """How long at most an ended sequence is remembered where a message's own deadline is later than
    `keep_ended_s`: until then, copies may arrive (WS-Reliability).
    """
