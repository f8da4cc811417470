"""A group of messages: what its first message states, and what that means for its sequence. Pure:
no I/O, clock or randomness.

A group is the sequence of its groupId, from 0. It is ordered where its messages have MessageOrder.
A message of an ordered group that will never be delivered ends the group, because no later one may
be delivered then (GroupAborted). A message without SequenceNum is a group of its own.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

import msgspec

from instep.model.ranges import RangeMap, Ranges
from instep.sequencing.claims import Claims
from instep.sequencing.gaps import GapPolicy
from instep.sequencing.settings import (
    FaultPolicy,
    IncompleteBehavior,
    SequencerSettings,
    TimeoutBehavior,
)
from instep.sequencing.transitions import Refusal
from instep_soap import SOAP11, OpenedSequence, SoapVersion
from instep_wsr.options import DEFAULT_SEQUENCE, Acknowledge, Options
from instep_wsr.wire.faults import RmFaultError, code_of_fault
from instep_wsr.wire.messages import GroupReply, Pairs, Request
from instep_wsr.wire.names import RmFaultCode

__all__ = [
    "GroupAttributes",
    "attributes_of",
    "check_combination",
    "check_same_group",
    "deadline_us",
    "group_settings",
    "peer_of",
    "reply_of_fault",
    "reply_to_message",
    "reply_to_poll",
]

_US: Final = 1_000_000
_MOST_RANGES: Final = 256
_MAX_PEER_CHARS: Final = 255


class GroupAttributes(OpenedSequence, frozen=True, kw_only=True, omit_defaults=True):
    """What the first message of a group stated; stored with its sequence (S9)."""

    sequenced: bool = True
    """False: the group is one message without SequenceNum."""
    ordered: bool = False
    group_expires_at_us: int = 0
    group_max_idle_s: float | None = None
    reply_to: str = ""
    """Where faults are sent by themselves; empty: they wait for the next request or poll."""
    soap: str = SOAP11.namespace


def attributes_of(request: Request, soap: SoapVersion, identity: str = "") -> GroupAttributes:
    """What a message states about its group."""
    return GroupAttributes(
        sequenced=request.number is not None,
        ordered=request.message_order,
        group_expires_at_us=request.group_expires_at_us,
        group_max_idle_s=request.group_max_idle_s,
        reply_to=request.reply_to,
        soap=soap.namespace,
        certificate=identity,
    )


def group_settings(attributes: GroupAttributes, options: Options) -> SequencerSettings:
    """How the sequence of a group is kept."""
    given = options.sequence or DEFAULT_SEQUENCE
    idle_s, keep_s = given.idle_timeout_s, given.keep_ended_s
    if attributes.group_max_idle_s is not None:
        idle_s = min(idle_s, attributes.group_max_idle_s)
    if options.persist_duration_s is not None:
        # The deadlines of its messages are then earlier than the ends of their copies.
        keep_s = max(keep_s, options.max_expiry_s)
    ordered = attributes.ordered
    return msgspec.structs.replace(
        given,
        ordered=ordered,
        # Each message behind a gap has its own deadline, and that is earlier.
        gap_policy=GapPolicy.FAIL if ordered else GapPolicy.SKIP,
        gap_deadline_s=options.max_expiry_s,
        fault_policy=FaultPolicy.FAIL if ordered else FaultPolicy.SKIP,
        incomplete=IncompleteBehavior.FAULT,
        acknowledge_buffered=options.acknowledge is Acknowledge.RECEIPT,
        idle_timeout_s=idle_s,
        on_timeout=TimeoutBehavior.CLOSE,
        keep_ended_s=keep_s,
        keep_copies_s=options.max_expiry_s,
    )


def check_combination(request: Request) -> None:
    """Check that a message that wants order also wants an acknowledgement and the elimination of
    duplicates, and has a number (Rel16 step 1). Raises `RmFaultError`.
    """
    if not request.message_order:
        return
    stated = {
        "AckRequested": request.ack_requested,
        "DuplicateElimination": request.duplicate_elimination,
        "SequenceNum": request.number is not None,
    }
    missing = [name for name, there in stated.items() if not there]
    if missing:
        raise _fault(
            request, RmFaultCode.INVALID_REQUEST, f"MessageOrder without {', '.join(missing)}"
        )


def check_same_group(request: Request, known: GroupAttributes, identity: str = "") -> None:
    """Check that a message is of the sender of its group, by the name in the certificate, and
    states the same about the group as the first one. Raises `RmFaultError`.
    """
    if not known.admits(identity):
        raise _fault(request, RmFaultCode.INVALID_MESSAGE_ID, "the group is of another sender")
    if (request.number is not None) != known.sequenced:
        raise _fault(
            request,
            RmFaultCode.INVALID_MESSAGE_ID,
            "the group has messages with SequenceNum"
            if known.sequenced
            else "the group is one message without SequenceNum",
        )
    stated = (request.group_expires_at_us, request.group_max_idle_s)
    same = stated == (known.group_expires_at_us, known.group_max_idle_s)
    if not same or request.message_order != known.ordered:
        raise _fault(
            request,
            RmFaultCode.INVALID_MESSAGE_PARAMETERS,
            "MessageOrder, groupExpiryTime and groupMaxIdleDuration are the same in all messages"
            " of a group",
        )


def deadline_us(request: Request, options: Options, now_us: int) -> int:
    """Until when a message may wait for those before it: its ExpiryTime, or the end of its
    PersistentDuration (Rel16 step 3).
    """
    if options.persist_duration_s is None:
        return request.expires_at_us
    return min(request.expires_at_us, now_us + int(options.persist_duration_s * _US))


def reply_to_message(
    group_id: str,
    attributes: GroupAttributes,
    claims: Claims,
    number: int,
    *,
    ack_requested: bool,
) -> GroupReply:
    """The reply to a message: the whole range of acknowledged numbers that it is in, because it
    may have released others, and what its group reports as not delivered, the lowest first.
    """
    acknowledged: Pairs = []
    if ack_requested:
        acknowledged = [
            (low, high) for low, high in claims.acknowledged().pairs() if low <= number <= high
        ]
    return GroupReply(group_id, attributes.sequenced, acknowledged, _faults(claims.faulted()))


def reply_to_poll(
    group_id: str, attributes: GroupAttributes, claims: Claims, wanted: Pairs
) -> GroupReply:
    """The reply about the messages of some ranges; without ranges about the whole group. At most
    256 ranges of each kind, the lowest.
    """
    acknowledged, faulted = claims.acknowledged(), claims.faulted()
    if wanted:
        asked = Ranges.of(*wanted)
        acknowledged.subtract(acknowledged - asked)
        faulted.subtract(faulted.ranges() - asked)
    pairs = list(islice(acknowledged.pairs(), _MOST_RANGES))
    return GroupReply(group_id, attributes.sequenced, pairs, _faults(faulted))


def reply_of_fault(
    group_id: str, attributes: GroupAttributes, faulted: Pairs, reason: Refusal
) -> GroupReply:
    """The report that messages will not be delivered, acknowledged or not (S6)."""
    code = code_of_fault(reason)
    faults = [(low, high, code) for low, high in faulted]
    return GroupReply(group_id, attributes.sequenced, faults=faults)


def peer_of(group_id: str) -> str:
    """Who sends in a group, as its identifier states it: what follows the last ``@``
    (``mid:1@example.org``, RFC 2392), or the authority of a URL; else the identifier itself.
    """
    _, at, domain = group_id.rpartition("@")
    if at and domain:
        return domain[:_MAX_PEER_CHARS]
    _, colon, rest = group_id.partition("://")
    authority = rest.partition("/")[0].partition("?")[0] if colon else ""
    return (authority or group_id)[:_MAX_PEER_CHARS]


def _fault(request: Request, code: RmFaultCode, reason: str) -> RmFaultError:
    return RmFaultError(code, reason, request.group_id, request.number)


def _faults(faulted: RangeMap[Refusal]) -> list[tuple[int, int, RmFaultCode]]:
    items = islice(faulted.items(), _MOST_RANGES)
    return [(low, high, code_of_fault(reason)) for low, high, reason in items]
