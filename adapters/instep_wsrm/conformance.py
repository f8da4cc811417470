"""The duties of an RM source, judged by its envelopes and our answers."""

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
    NumbersCancelled,
    RequestChecked,
    SenderObserver,
    SenderRule,
    SequenceClosed,
    Step,
    sender_rules,
)
from instep_soap import Envelope, SoapFaultError, read_envelope
from instep_soap.addressing import read_addressing
from instep_wsrm.wire.decoder import read_rm, read_rm_headers
from instep_wsrm.wire.messages import (
    CloseSequence,
    CreateSequence,
    Offer,
    RmMessage,
    TerminateSequence,
)
from instep_wsrm.wire.names import RM10, RM11, RmVersion

__all__ = ["wsrm_rules"]

_MAX_OPEN: Final = 1_000
_CREATED: Final = "created"
_UNDERSTOOD: Final = "must-understand"
_OFFERED: Final = "offer"
_TRUE: Final = frozenset({"1", "true"})
_ENDED: Final = ("SequenceTerminated", "UnknownSequence", "SequenceClosed")
"""Faults after which no copy is accepted."""


class _SourceObserver(SenderObserver):
    """Reads envelopes."""

    def __init__(self) -> None:
        super().__init__()
        self._open: OrderedDict[int, RequestReceived] = OrderedDict()
        """Requests that are not answered yet, by number."""

    def steps(self, event: Event) -> Iterator[tuple[Step, bytes]]:
        """See `SenderObserver`."""
        match event:
            case RequestReceived():
                if event.number is not None:
                    self._open[event.number] = event
                    if len(self._open) > _MAX_OPEN:
                        self._open.popitem(last=False)
                for step in _read_request(event.content):
                    yield step, event.content
            case RequestAnswered():
                request = self._open.pop(event.number, None) if event.number is not None else None
                if request is not None:
                    yield from _read_answer(event, request)
            case _:
                pass


def _read_request(content: bytes) -> Iterator[Step]:
    try:
        envelope = read_envelope(content)
        rm = read_rm(envelope)
    except SoapFaultError as error:
        # Whatever a stranger sends to the address is no mistake of a source.
        if any(one.namespace.encode() in content for one in (RM10, RM11)):
            yield RequestChecked("well-formed", error.message)
        return
    if rm.version is None:
        return
    yield RequestChecked("well-formed")
    for one in rm.cancels:
        yield NumbersCancelled(one.identifier, one.ranges)
    for one in rm.fills:
        yield NumbersCancelled(one.identifier, one.ranges, fills=True)
    if rm.sequence is not None and rm.sequence.number is not None:
        if rm.version is not RM10:
            yield RequestChecked(_UNDERSTOOD, _not_understood(envelope, rm.version))
        yield _message(envelope, rm)
    match rm.body:
        case CreateSequence(offer=offer) if offer is not None:
            yield RequestChecked(_OFFERED, _wrong_offer(offer, rm))
        case CloseSequence(identifier, last_number):
            yield SequenceClosed(sequence=identifier, last_number=last_number)
        case TerminateSequence(identifier, last_number):
            yield SequenceClosed(sequence=identifier, last_number=last_number, ends=True)


def _not_understood(envelope: Envelope, version: RmVersion) -> str:
    name, must = version.name("Sequence"), envelope.version.name("mustUnderstand")
    stated = [block.get(must, "").strip() for block in envelope.headers if block.tag == name]
    return "" if _TRUE.issuperset(stated) else "the Sequence header has no mustUnderstand"


def _wrong_offer(offer: Offer, rm: RmMessage) -> str:
    if rm.version is RM10:
        return "" if offer.endpoint is None else "an Offer of WS-RM 1.0 has an Endpoint"
    if offer.endpoint is None or not offer.endpoint.address:
        return "an Offer of WS-RM 1.1 has no Endpoint with an address"
    return ""


def _message(envelope: Envelope, rm: RmMessage) -> MessageSent:
    sequence = rm.sequence
    assert sequence is not None
    assert sequence.number is not None
    message_id = action = ""
    try:
        addressing = read_addressing(envelope.headers)
        message_id, action = addressing.message_id, addressing.action
    except SoapFaultError:
        pass  # it is judged by its own rule, and a number has come all the same
    return MessageSent(
        sequence=sequence.identifier,
        number=sequence.number,
        id=message_id,
        content=blake2b(envelope.content(), digest_size=16).hexdigest(),
        headers=f"{message_id} {action}",
        last=sequence.last,
    )


