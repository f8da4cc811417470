"""The duties of a Sending RMP, judged by its envelopes and our answers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

from instep.conformance import (
    Event,
    RequestAnswered,
    RequestReceived,
    RuleBook,
    UnjudgedClause,
)
from instep.conformance.senders import (
    MessageRefused,
    MessageSent,
    NumbersAcknowledged,
    RequestChecked,
    SenderObserver,
    SenderRule,
    Step,
    sender_rules,
)
from instep_soap import Envelope, SoapFaultError, read_envelope
from instep_wsr.wire.decoder import read_headers
from instep_wsr.wire.faults import RmFaultError
from instep_wsr.wire.messages import Request
from instep_wsr.wire.names import WSR, wsr_name

__all__ = ["wsr_rules"]

_MAX_GROUPS: Final = 1_000
_ORDERED: Final = "order-features"
_SAME: Final = "group-parameters"
_UNDERSTOOD: Final = "must-understand"
_TRUE: Final = frozenset({"1", "true"})
_FINAL: Final = ("GroupAborted", "InvalidMessageParameters")
"""Faults after which no copy is accepted."""


class _SenderObserver(SenderObserver):
    """Reads envelopes. A group ends by time, or by its last message: nothing closes it."""

    first_number = 0
    closes = False

    def __init__(self) -> None:
        super().__init__()
        self._groups: OrderedDict[str, tuple[int, float | None, bool]] = OrderedDict()
        """What the first message of a group states of it."""

    def steps(self, event: Event) -> Iterator[tuple[Step, bytes]]:
        """See `SenderObserver`."""
        match event:
            case RequestReceived():
                for step in self._read_request(event.content):
                    yield step, event.content
            case RequestAnswered() if event.content:
                for step in _read_answer(event.content):
                    yield step, event.content
            case _:
                pass

    def _read_request(self, content: bytes) -> Iterator[Step]:
        try:
            envelope = read_envelope(content)
            request = read_headers(envelope).request
        except (SoapFaultError, RmFaultError) as error:
            # Whatever a stranger sends to the address is no mistake of a sender.
            if WSR.encode() in content:
                yield RequestChecked("well-formed", error.message)
            return
        if request is None:
            return
        yield RequestChecked("well-formed")
        yield RequestChecked(_UNDERSTOOD, _not_understood(envelope))
        if request.message_order:
            yield RequestChecked(_ORDERED, _lacks(request))
        if request.number is None:
            return
        yield RequestChecked(_SAME, self._differs(request))
        yield MessageSent(
            sequence=request.group_id,
            number=request.number,
            content=blake2b(envelope.content(), digest_size=16).hexdigest(),
            headers=f"{request.expires_at_us} {request.pattern} {request.ack_requested}",
            last=request.last,
        )

    def _differs(self, request: Request) -> str:
        stated = request.group_expires_at_us, request.group_max_idle_s, request.message_order
        first = self._groups.setdefault(request.group_id, stated)
        if len(self._groups) > _MAX_GROUPS:
            self._groups.popitem(last=False)
        return "" if stated == first else f"{request.group_id} was stated otherwise before"


def _not_understood(envelope: Envelope) -> str:
    name, must = wsr_name("Request"), envelope.version.name("mustUnderstand")
    stated = [block.get(must, "").strip() for block in envelope.headers if block.tag == name]
    return "" if _TRUE.issuperset(stated) else "the Request header has no mustUnderstand"


def _lacks(request: Request) -> str:
    needed = {
        "AckRequested": request.ack_requested,
        "DuplicateElimination": request.duplicate_elimination,
        "SequenceNum": request.number is not None,
    }
    missing = [name for name, there in needed.items() if not there]
    return f"MessageOrder without {' and '.join(missing)}" if missing else ""


def _read_answer(content: bytes) -> Iterator[Step]:
    acknowledged: dict[str, list[tuple[int, int]]] = {}
    for block in read_envelope(content).headers:
        if block.tag != wsr_name("Response"):
            continue
        for group in block:
            name = group.get("groupId") or ""
            for one in group.iter(wsr_name("ReplyRange")):
                pair = (int(one.get("from") or 0), int(one.get("to") or 0))
                code = (one.get("fault") or "").rpartition(":")[2]
                if not code:
                    acknowledged.setdefault(name, []).append(pair)
                elif pair[0] == pair[1]:
                    yield MessageRefused(name, pair[0], code in _FINAL)
    for name, pairs in acknowledged.items():
        yield NumbersAcknowledged(name, pairs)


_ROWS: Final = (
    SenderRule(
        duty="well-formed",
        text="The headers of WS-Reliability are as its schema has them.",
        clause="WS-Reliability 1.1, 4.2",
        provoke="Let the sender send anything.",
        why="What cannot be read is refused with a fault, and its number stays missing.",
        right='<wsrm:SequenceNum number="3"/>',
        wrong='<wsrm:SequenceNum number="three"/>',
    ),
    SenderRule(
        duty=_UNDERSTOOD,
        text="The Request header must be understood.",
        clause="WS-Reliability 1.1, 4.2",
        provoke="Let the sender send a message.",
        why="A peer without WS-Reliability delivers the message all the same, twice and in any"
        " order, and its sender waits for acknowledgements that never come.",
        right='<wsrm:Request s:mustUnderstand="1">',
        wrong="<wsrm:Request>",
    ),
    SenderRule(
        duty=_ORDERED,
        text="MessageOrder comes with AckRequested, DuplicateElimination and SequenceNum.",
        clause="WS-Reliability 1.1, 4.2.7; Rel16, 1",
        provoke="Let the sender ask for order.",
        why="Order without them cannot be kept: a message is refused, and the group stops.",
        right="AckRequested, DuplicateElimination, MessageOrder",
        wrong="MessageOrder alone",
    ),
    SenderRule(
        duty=_SAME,
        text="All messages of a group state the same of the group.",
        clause="WS-Reliability 1.1, 4.2.1.2",
        provoke="Let the sender send two messages of a group.",
        why="When a group ends, and whether it is ordered, would depend on what came first.",
        right="groupMaxIdleDuration PT1H in each message",
        wrong="groupMaxIdleDuration PT1H, then PT2H",
    ),
    SenderRule(
        duty="content-repeated",
        text="A message that is sent again has the same content.",
        clause="WS-Reliability 1.1, 2.1; Rel16, 5",
        provoke="Lose the answer to a message, so that it is sent again.",
        why="A receiver that has the first content removes the second as a duplicate: it is lost.",
        right="message 3 twice, with the same Body",
        wrong="message 3 twice, with other values",
    ),
    SenderRule(
        duty="headers-repeated",
        text="A message that is sent again has the same ExpiryTime and ReplyPattern.",
        clause="WS-Reliability 1.1, 2.1",
        should=True,
        provoke="Lose the answer to a message, so that it is sent again.",
        why="By its ExpiryTime a receiver decides whether a message is still of use.",
        right="message 3 twice, with one ExpiryTime",
        wrong="message 3 twice, with a later ExpiryTime",
    ),
    SenderRule(
        duty="none-beyond-last",
        text="No number is higher than that of the last message.",
        clause="WS-Reliability 1.1, 4.2.1.2 (last)",
        provoke="Let the sender complete a group.",
        why="The receiver has completed the group, and refuses it.",
        right='0, 1, 2 with last="true"',
        wrong='0, 1 with last="true", 2',
    ),
    SenderRule(
        duty="sent-again",
        text="What acknowledgements show to be missing is sent again within 30 s.",
        clause="WS-Reliability 1.1, 2.1 (guaranteed delivery)",
        should=True,
        provoke="Lose a message.",
        why="A message that its sender forgets is lost, and all behind it wait for nothing.",
        right="acknowledged 0, 2; then 1",
        wrong="acknowledged 0, 2; 1 never comes",
    ),
    SenderRule(
        duty="gives-up",
        text="A message that was refused for good is not sent again.",
        clause="WS-Reliability 1.1, 4.4",
        should=True,
        provoke="Abort a group, by letting a message of it expire.",
        why="It costs both sides, and never succeeds.",
        right="GroupAborted; a new group",
        wrong="GroupAborted; the same message again and again",
    ),
)


_UNJUDGED: Final = (
    UnjudgedClause(
        "Rel16; WS-Reliability 1.1, 4.2.1",
        "All messages that are to be delivered in order have one groupId.",
        "Only the application knows which of them belong together.",
    ),
    UnjudgedClause(
        "Rel16; WS-Reliability 1.1, 4.2.1.2",
        "Numbers begin at 0 and grow by 1 in the order of delivery.",
        "A number that never comes may have been lost on its way. Where its sender is told of it"
        " and does not send it, `wsr-sent-again` names it. What order was meant, it alone knows.",
    ),
    UnjudgedClause(
        "WS-Reliability 1.1, 4.2.1",
        "No groupId is used twice.",
        "A group that is removed is forgotten; while it is there, what comes is part of it.",
    ),
    UnjudgedClause(
        "WS-Reliability 1.1, 4.2.2",
        "Nothing is sent again behind its ExpiryTime.",
        "That is a time of the sender's clock, which nothing in a message states.",
    ),
    UnjudgedClause(
        "WS-Reliability 1.1, 4.3",
        "A sender with the pattern Poll asks for its acknowledgements.",
        "It may do so at any time until its messages expire.",
    ),
)


def wsr_rules() -> RuleBook:
    """The rules of a Sending RMP."""
    return sender_rules("wsr", "Senders of WS-Reliability", _ROWS, _SenderObserver, _UNJUDGED)
