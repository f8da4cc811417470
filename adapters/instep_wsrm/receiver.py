"""The RM destination: answers each envelope once what it changed is durable (S3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

import msgspec
from lxml.etree import _Element

from instep.errors import InstepError
from instep.model.messages import Message
from instep.ports.listener import EnvelopeReceipt, Intake, IntakeEvent, ReceiptOutcome
from instep.sequencing.claims import Claims
from instep.sequencing.effects import AskResend, SequenceEffect, SequenceEnded, SequenceFailed
from instep.sequencing.events import Close, Fill, Last, Terminate
from instep.sequencing.settings import IncompleteBehavior
from instep.sequencing.transitions import REFUSALS, Refusal, SequencePhase, SequenceRefusedError
from instep_soap import (
    Addressing,
    AllowedEndpoints,
    EndpointReference,
    Envelope,
    FaultCode,
    HeaderReading,
    SoapAnswer,
    SoapFaultError,
    SoapReceiver,
    SoapRequest,
    check_understood,
    fault_of,
    local_name,
    namespace_of,
    read_reply,
    with_message_id,
    xml_bytes,
)
from instep_soap.content import with_headers
from instep_soap.envelope import fault_envelope
from instep_soap.names import ANY_WSA
from instep_wsrm.acknowledger import Acknowledger
from instep_wsrm.answers import (
    AcknowledgedSequence,
    Exchange,
    acknowledged_response,
    acknowledgements,
    nacks_envelope,
)
from instep_wsrm.events import identifiers, requests
from instep_wsrm.options import Options, sequence_settings
from instep_wsrm.responder import Responder
from instep_wsrm.sequences import KnownSequences, SequenceAttributes, new_identifier
from instep_wsrm.wire import encoder
from instep_wsrm.wire.decoder import is_rm, read_rm, read_rm_headers
from instep_wsrm.wire.faults import (
    create_refused,
    invalid_acknowledgement,
    not_available,
    not_now,
    refused,
    rm_required,
    terminated,
    unknown_sequence,
)
from instep_wsrm.wire.messages import (
    CloseSequence,
    CreateSequence,
    RmMessage,
    SequenceHeader,
    TerminateSequence,
)
from instep_wsrm.wire.names import ANY_RM, HEADERS, RmVersion

__all__ = ["WsrmReceiver"]

_VARYING: Final = {
    "MessageID>": "urn:probe:message",
    "Identifier>": "urn:probe:sequence",
    "MessageNumber>": "987654321",
}
_USUAL_DIGITS: Final = 18
_US: Final = 1_000_000
_BEHAVIORS: Final = {
    IncompleteBehavior.DELIVER: "NoDiscard",
    IncompleteBehavior.DISCARD: "DiscardFollowingFirstGap",
}
_OVER: Final = frozenset({SequencePhase.FAILED, SequencePhase.TERMINATED})


class WsrmReceiver(SoapReceiver[RmMessage]):
    """Answers the envelopes of sources, as an RM destination.

    Promised: a message is acknowledged only once it is durable (S3). A cancelled number is never
    accepted, and never acknowledged before it is filled; the ranges of an acknowledgement and of a
    cancellation come from one commit and never overlap (S5, S11). Nothing is sent to an address
    that no operator allows.

    Args:
        intake: Decides, and makes durable.
        options: What the destination promises.
        endpoints: Sends to addresses that peers state.
        now: The time in seconds since 1970 UTC.
        address: The URL that the destination listens on.
    """

    varying = _VARYING
    not_available = staticmethod(not_available)

    def __init__(
        self,
        intake: Intake,
        options: Options,
        endpoints: AllowedEndpoints,
        *,
        now: Callable[[], float],
        address: Callable[[], str],
    ) -> None:
        self._intake = intake
        self._sequences = KnownSequences(intake)
        self._options = options
        self._settings = sequence_settings(options)
        self._endpoints = endpoints
        self._acknowledger = Acknowledger(intake, endpoints, options.acknowledgement_interval_s)
        self._responder = Responder(endpoints)
        self._now = now
        self._address = address
        self._reply_to_all = "*" in options.reply_actions

    async def run(self) -> None:
        await self._acknowledger.run()

    @staticmethod
    def understands(name: str) -> bool:
        space = namespace_of(name)
        return space in ANY_WSA or (space in ANY_RM and local_name(name) in HEADERS)

    async def respond(self, request: SoapRequest) -> bytes | None:
        rm = read_rm(request.envelope)
        if rm.version is None:
            raise rm_required()
        exchange = Exchange(
            request.envelope.version, request.addressing, rm.version, request.identity
        )
        if not (request.addressing.action and request.addressing.message_id):
            self._intake.report_deviation("addressing-missing")
        match rm.body:
            case CreateSequence():
                return await self._create(exchange, rm.body, request.peer)
            case CloseSequence():
                return await self._close(exchange, rm, rm.body)
            case TerminateSequence():
                return await self._terminate(exchange, rm, rm.body)
            case None:
                return await self._message(exchange, rm, request)

    async def report(self, scope: str, effect: SequenceEffect) -> bool:
        """Report to an AcksTo that is an address. Returns False where it is none."""
        attributes = await self._sequences.attributes(scope)
        if attributes is None or not attributes.acks_to:
            return False
        endpoint, soap = attributes.acks_endpoint(), attributes.soap_version
        if isinstance(effect, AskResend):
            envelope, action = nacks_envelope(scope, attributes, effect.missing)
        else:
            assert isinstance(effect, (SequenceFailed, SequenceEnded))
            why = f"The Sequence has been terminated: {effect.reason}."
            fault = terminated(attributes.version, scope, why)
            action = fault.action or endpoint.version.fault_action
            root = fault_envelope(fault, soap, endpoint.version, to=endpoint)
            envelope = xml_bytes(root, to=endpoint)
        await self._endpoints.send(endpoint, envelope, soap, action)
        return True

    # -- usual messages: an `instep_soap.UsualMessages` --------------------------------------------

    def read_usual(self, envelope: Envelope, addressing: Addressing) -> RmMessage | None:
        """What the headers of a message alone in its envelope say, to which nobody replies."""
        try:
            check_understood(envelope, self.understands)
            rm = read_rm_headers(envelope)
        except SoapFaultError:
            return None
        header, action = rm.sequence, addressing.action
        if (
            header is None
            or header.number is None
            or header.last
            or header.fill
            or not rm.message_alone
            or not (action and addressing.message_id)
            or self._reply_to_all
            or action in self._options.reply_actions
        ):
            return None
        return rm

    def vary(
        self, reading: HeaderReading[RmMessage], texts: Sequence[str]
    ) -> HeaderReading[RmMessage] | None:
        message_id, identifier, number = texts
        if not number.isdigit() or len(number) > _USUAL_DIGITS or not int(number):
            return None
        return HeaderReading(
            reading.version,
            with_message_id(reading.addressing, message_id),
            RmMessage(
                version=reading.headers.version, sequence=SequenceHeader(identifier, int(number))
            ),
        )

    def submit(self, request: SoapRequest, headers: RmMessage, answer: SoapAnswer) -> bool:
        """Take a usual message in a sequence in memory whose acknowledgements go into the response.
        `answer` does the same, for any envelope.
        """
        header, version, envelope = headers.sequence, headers.version, request.envelope
        assert header is not None
        assert version is not None
        if len(envelope.body) != 1 or is_rm(envelope.body[0]) or fault_of(envelope) is not None:
            return False
        attributes = self._sequences.in_memory(header.identifier)
        if attributes is None or attributes.acks_to or not attributes.admits(request.identity):
            return False
        exchange = Exchange(envelope.version, request.addressing, version)
        message = self._as_message(exchange, header, attributes, request)
        acknowledge = _Acknowledge(self._claims_of, exchange, header.identifier, answer)
        self._intake.submit_envelope(header.identifier, [message], acknowledge)
        return True

    # -- the life of a sequence ------------------------------------------------------------------

    async def _create(self, exchange: Exchange, asked: CreateSequence, sender: str) -> bytes | None:
        """Open a sequence (WS-RM 3.4). `sender`: the IP address of the request."""
        version, options = exchange.version, self._options
        self._responder.check(exchange)
        acks_to = asked.acks_to
        if not acks_to.anonymous and not self._endpoints.allows(acks_to):
            raise create_refused(version, "AcksTo: nothing is sent to this address")
        expires_s = min(asked.expires_s or options.max_expires_s, options.max_expires_s)
        origin = None if acks_to.anonymous else self._endpoints.origin(acks_to)
        peer = exchange.identity or (sender if origin is None else str(origin))
        offer = asked.offer
        accepted = offer is not None and options.accept_offers and self._can_send(offer.endpoint)
        attributes = SequenceAttributes(
            peer=peer,
            certificate=exchange.identity,
            rm=version.namespace,
            soap=exchange.soap.namespace,
            wsa=exchange.wsa.namespace,
            acks_to="" if acks_to.anonymous else acks_to.address,
            acks_to_parameters=() if acks_to.anonymous else acks_to.parameters,
            offered=offer.identifier if accepted and offer is not None else "",
        )
        identifier = new_identifier(peer)
        try:
            await self._intake.open(
                identifier,
                self._settings,
                msgspec.json.encode(attributes),
                int((self._now() + expires_s) * _US),
            )
        except SequenceRefusedError as error:
            raise create_refused(version, not_now(error.refusal), ours=True) from None
        self._sequences.add(identifier, attributes)
        accept = None
        if accepted:
            address = exchange.addressing.to or self._address()
            accept = EndpointReference(exchange.wsa, address)
        body = encoder.create_response(
            version,
            identifier,
            expires_s,
            incomplete=_BEHAVIORS[self._settings.incomplete],
            accept=accept,
        )
        action = version.action("CreateSequenceResponse")
        return self._responder.respond(exchange, exchange.response(action, (), body), action)

    async def _close(self, exchange: Exchange, rm: RmMessage, asked: CloseSequence) -> bytes | None:
        """Close a sequence (WS-RM 3.5)."""
        self._responder.check(exchange)
        return await self._end(exchange, rm, asked, [Close(asked.last_number)])

    async def _terminate(
        self, exchange: Exchange, rm: RmMessage, asked: TerminateSequence
    ) -> bytes | None:
        """Terminate a sequence (WS-RM 3.6)."""
        version = exchange.version
        if version.closes:
            self._responder.check(exchange)
        await self._known(exchange, asked.identifier)
        claims = await self._intake.claims(asked.identifier)
        events: list[IntakeEvent] = [Terminate()]
        if asked.last_number is not None and claims and claims.state.phase not in REFUSALS:
            # What never came, up to the last one, is reported as lost.
            events.insert(0, Close(asked.last_number))
        return await self._end(exchange, rm, asked, events)

    async def _end(
        self,
        exchange: Exchange,
        rm: RmMessage,
        asked: CloseSequence | TerminateSequence,
        events: list[IntakeEvent],
    ) -> bytes | None:
        """Close or terminate; what the headers ask for, cancellations too (proposal 4), is decided
        with it (S11).
        """
        version, identifier = exchange.version, asked.identifier
        attributes = await self._known(exchange, identifier)
        claims = await self._apply(version, identifier, [*requests(rm, identifier), *events])
        cancels = any(one.identifier == identifier for one in rm.cancels)
        blocks = acknowledgements(version, identifier, claims, cancels=cancels)
        if attributes.acks_to:
            self._acknowledger.want(identifier, attributes, at_once=True)
        closing = isinstance(asked, CloseSequence)
        if version.closes:
            local = "CloseSequenceResponse" if closing else "TerminateSequenceResponse"
            body = encoder.identified(version, local, identifier)
        elif attributes.offered and exchange.reply_to is None:
            # 1.0 has no response; what ends is the sequence of the replies, too.
            local = "TerminateSequence"
            body = encoder.terminate_sequence(version, attributes.offered, None)
        else:
            return None
        action = version.action(local)
        return self._responder.respond(exchange, exchange.response(action, blocks, body), action)

    # -- messages --------------------------------------------------------------------------------

    async def _message(
        self, exchange: Exchange, rm: RmMessage, request: SoapRequest
    ) -> bytes | None:
        """A message of a sequence (WS-RM 3.7), or headers alone."""
        version, header, envelope = exchange.version, rm.sequence, request.envelope
        if envelope.body and (header is None or header.number is None):
            raise rm_required()
        if len(envelope.body) > 1:
            raise SoapFaultError(FaultCode.SENDER, "the Body has more than one element")
        await self._check_acknowledgements(exchange, rm)
        message, replies = None, False
        if header is not None and header.number is not None:
            attributes = await self._known(exchange, header.identifier)
            if request.attachments or not _is_last_only(exchange, rm, envelope):
                message = self._as_message(exchange, header, attributes, request)
                action = exchange.addressing.action
                replies = self._reply_to_all or action in self._options.reply_actions
        if replies:
            self._responder.check(exchange)
        claimed: list[AcknowledgedSequence] = []
        for identifier in identifiers(rm):
            of_message = message if message and message.scope == identifier else None
            claimed += await self._handle(exchange, rm, identifier, of_message)
        if replies and message is not None:
            try:
                reply = await self._intake.reply(
                    message.scope, message.number, self._options.reply_timeout_s
                )
            except TimeoutError:
                # Without an acknowledgement, the source sends its request again.
                return None
            if reply is not None:
                blocks = [block for one in claimed for block in one.blocks(version)]
                return await self._reply(exchange, message, reply, blocks)
        return acknowledged_response(exchange, claimed)

    async def _handle(
        self, exchange: Exchange, rm: RmMessage, identifier: str, message: Message | None
    ) -> list[AcknowledgedSequence]:
        """Apply all that an envelope says about one sequence, as a whole (S11); returns what the
        response says about it. Raises `SoapFaultError` for a message that is not accepted.
        """
        version = exchange.version
        attributes = await self._known(exchange, identifier)
        events: list[IntakeEvent] = [message] if message is not None else []
        events += requests(rm, identifier)
        header = rm.sequence
        if header is not None and header.identifier == identifier and header.number is not None:
            if message is None:
                # A LastMessage without a body takes a number; nothing is delivered.
                events.append(Fill([(header.number, header.number)]))
            if header.last:
                events.append(Last(header.number))
        if events:
            claims = await self._apply(version, identifier, events)
        else:
            found = await self._intake.claims(identifier)
            if found is None:
                raise unknown_sequence(version, identifier)
            claims = found
        _check_not_over(version, identifier, claims)
        asked = any(one.identifier == identifier for one in rm.ack_requests)
        cancels = any(one.identifier == identifier for one in rm.cancels)
        if not attributes.acks_to:
            return [AcknowledgedSequence(identifier, claims, cancels)]
        self._acknowledger.want(identifier, attributes, at_once=asked or cancels)
        return []

    async def _apply(
        self, version: RmVersion, identifier: str, events: list[IntakeEvent]
    ) -> Claims:
        """Apply the events of one envelope to one sequence. Raises `SoapFaultError`."""
        try:
            outcome: EnvelopeReceipt | InstepError = await self._intake.apply(identifier, events)
        except SequenceRefusedError as error:
            outcome = error
        return self._claims_of(version, identifier, outcome)

    def _claims_of(
        self, version: RmVersion, identifier: str, outcome: EnvelopeReceipt | InstepError
    ) -> Claims:
        """What the sequence claims after an envelope. Raises `SoapFaultError`: it, or its message,
        is refused.
        """
        if isinstance(outcome, SequenceRefusedError):
            if outcome.refusal is Refusal.UNKNOWN:
                self._sequences.forget(identifier)
            raise refused(version, identifier, outcome.refusal) from None
        if isinstance(outcome, InstepError):
            raise self.not_kept(outcome)
        for one in outcome.receipts:
            # A cancelled number is answered with the cancellation, which is no fault.
            if one.outcome is ReceiptOutcome.REFUSED and one.refusal is not Refusal.CANCELLED:
                raise refused(version, identifier, one.refusal or Refusal.UNPROCESSABLE)
        return outcome.claims

    async def _reply(
        self, exchange: Exchange, message: Message, reply: bytes, blocks: list[_Element]
    ) -> bytes | None:
        """The response with what the handler returned."""
        content = read_reply(reply, message.number)
        attributes = await self._known(exchange, message.scope)
        if attributes.offered:
            blocks.insert(0, encoder.sequence(exchange.version, attributes.offered, message.number))
        action = f"{exchange.addressing.action}Response"
        return self._responder.respond(
            exchange, exchange.response(action, blocks, content=content), action
        )

    def _as_message(
        self,
        exchange: Exchange,
        header: SequenceHeader,
        attributes: SequenceAttributes,
        request: SoapRequest,
    ) -> Message:
        addressing, number = exchange.addressing, header.number
        body, digest = request.content()
        assert number is not None
        if attributes.rm != exchange.version.namespace:
            self._intake.report_deviation("sequence-of-other-version")
        return Message(
            scope=header.identifier,
            number=number,
            id=addressing.message_id or f"{header.identifier}#{number}",
            body=body,
            received_at_us=int(self._now() * _US),
            digest=with_headers(digest, f"{addressing.message_id}\0{addressing.action}".encode()),
            sender=attributes.peer,
            attributes=msgspec.json.encode({"action": addressing.action, "to": addressing.to}),
            attachments=request.attachments,
        )

    # -- what the source says about our replies --------------------------------------------------

    async def _check_acknowledgements(self, exchange: Exchange, rm: RmMessage) -> None:
        """Check the acknowledgements of our replies: those of a sequence have its numbers.

        Raises `SoapFaultError`.
        """
        for one in rm.acknowledgements:
            own = self._sequences.offered_with(one.identifier)
            if own is not None:
                offering = await self._sequences.attributes(own)
                own = own if offering and offering.admits(exchange.identity) else None
            if rm.sequence is not None:
                attributes = await self._known(exchange, rm.sequence.identifier)
                if attributes.offered == one.identifier:
                    own = rm.sequence.identifier
            if own is None:
                self._intake.report_deviation("acknowledges-unknown")
                continue
            claims = await self._intake.claims(own)
            highest = (claims.highest if claims else None) or 0
            ordered = sorted(one.ranges)
            overlap = any(high >= low for (_, high), (low, _) in pairwise(ordered))
            if overlap or any(high > highest for _, high in ordered):
                reason = (
                    "The SequenceAcknowledgement violates the cumulative Acknowledgement invariant."
                )
                raise invalid_acknowledgement(exchange.version, reason, one.element)

    # -- inner parts -----------------------------------------------------------------------------

    def _can_send(self, endpoint: EndpointReference | None) -> bool:
        return endpoint is None or endpoint.anonymous or self._endpoints.allows(endpoint)

    async def _known(self, exchange: Exchange, identifier: str) -> SequenceAttributes:
        """What is known of a sequence. Raises `SoapFaultError`: nothing, or it is that of another
        sender, who is told no more than that.
        """
        found = await self._sequences.attributes(identifier)
        if found is None or not found.admits(exchange.identity):
            raise unknown_sequence(exchange.version, identifier)
        return found


class _Acknowledge(msgspec.Struct, gc=False):
    """Answers a usual message once it is durable. It keeps nothing of the envelope: a hundred wait
    for one commit.
    """

    claims_of: Callable[[RmVersion, str, EnvelopeReceipt | InstepError], Claims]
    exchange: Exchange
    identifier: str
    answer: SoapAnswer

    def __call__(self, outcome: EnvelopeReceipt | InstepError) -> None:
        version, identifier = self.exchange.version, self.identifier
        try:
            claims = self.claims_of(version, identifier, outcome)
            _check_not_over(version, identifier, claims)
            claimed = AcknowledgedSequence(identifier, claims, cancels=False)
            self.answer(acknowledged_response(self.exchange, [claimed]))
        except SoapFaultError as fault:
            self.answer(fault)


def _is_last_only(exchange: Exchange, rm: RmMessage, envelope: Envelope) -> bool:
    """Whether the message is LastMessage of 1.0: it ends the sequence and has no content."""
    assert rm.sequence is not None
    action = exchange.addressing.action
    return (
        rm.sequence.last
        and not envelope.body
        and action in ("", exchange.version.action("LastMessage"))
    )


def _check_not_over(version: RmVersion, identifier: str, claims: Claims) -> None:
    if claims.state.phase in _OVER:
        raise terminated(version, identifier, "The Sequence has been terminated.")
