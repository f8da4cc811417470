"""What an envelope asks of its sequences, as events of the sequencer."""

from __future__ import annotations

from collections.abc import Iterable

from instep.ports.listener import IntakeEvent
from instep.sequencing.events import Announce, Cancel, Fill
from instep_wsrm.wire.messages import RmMessage

__all__ = ["identifiers", "requests"]


def identifiers(rm: RmMessage) -> Iterable[str]:
    """The sequences that an envelope is about, the one of its message first."""
    own = [rm.sequence.identifier] if rm.sequence is not None else []
    ranges = [one.identifier for one in (*rm.cancels, *rm.fills)]
    return dict.fromkeys([*own, *ranges, *(one.identifier for one in rm.ack_requests)])


def requests(rm: RmMessage, identifier: str) -> list[IntakeEvent]:
    """What the headers ask of one sequence, beside its message."""
    cancelled = [pair for one in rm.cancels if one.identifier == identifier for pair in one.ranges]
    filled = [pair for one in rm.fills if one.identifier == identifier for pair in one.ranges]
    if rm.sequence is not None and rm.sequence.identifier == identifier:
        filled += rm.sequence.fill
    events: list[IntakeEvent] = []
    if cancelled:
        events.append(Cancel(cancelled))
    if filled:
        events.append(Fill(filled))
    used = [one.highest for one in rm.ack_requests if one.identifier == identifier and one.highest]
    if used:
        events.append(Announce(max(used)))
    return events
