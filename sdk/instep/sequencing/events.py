"""The events of a sequence, as data: the input of `Sequencer.apply`.

One envelope may carry several of these; they are decided as one (S11). Ranges are `(low, high)`,
both ends included, as the peer sent them: `Sequencer.apply` checks them.
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
    "Replayed",
    "Reset",
    "Resume",
    "SequencerInput",
    "Terminate",
]


class Receive(msgspec.Struct, frozen=True):
    """Messages arrived together: each is accepted, a duplicate, or refused (S1). Of two copies of a
    number the first counts.
    """

    messages: Sequence[MessageHeader]


class Cancel(msgspec.Struct, frozen=True):
    """SequenceCancel: numbers of these ranges that were not received never will be (S5). Received
    ones are acknowledged as usual. Refused once the sequence has failed or was terminated.
    """

    ranges: Pairs


class Fill(msgspec.Struct, frozen=True):
    """SequenceFill: these ranges become acknowledged and are no longer cancelled; no message will
    arrive for the numbers not received (S5). Refused once the sequence is closed: its
    acknowledgement is final; and where a range begins too far ahead (`limit_jump`).
    """

    ranges: Pairs


class Fault(msgspec.Struct, frozen=True):
    """We answer this number with a fault: it does not count as received, and other content may
    arrive for it (S7). Refused where it was delivered or filled: that cannot be undone.
    """

    number: int
    reason: Refusal


class Changed(msgspec.Struct, frozen=True):
    """The driver compared one of `Decision.uncompared` with what it kept: the content differs.
    `SequencerSettings.on_changed` sets the policy (S7).
    """

    number: int


class Announce(msgspec.Struct, frozen=True):
    """The sender has used the numbers up to `highest` (WS-RM 1.0 MaxMessageNumberUsed): those that
    did not arrive are missing from now on (S4).
    """

    highest: int


class GiveUp(msgspec.Struct, frozen=True):
    """Skip the numbers up to `through` that did not arrive (S2). They are refused from now on, and
    reported as lost. Messages buffered up to there are delivered, also in a sequence that has
    failed.
    """

    through: int
    reason: str = "given up"


class Resume(msgspec.Struct, frozen=True):
    """Go on after a failure: what is missing may come again, and what was kept follows it. Refused
    unless the sequence has failed.
    """


class Realigned(msgspec.Struct, frozen=True):
    """The state that the numbers up to `through` stand for was obtained in another way (S4).

    Numbers that did not arrive count as received: a late copy is acknowledged and not delivered,
    and nothing is reported as lost. Messages buffered up to `through` are in that state already and
    are dropped; with `deliver_buffered` they are delivered in order. Those buffered above stay.
    """

    through: int
    deliver_buffered: bool = False


class Replayed(msgspec.Struct, frozen=True):
    """The message of a number that was faulted is delivered from the dead letter (S13): the number
    counts as received from now on, and what comes under it is a copy (S1). It changes nothing for a
    number that is not faulted, or after the end.
    """

    number: int


class Last(msgspec.Struct, frozen=True):
    """`number` is the last of the sequence; lower ones are still accepted. Refused where a higher
    one was used, or another was the last.
    """

    number: int


class Close(msgspec.Struct, frozen=True):
    """Accept nothing new: the acknowledgement is final once this is committed. Messages buffered
    behind gaps are delivered, discarded or faulted, as `SequencerSettings.incomplete` sets.
    """

    last_number: int | None = None


class Terminate(msgspec.Struct, frozen=True):
    """TerminateSequence: as `Close`; copies are refused from now on."""


class Renew(msgspec.Struct, frozen=True):
    """The sequence now ends at this time, in microseconds since 1970 (S10); 0: never."""

    expires_at_us: int


class Reset(msgspec.Struct, frozen=True):
    """The sender numbers from the start again: the old numbers no longer count. Buffered messages
    go to the dead letter. Settings and attributes stay, the deadline is removed.

    It must be the first event of its envelope; anything else is a mistake of the driver
    (`AssertionError`).
    """


NumberRequest = Cancel | Fill | Fault | Changed | Announce | GiveUp | Realigned | Replayed
"""An event about some numbers of the sequence."""

EndRequest = Last | Close | Terminate | Renew | Resume | Reset
"""An event about the sequence as a whole."""

SequencerInput = Receive | NumberRequest | EndRequest
