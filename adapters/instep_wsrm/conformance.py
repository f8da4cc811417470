"""The duties of an RM source, judged by its envelopes and our answers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

from instep.conformance import Event, RequestAnswered, RequestReceived, RuleBook
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
from instep_wsrm.wire.messages import CloseSequence, RmMessage, TerminateSequence

__all__ = ["wsrm_rules"]

_MAX_OPEN: Final = 1_000
_CREATED: Final = "created"
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
        yield RequestChecked("well-formed", error.message)
        return
    if rm.version is None:
        return
    yield RequestChecked("well-formed")
    for one in rm.cancels:
        yield NumbersCancelled(one.identifier, one.ranges)
    for one in rm.fills:
        yield NumbersCancelled(one.identifier, one.ranges, back=True)
    if rm.sequence is not None and rm.sequence.number is not None:
        yield _message(envelope, rm)
    match rm.body:
        case CloseSequence(identifier, last_number):
            yield SequenceClosed(sequence=identifier, last_number=last_number)
        case TerminateSequence(identifier, last_number):
            yield SequenceClosed(sequence=identifier, last_number=last_number, ends=True)


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
        text="LastMsgNumber is the highest number that was sent.",
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
        clause="WS-RM cancel and fill: SequenceCancel",
        provoke="Let the source cancel a number.",
        why="The destination has promised never to accept it: the message is lost.",
        right="1, SequenceCancel 2, 3",
        wrong="1, SequenceCancel 2, 2",
    ),
    SenderRule(
        duty="cancels-unacknowledged",
        text="What was acknowledged is not cancelled.",
        clause="WS-RM cancel and fill: SequenceCancel",
        should=True,
        provoke="Let the source cancel a number.",
        why="The message is delivered already: its source believes that it is not.",
        right="acknowledged 1; SequenceCancel 2",
        wrong="acknowledged 1; SequenceCancel 1",
    ),
)


def wsrm_rules() -> RuleBook:
    """The rules of an RM source."""
    return sender_rules("wsrm", "Sources of WS-ReliableMessaging", _ROWS, _SourceObserver)
