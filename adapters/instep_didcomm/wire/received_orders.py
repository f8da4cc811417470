"""The gap detectors of DIDComm's `received_orders`: built from what we received, and compared with
what we sent.
"""

from __future__ import annotations

from itertools import islice

import msgspec

from instep.errors import InstepError
from instep.model.ranges import Ranges
from instep.sequencing.claims import Claims

__all__ = ["GAPS_LIMIT", "GapDetector", "ReceivedOrdersError", "detect", "reported"]

GAPS_LIMIT = 1_000
"""The most missing numbers that one detector lists: the list has no ranges, and a sender could jump
far ahead. The lowest are listed, as if no number after them was received; the others follow when
these are filled.
"""


class ReceivedOrdersError(InstepError, ValueError):
    """A peer's detector contradicts itself or what we sent; it changes nothing."""

    code = "received-orders"


class GapDetector(msgspec.Struct, frozen=True):
    """One element of `received_orders`, as on the wire."""

    id: str
    """DID of the party that sent the messages."""
    last: int
    """The highest `sender_order` received from it; 0 if none was."""
    gaps: list[int] = []
    """The missing numbers below `last`, ascending."""


def detect(party: str, claims: Claims) -> GapDetector:
    """The gap detector for a party's messages. Cancelled numbers are not gaps.

    `last` is the highest number ever received, whatever became of its message: it does not go back.
    Only if more than `GAPS_LIMIT` numbers are missing, it is truncated together with the list,
    because a peer counts every number up to `last` that is not listed as received.
    """
    first_number, last = claims.settings.first_number, claims.highest
    if last is None:
        return GapDetector(party, first_number - 1)
    settled = claims.acknowledged() | claims.cancelled()
    missing = settled.gaps(first_number, last - 1)
    numbers = (number for low, high in missing for number in range(low, high + 1))
    gaps = list(islice(numbers, GAPS_LIMIT + 1))
    if len(gaps) > GAPS_LIMIT:
        last = gaps[-1]
        while gaps and gaps[-1] == last:
            gaps.pop()
            last -= 1
    return GapDetector(party, last, gaps)


def reported(detector: GapDetector, sent_last: int, first_number: int = 1) -> tuple[Ranges, Ranges]:
    """Compare a peer's detector with the numbers `first_number`…`sent_last` that we sent. Returns
    the numbers that it has received, and those that it is missing.

    A list of `GAPS_LIMIT` numbers may have been truncated by a peer that did not truncate `last`
    with it, so nothing is concluded about numbers after its end. Raises `ReceivedOrdersError`.
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
