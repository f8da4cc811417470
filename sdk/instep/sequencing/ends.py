"""How numbers end, and the record of it (S13): what became of every number, in ranges.

The sequencer emits an `EndedNumbers` with each decision that ends numbers otherwise than by
delivery; the driver stores it in the transaction of that decision. That a number was delivered
follows from the state of its sequence, so a delivery costs nothing. `resolve_ends` joins the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec

from instep.model.ranges import RangeMap, Ranges
from instep.sequencing.state import SequencerState

__all__ = [
    "UNDELIVERED",
    "DecidedBy",
    "EndedNumbers",
    "NumberEnd",
    "RecordedEnd",
    "resolve_ends",
]


class NumberEnd(StrEnum):
    """What became of a number."""

    DELIVERED = "delivered"
    """Its message was released, to the handler or to the store."""
    CANCELLED = "cancelled"
    """Its sender cancelled it: no message will be accepted under it (S5)."""
    FILLED = "filled"
    """It counts as received, and no message is delivered for it (S5)."""
    EXPIRED = "expired"
    """Its message could not be delivered before its deadline (S6)."""
    LOST = "lost"
    """No message came, and delivery went on without it."""
    FAILED = "failed"
    """Its message was accepted, and cannot be delivered."""
    REFUSED = "refused"
    """It was answered with a fault before its message was accepted (S7)."""
    SUPERSEDED = "superseded"
    """Other content came under it after a fault (S7), and is judged as any other message."""
    TRIMMED = "trimmed"
    """It ended longer ago than ends are kept one by one: only the totals tell how."""


UNDELIVERED: Final = frozenset({NumberEnd.EXPIRED, NumberEnd.FAILED})
"""Ends after which a message that was accepted goes to the dead letter."""


class DecidedBy(StrEnum):
    """Who decided the end of a number."""

    SENDER = "sender"
    RECEIVER = "receiver"
    """The policies of the sequence, or the time."""
    OPERATOR = "operator"


class EndedNumbers(msgspec.Struct, frozen=True):
    """A range of numbers that a decision has ended, both ends included."""

    low: int
    high: int
    end: NumberEnd
    reason: str
    by: DecidedBy = DecidedBy.RECEIVER
    epoch: int = 0
    """Which count of the sequence the numbers belong to: it grows with each reset."""
    told: bool = False
    """Whether the sender must be told (`ReportFault`)."""
    discarded: bool = False
    """Whether the specification lets us discard what was accepted: it is trimmed first."""


class RecordedEnd(msgspec.Struct, frozen=True, kw_only=True):
    """A range of numbers with their end, as a store has it."""

    low: int
    high: int
    end: NumberEnd
    reason: str = ""
    by: str = ""
    """A `DecidedBy`; empty: nobody decided, it was delivered as usual."""
    told: str = ""
    """Whether the sender was told by a fault: `owed`, `sent` or `not-sent`; empty: nothing is sent
    about it.
    """
    at_us: int = 0
    """When it was decided, in microseconds since 1970; 0: not recorded."""
    epoch: int = 0
    """Which count of the sequence the numbers belong to: it grows with each reset."""


def resolve_ends(
    state: SequencerState | None, held: Ranges, recorded: Iterable[RecordedEnd]
) -> list[RecordedEnd]:
    """What became of each number of a sequence, by epoch and number: of `recorded` the last counts,
    but what an operator has delivered stays so, and what was received otherwise was delivered.
    Numbers that have not ended are left out.

    `state`: None for a sequence that is forgotten; `held`: numbers buffered behind a gap.
    """
    by_epoch: dict[int, list[RecordedEnd]] = {}
    for one in recorded:
        by_epoch.setdefault(one.epoch, []).append(one)
    if state is not None:
        by_epoch.setdefault(state.epoch, [])
    resolved: list[RecordedEnd] = []
    for epoch in sorted(by_epoch):
        now = state if state is not None and state.epoch == epoch else None
        resolved += _resolve(epoch, now, held if now else Ranges(), by_epoch[epoch])
    return resolved


def _resolve(
    epoch: int, state: SequencerState | None, held: Ranges, recorded: list[RecordedEnd]
) -> list[RecordedEnd]:
    """`state`: None for a count that is over."""
    ends, replayed = RangeMap[RecordedEnd](), RangeMap[RecordedEnd]()
    delivered = Ranges()
    # What is still told one by one says more than what is trimmed, whichever was written first.
    for one in recorded:
        if one.end is NumberEnd.TRIMMED:
            ends.set_range(one.low, one.high, one)
    if state is not None:
        delivered = state.received - held
        settled = state.received | state.cancelled | state.faulted.ranges()
        trimmed_to = ends.ranges().last or 0
        ends.subtract(Ranges.of(*settled.gaps(state.next_number, trimmed_to)))
    for one in recorded:
        if one.end is NumberEnd.TRIMMED:
            continue
        if one.end is NumberEnd.SUPERSEDED:
            ends.remove(one.low, one.high)
        elif one.end is not NumberEnd.DELIVERED:
            ends.set_range(one.low, one.high, one)
        elif one.by == DecidedBy.OPERATOR:
            replayed.set_range(one.low, one.high, one)
        else:
            # What the state said before it told of another count, or was forgotten.
            delivered.add_range(one.low, one.high)
    # A sender may cancel what has ended; what an operator delivered of it before stays delivered.
    for low, high, one in replayed.items():
        ends.set_range(low, high, one)
    ends.subtract(held)
    for low, high in (delivered - ends.ranges()).pairs():
        ends.set_range(low, high, RecordedEnd(low=low, high=high, end=NumberEnd.DELIVERED))
    return [
        msgspec.structs.replace(one, low=low, high=high, epoch=epoch)
        for low, high, one in ends.items()
    ]