def _read_answer(event: RequestAnswered, request: RequestReceived) -> Iterator[tuple[Step, bytes]]:
    try:
        rm = read_rm_headers(read_envelope(request.content))
    except SoapFaultError:
        return
    sequence = rm.sequence
    if sequence is not None:
        unknown = event.reason.partition(":")[0] == "UnknownSequence"
        reason = f"{sequence.identifier} was never created here" if unknown else ""
        yield RequestChecked(_CREATED, reason), request.content
    if not event.confirmed:
        if sequence is not None and sequence.number is not None:
            final = event.reason.startswith(_ENDED)
            yield MessageRefused(sequence.identifier, sequence.number, final), request.content
        return
    if not event.content:
        return
    for one in read_rm_headers(read_envelope(event.content)).acknowledgements:
        if not one.nacks:
            yield NumbersAcknowledged(one.identifier, one.ranges), event.content


_ROWS: Final = (
    SenderRule(
        duty="well-formed",
        text="The headers of WS-RM are as its schema has them; numbers begin at 1.",
        clause="WS-RM 1.1, 3.7 and its schema",
        provoke="Let the source send anything.",
        why="What cannot be read is refused with a fault, and its number stays missing.",
        right="<wsrm:MessageNumber>3</wsrm:MessageNumber>",
        wrong="<wsrm:MessageNumber>three</wsrm:MessageNumber>",
    ),
    SenderRule(
        duty=_CREATED,
        text="A message belongs to a sequence that was created, and has not ended.",
        clause="WS-RM 1.1, 3.4 and 4.3",
        provoke="Let the source create a sequence and send.",
        why="Of a sequence that it does not know, a destination can accept nothing.",
        right="CreateSequence, CreateSequenceResponse, message 1",
        wrong="message 1 under an Identifier of the source's own",
    ),
    SenderRule(
        duty=_UNDERSTOOD,
        text="The Sequence header must be understood.",
        clause="WS-RM 1.1, 3.7",
        provoke="Let the source send a message.",
        why="A peer without WS-RM delivers the message all the same, twice and in any order, and"
        " its source waits for acknowledgements that never come.",
        right='<wsrm:Sequence s:mustUnderstand="1">',
        wrong="<wsrm:Sequence>",
    ),
    SenderRule(
        duty=_OFFERED,
        text="An Offer has an Endpoint with an address in WS-RM 1.1, and none in WS-RM 1.0.",
        clause="WS-RM 1.1, 3.4; WS-RM 1.0, 3.4, and their schemas",
        provoke="Let the source offer a sequence for replies.",
        why="By the Endpoint a destination sends its replies; where a schema is checked, what it"
        " does not have is refused.",
        right="<wsrm:Endpoint><wsa:Address>http://source/replies</wsa:Address></wsrm:Endpoint>",
        wrong="<wsrm:Endpoint><wsa:Address/></wsrm:Endpoint>",
    ),
    SenderRule(
        duty="ids-unique",
        text="No two messages have one MessageID.",
        clause="WS-Addressing 1.0 Core, 3.1",
        provoke="Let the source send two messages.",
        why="A reply or a fault relates to a MessageID: it would be about two messages.",
        right="message 1: urn:uuid:a, message 2: urn:uuid:b",
        wrong="message 1: urn:uuid:a, message 2: urn:uuid:a",
    ),
    SenderRule(
        duty="content-repeated",
        text="A message that is sent again has the same content.",
        clause="WS-RM 1.1, 3.7: a MessageNumber identifies one message",
        provoke="Lose the answer to a message, so that it is sent again.",
        why="A destination that has the first content ignores the second: it is lost.",
        right="message 3 twice, with the same Body",
        wrong="message 3 twice, with other values",
    ),
    SenderRule(
        duty="headers-repeated",
        text="A message that is sent again has the same MessageID and Action.",
        clause="WS-Addressing 1.0 Core, 3.1",
        should=True,
        provoke="Lose the answer to a message, so that it is sent again.",
        why="Logs of both sides name a message by its MessageID.",
        right="message 3 twice, as urn:uuid:a",
        wrong="message 3 as urn:uuid:a, then as urn:uuid:b",
    ),
    SenderRule(
        duty="sent-again",
        text="What an acknowledgement shows to be missing is sent again before the sequence ends.",
        clause="WS-RM 1.1, 2: AtLeastOnce, ExactlyOnce",
        should=True,
        provoke="Lose a message, and let the source close its sequence.",
        why="A message that its source forgets is lost, and all behind it wait until the end.",
        right="acknowledged 1-4, 6; 5 again; CloseSequence",
        wrong="acknowledged 1-4, 6; CloseSequence",
    ),
    SenderRule(
        duty="none-beyond-last",
        text="No number is higher than that of the last message.",
        clause="WS-RM 1.0, 3.1 and 4.6 (LastMessage)",
        provoke="Let the source end a sequence with LastMessage.",
        why="The destination has completed the sequence, and refuses it.",
        right="1, 2, 3 with LastMessage",
        wrong="1, 2 with LastMessage, 3",
    ),
    SenderRule(
        duty="last-stated",
        text="LastMsgNumber is the highest number that was sent, each time that it is stated.",
        clause="WS-RM 1.1, 3.5 and 3.6",
        provoke="Let the source close or terminate its sequence.",
        why="By it a destination knows whether messages are missing at the end.",
        right="1 to 5; LastMsgNumber 5",
        wrong="1 to 5; LastMsgNumber 4",
    ),
    SenderRule(
        duty="none-after-close",
        text="After CloseSequence no new message is sent.",
        clause="WS-RM 1.1, 3.5",
        provoke="Let the source close its sequence.",
        why="The acknowledgement of a closed sequence is final: a new message is refused.",
        right="1, 2, CloseSequence, TerminateSequence",
        wrong="1, 2, CloseSequence, 3",
    ),
    SenderRule(
        duty="none-after-end",
        text="After TerminateSequence no message is sent.",
        clause="WS-RM 1.1, 3.6",
        provoke="Let the source terminate its sequence.",
        why="The destination may have forgotten the sequence.",
        right="1, 2, TerminateSequence",
        wrong="1, 2, TerminateSequence, 2 again",
    ),
    SenderRule(
        duty="cancelled-kept",
        text="A number that was cancelled is not used.",
        clause="WS-RM cancel and fill, 2: SequenceCancel",
        should=True,
        provoke="Let the source cancel a number.",
        why="The destination has promised never to accept it: the message is lost.",
        right="1, SequenceCancel 2, 3",
        wrong="1, SequenceCancel 2, 2",
    ),
    SenderRule(
        duty="filled-kept",
        text="A number that was filled is not used.",
        clause="WS-RM cancel and fill, 5: SequenceFill",
        should=True,
        provoke="Let the source fill a gap.",
        why="The destination acknowledges it as received: what comes under it is taken for a copy,"
        " and is lost.",
        right="1, SequenceFill 2, 3",
        wrong="1, SequenceFill 2, 2",
    ),
    SenderRule(
        duty="gives-up",
        text="After a fault that says that the sequence is unknown or has ended, nothing is sent.",
        clause="WS-RM 1.1, 4.2, 4.3 and 4.7",
        should=True,
        provoke="Let the destination end a sequence while messages are missing.",
        why="It costs both sides, and never succeeds.",
        right="SequenceTerminated; a new sequence",
        wrong="SequenceTerminated; the same message again and again",
    ),
    SenderRule(
        duty="cancels-unacknowledged",
        text="What was acknowledged is not cancelled.",
        clause="WS-RM cancel and fill, 2: SequenceCancel",
        should=True,
        provoke="Let the source cancel a number.",
        why="The message is delivered already: its source believes that it is not.",
        right="acknowledged 1; SequenceCancel 2",
        wrong="acknowledged 1; SequenceCancel 1",
    ),
)


