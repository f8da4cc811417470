"""The Receiving RMP: answers each envelope once what it changed is durable (S3)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from lxml.etree import _Element

from instep.errors import InstepError
from instep.model.messages import Message
from instep.ports.listener import EnvelopeReceipt, Intake, IntakeEvent, Receipt, ReceiptOutcome
from instep.sequencing.claims import Claims
from instep.sequencing.effects import ReportFault, SequenceEffect
from instep.sequencing.events import Last
from instep.sequencing.transitions import REFUSALS, Refusal, SequenceRefusedError
from instep_soap import (
    AWAY,
    Addressing,
    AllowedEndpoints,
    Envelope,
    FaultCode,
    HeaderReading,
    SoapAnswer,
    SoapFaultError,
    SoapReceiver,
    SoapRequest,
    SoapVersion,
    check_understood,
    fault_of,
    local_name,
    namespace_of,
    read_datetime_us,
    read_reply,
)
from instep_soap.content import with_headers
from instep_wsr.groups import (
    GroupAttributes,
    attributes_of,
    check_combination,
    check_same_group,
    deadline_us,
    reply_of_fault,
    reply_to_message,
    reply_to_poll,
)
from instep_wsr.known_groups import KnownGroups
from instep_wsr.options import Options
from instep_wsr.responder import Responder
from instep_wsr.wire import encoder
from instep_wsr.wire.decoder import read_headers
from instep_wsr.wire.faults import RmFaultError, code_of_refusal, not_available, soap_fault
from instep_wsr.wire.messages import GroupReply, PollRequest, Request
from instep_wsr.wire.names import HEADERS, WSR, ReplyPattern, RmFaultCode

__all__ = ["WsrReceiver"]

_VARYING: Final = {
    ' groupId="': "mid:probe@example.org",
    ' number="': "987654321",
    "ExpiryTime>": "2049-12-31T23:59:59.5Z",
}
_USUAL_DIGITS: Final = 18
_US: Final = 1_000_000

_log = logging.getLogger("instep.wsr")


class WsrReceiver(SoapReceiver[Request]):
    """Answers the envelopes of senders.

    Promised: a message is acknowledged only once it is durable (S3) and, with
    `Acknowledge.DELIVERY`, released to the application. It is delivered once, in an ordered group
    in the order of its number, and never after its ExpiryTime. One that was kept and will not be
    delivered is reported by a fault, acknowledged or not (S6). Nothing is sent to an address that
    no operator allows.

    Args:
        intake: Decides, and makes durable.
        options: What the receiver promises.
        endpoints: Sends to addresses that senders state.
        now: The time in seconds since 1970 UTC.
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
    ) -> None:
        self._intake = intake
        self._groups = KnownGroups(intake, options)
        self._options = options
        self._responder = Responder(endpoints)
        self._now = now

    @staticmethod
    def understands(name: str) -> bool:
        return namespace_of(name) == WSR and local_name(name) in HEADERS

    async def respond(self, request: SoapRequest) -> bytes | None:
        try:
            replies, content = await self._replies(request)
        except RmFaultError as error:
            replies, content = [_reply_of_fault(error)], None
        return _response(request.envelope.version, replies, content)

    async def report(self, scope: str, effect: SequenceEffect) -> bool:
        """Report what will not be delivered to the ReplyTo of the group (S6). Returns False where
        it has none: the next response or poll tells its sender.
        """
        assert isinstance(effect, ReportFault)
        group = await self._groups.attributes(scope)
        if group is None or not group.reply_to:
            return False
        reply = reply_of_fault(scope, group, effect.faulted, effect.reason)
        await self._responder.send(group.reply_to, group.soap_version, [reply])
        return True

    # -- usual messages: an `instep_soap.UsualMessages` --------------------------------------------

    def read_usual(self, envelope: Envelope, addressing: Addressing) -> Request | None:  # noqa: ARG002
        """What the headers of a message alone in its envelope say, whose reply goes into the
        response.
        """
        try:
            check_understood(envelope, self.understands)
            headers = read_headers(envelope)
            asked = headers.request
            if (
                asked is None
                or asked.number is None
                or asked.last
                or self._options.replies
                or asked.pattern is not ReplyPattern.RESPONSE
                or headers.poll is not None
                or headers.replies
            ):
                return None
            check_combination(asked)
        except (RmFaultError, SoapFaultError):
            return None
        return asked

    def vary(
        self, reading: HeaderReading[Request], texts: Sequence[str]
    ) -> HeaderReading[Request] | None:
        group_id, number, expiry = texts
        expires_at_us = read_datetime_us(expiry)
        if expires_at_us is None or not number.isdigit() or len(number) > _USUAL_DIGITS:
            return None
        one = reading.headers
        request = Request(
            group_id=group_id,
            number=int(number),
            group_expires_at_us=one.group_expires_at_us,
            group_max_idle_s=one.group_max_idle_s,
            expires_at_us=expires_at_us,
            pattern=one.pattern,
            ack_requested=one.ack_requested,
            duplicate_elimination=one.duplicate_elimination,
            message_order=one.message_order,
        )
        return HeaderReading(reading.version, reading.addressing, request)

    def submit(self, request: SoapRequest, headers: Request, answer: SoapAnswer) -> bool:
        """Take a usual message of a group in memory. `answer` does the same, for any envelope."""
        envelope = request.envelope
        if len(envelope.body) != 1 or fault_of(envelope) is not None:
            return False
        attributes = self._groups.in_memory(headers.group_id)
        if attributes is None:
            return False
        now_us = self._now_us()
        try:
            check_same_group(headers, attributes, request.identity)
            self._check_expiry(headers, now_us)
        except RmFaultError:
            return False

        message = self._as_message(request, headers, now_us)
        acknowledge = _Acknowledge(self._settled, envelope.version, headers, attributes, answer)
        self._intake.submit_envelope(headers.group_id, [message], acknowledge)
        return True

    def _settled(
        self, request: Request, attributes: GroupAttributes, outcome: EnvelopeReceipt | InstepError
    ) -> GroupReply | None:
        """The reply to a message of `submit`; None: its group is not remembered any more. Raises
        `SoapFaultError`.
        """
        if isinstance(outcome, SequenceRefusedError):
            if outcome.refusal is Refusal.UNKNOWN:
                self._groups.forget(request.group_id)
                return None
            outcome = _refused(request, outcome.refusal)
        if isinstance(outcome, RmFaultError):
            return _reply_of_fault(outcome)
        if isinstance(outcome, InstepError):
            raise self.not_kept(outcome) from outcome
        try:
            return _reply_to(request, attributes, outcome.receipts[0], outcome.claims)
        except RmFaultError as error:
            return _reply_of_fault(error)

    async def _replies(self, received: SoapRequest) -> tuple[list[GroupReply], _Element | None]:
        """Handle an envelope; returns the replies that go into its response, and its body."""
        envelope = received.envelope
        headers = read_headers(envelope)
        if headers.request is None and envelope.body:
            raise RmFaultError(RmFaultCode.INVALID_REQUEST, "a Request header is needed")
        if headers.replies:
            self._intake.report_deviation("reply-to-nothing")
        replies: list[GroupReply] = []
        content = None
        if headers.request is not None:
            replies += await self._message(received, headers.request)
            try:
                content = await self._content(headers.request, replies)
            except TimeoutError:
                # Without an acknowledgement, the sender sends its message again.
                replies.clear()
        if headers.poll is not None:
            replies += await self._poll(received, headers.poll)
        return replies, content

    async def _content(self, request: Request, replies: Sequence[GroupReply]) -> _Element | None:
        """What the handler returned for a message; None: nothing, or the message does not want it
        in its response, or waits for those before it. Raises `TimeoutError`, `SoapFaultError`.
        """
        number = request.number or 0
        if not self._options.replies or request.pattern is not ReplyPattern.RESPONSE:
            return None
        if request.ack_requested and not any(reply.acknowledges(number) for reply in replies):
            return None
        claims = await self._intake.claims(request.group_id)
        if claims is not None and any(one.number == number for one in claims.state.buffered):
            # It waits for those before it: a copy of it gets the reply.
            raise TimeoutError
        timeout_s = self._options.reply_timeout_s
        reply = await self._intake.reply(request.group_id, number, timeout_s)
        return None if reply is None else read_reply(reply, number)

    # -- messages --------------------------------------------------------------------------------

    async def _message(self, received: SoapRequest, request: Request) -> list[GroupReply]:
        """Take a message; returns the replies for the response. Raises `RmFaultError`."""
        envelope = received.envelope
        if len(envelope.body) > 1:
            raise SoapFaultError(FaultCode.SENDER, "the Body has more than one element")
        if request.reply_to and not self._responder.allows(request.reply_to):
            raise _fault(
                request,
                RmFaultCode.FEATURE_NOT_SUPPORTED,
                "ReplyTo: nothing is sent to this address",
            )
        try:
            check_combination(request)
            reply = await self._take(received, request)
        except RmFaultError as error:
            refused = error.reply()
            if request.pattern is not ReplyPattern.CALLBACK or refused is None:
                raise
            reply = refused
        match request.pattern:
            case ReplyPattern.RESPONSE:
                return [reply]
            case ReplyPattern.CALLBACK:
                if reply:
                    self._responder.begin(request.reply_to, envelope.version, [reply])
                return []
            case ReplyPattern.POLL:
                return []

    async def _take(self, received: SoapRequest, request: Request) -> GroupReply:
        """Make a message durable; returns the reply to it: duplicated or not, it is acknowledged
        (Rel16 step 4). Raises `RmFaultError`.
        """
        for _ in range(2):
            attributes = await self._group(received, request)
            taken = await self._apply(received, request)
            if taken is not None:
                break
            # It was forgotten just now: with this message it begins again.
            self._groups.forget(request.group_id)
        else:
            raise _refused(request, Refusal.FULL)
        return _reply_to(request, attributes, *taken)

    async def _group(self, received: SoapRequest, request: Request) -> GroupAttributes:
        """The group of a message, which the first one opens. Raises `RmFaultError`."""
        now_us = self._now_us()
        known = await self._groups.attributes(request.group_id)
        if known is None:
            self._check_expiry(request, now_us)
            try:
                known = await self._groups.open(
                    request.group_id,
                    attributes_of(request, received.envelope.version, received.identity),
                )
            except SequenceRefusedError as error:
                if error.refusal is Refusal.EXPIRED:
                    raise _fault(
                        request,
                        RmFaultCode.INVALID_MESSAGE_PARAMETERS,
                        "groupExpiryTime has passed",
                    ) from None
                raise _refused(request, error.refusal) from None
        check_same_group(request, known, received.identity)
        return known

    async def _apply(
        self, received: SoapRequest, request: Request
    ) -> tuple[Receipt, Claims] | None:
        """Apply a message to its group; returns its receipt, and the claims of the commit. None:
        the group is not known any more. Raises `RmFaultError`.

        A duplicate of what was delivered or waits is found (Rel16 step 2) and removed
        (Rel16 step 5); a group with MessageOrder is delivered in order (Rel16 step 6).
        """
        claims = await self._intake.claims(request.group_id)
        if claims is None:
            return None
        now_us, number, state = self._now_us(), request.number or 0, claims.state
        accepts = state.phase not in REFUSALS
        if accepts and number not in state.received:
            # An expired one changes nothing: it does not end its group.
            self._check_expiry(request, now_us)
        events: list[IntakeEvent] = [self._as_message(received, request, now_us)]
        if request.last or request.number is None:
            if state.last_number not in (None, number):
                raise _fault(
                    request, RmFaultCode.INVALID_MESSAGE_PARAMETERS, "another message was the last"
                )
            if state.last_number is None and accepts:
                events.append(Last(number))
        try:
            taken = await self._intake.apply(request.group_id, events)
        except SequenceRefusedError as error:
            if error.refusal is Refusal.UNKNOWN:
                return None
            raise _refused(request, error.refusal) from None
        return taken.receipts[0], taken.claims

    def _check_expiry(self, request: Request, now_us: int) -> None:
        """Check the ExpiryTime of a message that is new. Raises `RmFaultError`."""
        if request.expires_at_us <= now_us:
            reason = "ExpiryTime has passed"
        elif request.expires_at_us > now_us + int(self._options.max_expiry_s * _US):
            reason = f"ExpiryTime is more than {self._options.max_expiry_s:,.0f} s ahead"
        else:
            return
        raise _fault(request, RmFaultCode.INVALID_EXPIRY_TIME, reason)

    def _as_message(self, received: SoapRequest, request: Request, now_us: int) -> Message:
        number = request.number
        body, digest = received.content()
        attributes = msgspec.json.encode({"expires_at_us": request.expires_at_us})
        return Message(
            scope=request.group_id,
            number=number or 0,
            id=request.group_id if number is None else f"{request.group_id}#{number}",
            body=body,
            received_at_us=now_us,
            expires_at_us=deadline_us(request, self._options, now_us),
            digest=with_headers(digest, attributes),
            sender=received.identity,
            attributes=attributes,
            attachments=received.attachments,
        )

    # -- polls -----------------------------------------------------------------------------------

    async def _poll(self, received: SoapRequest, poll: PollRequest) -> list[GroupReply]:
        """Look up what became of messages; returns the replies for the response: none for a group
        of another sender. Raises `RmFaultError`.
        """
        if poll.reply_to and not self._responder.allows(poll.reply_to):
            raise RmFaultError(
                RmFaultCode.FEATURE_NOT_SUPPORTED, "ReplyTo: nothing is sent to this address"
            )
        replies = []
        for group in poll.groups:
            attributes = await self._groups.attributes(group.group_id)
            claims = await self._intake.claims(group.group_id)
            if attributes is None or not attributes.admits(received.identity):
                continue
            if claims is not None:
                replies.append(reply_to_poll(group.group_id, attributes, claims, group.ranges))
        if not poll.reply_to:
            return replies
        if any(replies):
            self._responder.begin(
                poll.reply_to, received.envelope.version, list(filter(None, replies))
            )
        return []

    def _now_us(self) -> int:
        return int(self._now() * _US)


