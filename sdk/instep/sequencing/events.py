"""What may happen to a sequence, as data: the input of `Sequencer.apply`.

One envelope may say several of these; they are decided as one (S11). Ranges are `(low, high)`, both
ends included, as they came over the wire: `Sequencer.apply` checks them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from instep.model.messages import MessageHeader
from instep.sequencing.effects import Pairs
from instep.sequencing.transitions import Refusal

__all__ = [
    "Announce",
    "Cancel",
    "Changed",
    "Close",
    "EndRequest",
    "Fault",
    "Fill",
    "GiveUp",
    "Last",
    "NumberRequest",
    "Realigned",
    "Receive",
    "Renew",
    "Reset",
    "SequencerInput",
    "Terminate",
]


class Receive(msgspec.Struct, frozen=True):
    """Messages arrived together: each is accepted, a duplicate, or refused (S1). Of two copies of a
    number the first counts.
    """

    messages: Sequence[MessageHeader]


class Cancel(msgspec.Struct, frozen=True):
    """SequenceCancel: what was not received of these ranges never will be (S5). What was received
    is acknowledged as usual. Refused once the sequence has failed or was terminated.
    """

    ranges: Pairs


class Fill(msgspec.Struct, frozen=True):
    """SequenceFill: these ranges join the acknowledged ones and leave the cancelled ones; no
    message will come for those not received (S5). Refused once the sequence is closed: its
    acknowledgement is final.
    """

    ranges: Pairs


class Fault(msgspec.Struct, frozen=True):
    """We answer this number with a fault: it does not count as received, and other content may
    come under it (S7). Refused where it was delivered or filled: that cannot be undone.
    """

    number: int
    reason: Refusal


class Changed(msgspec.Struct, frozen=True):
    """The driver compared one of `Decision.uncompared` with what it kept: the content differs.
    `SequencerSettings.on_changed` says what is done (S7).
    """

    number: int


class Announce(msgspec.Struct, frozen=True):
    """The sender has used the numbers up to `highest` (WS-RM 1.0 MaxMessageNumberUsed): those that
    did not come are missing from now on.
    """

    highest: int


class GiveUp(msgspec.Struct, frozen=True):
    """Go on without the numbers up to `through` that did not come (S2); what is buffered up to
    there is delivered. They are refused from now on, and reported as lost.
    """

    through: int
    reason: str = "given up"


class Realigned(msgspec.Struct, frozen=True):
    """The state that the numbers up to `through` stand for was obtained in another way (S4).

    Those that did not come count as received, so a late copy is acknowledged and not delivered;
    nothing is reported as lost. What is buffered up to `through` is in that state already and is
    dropped, or delivered in its turn with `deliver_buffered`. What is buffered above stays.
    """

    through: int
    deliver_buffered: bool = False


class Last(msgspec.Struct, frozen=True):
    """`number` is the last of the sequence; lower ones are still accepted. Refused where a higher
    one was used, or another was the last.
    """

    number: int


class Close(msgspec.Struct, frozen=True):
    """Accept nothing new: the acknowledgement is final once this is committed. What is buffered
    behind gaps is delivered or discarded as `SequencerSettings.incomplete` says.
    """

    last_number: int | None = None


class Terminate(msgspec.Struct, frozen=True):
    """TerminateSequence: as `Close`; copies are refused from now on."""


class Renew(msgspec.Struct, frozen=True):
    """The sequence now ends at this time, in microseconds since 1970 (S10); 0: never."""

    expires_at_us: int


class Reset(msgspec.Struct, frozen=True):
    """The sender counts anew: nothing said of the old numbers holds. What is buffered is dropped,
    and reported as lost. Settings and attributes stay, the deadline goes.

    It is the first event of its envelope, or it is a mistake of the driver (`AssertionError`).
    """


NumberRequest = Cancel | Fill | Fault | Changed | Announce | GiveUp | Realigned
"""What concerns some numbers."""

EndRequest = Last | Close | Terminate | Renew | Reset
"""What concerns the sequence as a whole."""

SequencerInput = Receive | NumberRequest | EndRequest