_UNJUDGED: Final = (
    UnjudgedClause(
        "WS-RM 1.1, 3.7",
        "Numbers grow by 1 with each message of a sequence.",
        "A number that never comes may have been lost on its way. Where its source is told of it"
        " and does not send it, `wsrm-sent-again` names it.",
    ),
    UnjudgedClause(
        "WS-RM 1.1, 3.7: MessageNumberRollover",
        "Behind the highest number a source begins a new sequence.",
        "Nobody sends 2^63 messages while somebody looks.",
    ),
    UnjudgedClause(
        "WS-RM 1.1, 3.4 and 3.9",
        "A source takes acknowledgements where it has said so (AcksTo), and follows them.",
        "What it makes of an acknowledgement shows only in what it sends again.",
    ),
    UnjudgedClause(
        "WS-RM 1.1, 3.5 and 3.6",
        "A source closes or terminates its sequences.",
        "It may still do so, as long as the sequence has not expired.",
    ),
    UnjudgedClause(
        "WS-RM 1.1, 3.8",
        "AckRequested names a sequence of the source.",
        "It is answered with a fault where there is none; nothing of the data depends on it.",
    ),
    UnjudgedClause(
        "WS-RM cancel and fill, 2",
        "A source cancels only what it has no acknowledgement for.",
        "Judged by `wsrm-cancels-unacknowledged` for what it was told in the answer to a request;"
        " an acknowledgement that went to another address is not in the trace.",
    ),
)


def wsrm_rules() -> RuleBook:
    """The rules of an RM source."""
    return sender_rules(
        "wsrm", "Sources of WS-ReliableMessaging", _ROWS, _SourceObserver, _UNJUDGED
    )