class _Acknowledge(msgspec.Struct, gc=False):
    """Answers a usual message once it is durable. It keeps nothing of the envelope: a hundred wait
    for one commit.
    """

    settled: Callable[[Request, GroupAttributes, EnvelopeReceipt | InstepError], GroupReply | None]
    version: SoapVersion
    request: Request
    attributes: GroupAttributes
    answer: SoapAnswer

    def __call__(self, outcome: EnvelopeReceipt | InstepError) -> None:
        try:
            reply = self.settled(self.request, self.attributes, outcome)
        except SoapFaultError as fault:
            self.answer(fault)
            return
        if reply is None:
            # With this message it begins again.
            self.answer.decline()
        else:
            self.answer(_response(self.version, [reply]))


def _reply_to(
    request: Request, attributes: GroupAttributes, receipt: Receipt, claims: Claims
) -> GroupReply:
    """The reply to a message that was decided. Raises `RmFaultError`: it is refused."""
    reply = reply_to_message(
        request.group_id,
        attributes,
        claims,
        request.number or 0,
        ack_requested=request.ack_requested,
    )
    if receipt.outcome is ReceiptOutcome.REFUSED:
        refusal = receipt.refusal or Refusal.UNPROCESSABLE
        raise _refused(request, refusal, also=reply.faults)
    return reply


def _reply_of_fault(error: RmFaultError) -> GroupReply:
    """The reply that states a fault. Raises `SoapFaultError` where none can."""
    reply = error.reply()
    if reply is None:
        raise soap_fault(error) from None
    _log.debug("a message is refused: %s: %s", error.fault, error.message)
    return reply


def _response(
    version: SoapVersion, replies: Sequence[GroupReply], content: _Element | None = None
) -> bytes | None:
    if content is not None:
        headers = [encoder.response(filter(None, replies))] if any(replies) else []
        return encoder.envelope(version, headers, content)
    if not any(replies):
        return None
    return encoder.response_envelope(version, filter(None, replies))


def _fault(request: Request, code: RmFaultCode, reason: str) -> RmFaultError:
    return RmFaultError(code, reason, request.group_id, request.number)


def _refused(
    request: Request, refusal: Refusal, also: Sequence[tuple[int, int, RmFaultCode]] = ()
) -> RmFaultError:
    code, reason = code_of_refusal(refusal), f"the group refuses it: {refusal!s}"
    if refusal is Refusal.UNAVAILABLE:
        reason = AWAY
    return RmFaultError(code, reason, request.group_id, request.number, also)
