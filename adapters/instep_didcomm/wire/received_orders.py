"""The gap detectors of DIDComm's `received_orders`: made of what we received, and read against what
we sent.
"""

from __future__ import annotations

from itertools import islice

import msgspec

from instep.errors import InstepError
from instep.model.ranges import Ranges

__all__ = ["GAPS_LIMIT", "GapDetector", "ReceivedOrdersError", "detect", "reported"]

GAPS_LIMIT = 1_000
"""Most missing numbers that one detector lists: the list has no ranges, and a sender could jump far
ahead. The lowest are listed; the others follow when these are plugged.
"""


class ReceivedOrdersError(InstepError, ValueError):
    """A detector of a peer that contradicts itself or what we sent; nothing was concluded."""

    code = "received-orders"


class GapDetector(msgspec.Struct, frozen=True):
    """One element of `received_orders`, as on the wire."""

    id: str
    """DID of the party whose messages are meant."""
    last: int
    """Biggest `sender_order` seen from it; 0 when none was."""
    gaps: list[int] = []
    """Those below `last` that were not seen, rising."""


def detect(party: str, received: Ranges, unwanted: Ranges, first_number: int) -> GapDetector:
    """What we say of a party's messages. Numbers in `unwanted` (cancelled) are no gaps."""
    last = received.last
    if last is None:
        return GapDetector(party, first_number - 1)
    gaps = (
        number
        for low, high in received.gaps(first_number, last)
        for first, end in unwanted.gaps(low, high)
        for number in range(first, end + 1)
    )
    return GapDetector(party, last, list(islice(gaps, GAPS_LIMIT)))


def reported(detector: GapDetector, sent_last: int, first_number: int = 1) -> tuple[Ranges, Ranges]:
    """What a peer's detector says of the numbers `first_number`…`sent_last` that we sent: those it
    has seen, and those it has not.

    A list that is as long as `GAPS_LIMIT` may be cut short, so nothing after its end is concluded.
    Raises `ReceivedOrdersError`.
    """
    gaps, last = detector.gaps, detector.last
    if not first_number - 1 <= last <= sent_last:
        raise ReceivedOrdersError(
            f"last is {last}, but the numbers sent are {first_number}-{sent_last}",
            where=f"received_orders of {detector.id}",
            hint="the peer counts another thread, or we lost our outbox",
            last=last,
            sent_last=sent_last,
        )
    if any(not first_number <= gap < last for gap in gaps):
        raise ReceivedOrdersError(
            f"gaps reach out of {first_number}-{last - 1}",
            where=f"received_orders of {detector.id}",
            hint="a gap is a number below last that was not seen",
            last=last,
            gaps=gaps[:20],
        )
    missing = Ranges.of_numbers(gaps)
    cut = len(gaps) >= GAPS_LIMIT
    known_to = max(gaps) if cut else last
    seen = Ranges.of((first_number, known_to)) if known_to >= first_number else Ranges()
    seen.subtract(missing)
    if not cut and last < sent_last:
        missing.add_range(last + 1, sent_last)
    return seen, missing
