"""A SOAP endpoint over HTTP (SOAP 1.2 Part 2, 7; SOAP 1.1, 6): envelopes in, envelopes out.

The fast path exists only for its speed. The floor of `bench` takes 0.77 of its processor time for a
durable and acknowledged message (wsrm-100), and 0.35 of that without it; on two cores under heavy
load, medians of twelve pairs. A test of each adapter compares what both ways answer and deliver.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import msgspec
from yarl import URL

from instep.model.messages import Attachment
from instep_http import BoundedServer, Request, Response, ServerLimits
from instep_http.acceptor import Slot
from instep_http.fast_path import FastPostConnection, PostRequest, RequestHeadParser
from instep_http.offload import Busy, Offload
from instep_soap.addressing import Addressing, read_addressing
from instep_soap.charset import as_utf8
from instep_soap.content import body_and_digest, check_included, read_content, stated_version
from instep_soap.envelope import Envelope, fault_envelope, read_envelope, xml_bytes
from instep_soap.errors import FaultCode, SoapFaultError, XmlError
from instep_soap.exchange_recorder import ExchangeRecorder
from instep_soap.header_templates import HeaderReading
from instep_soap.media_type import read_media_type
from instep_soap.names import SOAP12, SoapVersion
from instep_soap.xml import XmlLimits

__all__ = [
    "EnvelopeTemplates",
    "SoapAnswer",
    "SoapEndpoint",
    "SoapHandler",
    "SoapRequest",
    "UsualMessages",
    "content_type",
]

_ACCEPTED: Final = Response(202)
_RETRY_AFTER_S: Final = 1
_SENDERS: Final = frozenset({FaultCode.SENDER})

_log = logging.getLogger("instep.soap")

H = TypeVar("H")
Respond = Callable[[Response], None]


class SoapAnswer(Protocol):
    """Answers a message that was submitted. One of the two is called, once."""

    def __call__(self, answer: bytes | SoapFaultError | None, /) -> None:
        """Respond with what a `SoapHandler` would return or raise."""

    def decline(self) -> None:
        """Let the handler respond, because the message was not taken after all."""


class SoapRequest(msgspec.Struct, frozen=True, gc=False):
    """An envelope that was received, with its addressing."""

    envelope: Envelope
    addressing: Addressing
    peer: str
    """The IP address of the sender, which may be a proxy."""
    path: str
    """The path that it was sent to."""
    raw: bytes
    """The envelope, in UTF-8."""
    identity: str = ""
    """The name in the certificate of the sender; empty where none is asked for."""
    attachments: tuple[Attachment, ...] = ()
    """What came with it."""
    known_content: tuple[bytes, bytes] | None = None
    """See `content`; None: it is not known yet."""

    def content(self) -> tuple[bytes, bytes]:
        """What is kept of the message: the content of its body, and a digest of it and of the
        attachments; see `body_and_digest`.
        """
        return self.known_content or body_and_digest(self.envelope, self.attachments)


SoapHandler = Callable[[SoapRequest], Awaitable[bytes | None]]
"""Returns the envelope of the response; None: 202 without one. A `SoapFaultError` is the response,
any other exception becomes a fault of the receiver.
"""


class EnvelopeTemplates(Protocol[H]):
    """Reads envelopes that differ from one before in values only, faster than they are parsed."""

    def find(self, raw: bytes, /) -> tuple[HeaderReading[H], Envelope] | None:
        """Read an envelope; None: it is not known. The headers, or all of the envelope's elements,
        may be missing.
        """

    def learn(self, raw: bytes, reading: HeaderReading[H], /) -> None:
        """Know an envelope that was taken, and what was read of it."""


class UsualMessages(Protocol[H]):
    """How an adapter takes its usual messages without a task, faster than its `SoapHandler`, which
    does the same with any envelope. `H` is what it reads of them.
    """

    def templates(
        self, read: Callable[[bytes], HeaderReading[H] | None], limits: XmlLimits, /
    ) -> EnvelopeTemplates[H]:
        """What reads the envelopes of a form that is known. `read` reads any usual one."""

    def read_usual(self, envelope: Envelope, addressing: Addressing, /) -> H | None:
        """Read an envelope; None: it is not usual. What only reads headers does not look at the
        Body.
        """

    def submit(self, request: SoapRequest, headers: H, answer: SoapAnswer, /) -> bool:
        """Take a message, and call `answer` at once or later. False: it took nothing, and the
        handler is to respond. Of the envelope may be missing what its template leaves out.
        """


class SoapEndpoint:
    """Serves one address, or all paths below it. Every refusal of an envelope is a fault in the
    sender's own version.

    Args:
        listen: http or https, host, port (0: a free one) and path.
        handler: Responds to an envelope.
        limits: The bounds of the server.
        xml_limits: The bounds of an envelope.
        tls: The server's certificate; None for http.
        addressed: Whether faults have the headers of WS-Addressing.
        below: See `BoundedServer`: whether the paths below that of `listen` are served too.
        allow_origins: See `BoundedServer` …
        allow_hosts: … for both.
        usual: Takes the usual messages of simple POSTs; None: none is usual.
        fast_path: Whether simple POSTs are read by `FastPostConnection` and offered to `usual`; the
            responses are the same.
    """

    def __init__(  # noqa: PLR0913 - one for each decision of an adapter
        self,
        listen: URL,
        handler: SoapHandler,
        limits: ServerLimits,
        *,
        xml_limits: XmlLimits | None = None,
        tls: ssl.SSLContext | None = None,
        addressed: bool = True,
        below: bool = False,
        allow_origins: frozenset[str] = frozenset(),
        allow_hosts: frozenset[str] = frozenset(),
        usual: UsualMessages[Any] | None = None,
        fast_path: bool = True,
    ) -> None:
        self._handler = handler
        self._xml_limits = xml_limits or XmlLimits()
        self._usual = usual
        self._templates: EnvelopeTemplates[Any] | None = None
        if usual is not None:
            self._templates = usual.templates(self._read_usual, self._xml_limits)
        self._addressed = addressed
        self.recorder: ExchangeRecorder | None = None
        """Is given what comes and how it is answered; None: nobody looks at it."""
        self.refused: Counter[str] = Counter()
        """Faults sent, by the local name of their code."""
        self._server = BoundedServer(
            listen,
            self._answer,
            limits,
            tls=tls,
            below=below,
            allow_origins=allow_origins,
            allow_hosts=allow_hosts,
            first_protocol=self._new_connection if fast_path else None,
        )
        self._head_parser = RequestHeadParser(
            self._server.serves, limits.max_body_bytes, self._server.origins
        )
        self._answering: set[asyncio.Task[None]] = set()
        self.offload = Offload()
        """Where large envelopes are read, and what adapters make of them."""

    @property
    def address(self) -> str:
        """The URL with the actual port; empty while it does not listen."""
        return self._server.address

    def reconfigure(self, limits: ServerLimits) -> None:
        """See `BoundedServer.reconfigure`."""
        self._server.reconfigure(limits)
        self._head_parser.limit_body(limits.max_body_bytes)

    @property
    def server_refused(self) -> Mapping[str, int]:
        """Connections and requests that the server refused, by reason."""
        return self._server.refused

    async def start(self) -> None:
        """Begin to listen. Raises `SourceError` if that is not possible."""
        await self._server.start()

    async def stop(self) -> None:
        """Stop; accepted requests are still answered, for a short while."""
        await self._server.stop()
        for task in self._answering:
            task.cancel()
        if self._answering:
            await asyncio.wait(self._answering)

    def _new_connection(self, server: BoundedServer, slot: Slot) -> FastPostConnection:
        return FastPostConnection(server, slot, self._head_parser, self._on_post)

    def _on_post(self, post: PostRequest, respond: Respond) -> None:
        large = len(post.body) > self.offload.small_bytes
        recorder = self._taking_recorder()
        if recorder is not None and not large:
            respond = _recorded(recorder, post, respond)
        elif recorder is not None:
            # Where its envelope is in a package, it is found in a thread.
            self._begin(self._handle_post(post, recorder), respond)
            return
        if self._submitted_by_template(post, respond):
            return
        if large:
            self.respond_by_handler(post, respond)
            return
        try:
            received = self._read(post)
        except SoapFaultError as fault:
            respond(self._refusal(post, fault))
            return
        if not self._submitted(post, received, respond):
            self._begin(self._handle(received), respond)

    def respond_by_handler(self, post: PostRequest, respond: Respond) -> None:
        """Respond in a task."""
        self._begin(self._handle_post(post, None), respond)

    def _taking_recorder(self) -> ExchangeRecorder | None:
        """What records the next message, if anything does."""
        recorder = self.recorder
        return recorder if recorder is not None and recorder.takes_next() else None

    def _begin(self, response: Coroutine[Any, Any, Response], respond: Respond) -> None:
        async def answer() -> None:
            respond(await response)

        task = asyncio.ensure_future(answer())
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    def _submitted_by_template(self, post: PostRequest, respond: Respond) -> bool:
        """Whether the message has headers as one before, and is taken."""
        media_type = read_media_type(post.content_type)
        if self._templates is None or not media_type.may_be_xml:
            return False
        try:
            raw = as_utf8(post.body, media_type.charset)
            found = self._templates.find(raw)
        except XmlError:
            return False
        except Exception:  # noqa: BLE001 - the other way answers
            _log.exception("an envelope could not be read by a template")
            return False
        if found is None:
            return False
        reading, envelope = found
        request = SoapRequest(
            envelope, reading.addressing, post.peer, post.path, raw, post.identity
        )
        return self._submit(post, request, reading.headers, respond)

    def _submitted(self, post: PostRequest, received: SoapRequest, respond: Respond) -> bool:
        """Whether the message is usual, and is taken."""
        if self._usual is None:
            return False
        envelope, addressing = received.envelope, received.addressing
        try:
            headers = self._usual.read_usual(envelope, addressing)
        except Exception:  # noqa: BLE001 - the handler answers
            _log.exception("the headers of an envelope could not be read")
            return False
        if headers is None or not self._submit(post, received, headers, respond):
            return False
        assert self._templates is not None
        try:
            # Only of a message that was taken: a stranger makes no template.
            reading = HeaderReading(envelope.version, addressing, headers)
            self._templates.learn(received.raw, reading)
        except Exception:  # noqa: BLE001 - the message is taken
            _log.exception("no template could be made of an envelope")
        return True

    def _submit(
        self, post: PostRequest, request: SoapRequest, headers: Any, respond: Respond
    ) -> bool:
        assert self._usual is not None
        answer = _Answer(self, post, request.envelope.version, request.addressing, respond)
        try:
            return self._usual.submit(request, headers, answer)
        except Exception:  # noqa: BLE001 - the peer gets a fault
            answer(_failed())
            return True

    def _read_usual(self, raw: bytes) -> HeaderReading[Any] | None:
        assert self._usual is not None
        try:
            envelope = read_envelope(raw, self._xml_limits)
            addressing = read_addressing(envelope.headers)
        except SoapFaultError:
            return None
        headers = self._usual.read_usual(envelope, addressing)
        return None if headers is None else HeaderReading(envelope.version, addressing, headers)

    async def _answer(self, request: Request) -> Response:
        stated = request.headers.get("Content-Type", "")
        post = PostRequest(request.body, request.path, stated, request.peer, request.identity)
        return await self._handle_post(post, self._taking_recorder())

    async def _handle_post(self, post: PostRequest, recorder: ExchangeRecorder | None) -> Response:
        size_bytes = len(post.body)
        apart = size_bytes > self.offload.small_bytes
        received: SoapRequest | SoapFaultError
        raw = post.body
        try:
            received = await self.offload.run(size_bytes, partial(self._read, post, apart=apart))
        except Busy:
            received = _busy()
        except SoapFaultError as fault:
            received = fault
        else:
            raw = received.raw
        number = 0 if recorder is None else recorder.received(raw)
        if isinstance(received, SoapFaultError):
            response = self._refusal(post, received)
        else:
            response = await self._handle(received)
        if recorder is not None:
            recorder.answered(number, response)
        return response

    def _read(self, post: PostRequest, *, apart: bool = False) -> SoapRequest:
        """The envelope of a POST; `apart`: in a thread. Raises `SoapFaultError`: it is none."""
        envelope: Envelope | None = None
        try:
            content = read_content(post.body, post.content_type)
            envelope = read_envelope(content.document, self._xml_limits, apart=apart)
            check_included(content, envelope)
            addressing = read_addressing(envelope.headers)
            known = body_and_digest(envelope, content.attachments) if apart else None
        except SoapFaultError as fault:
            fault.version = None if envelope is None else envelope.version
            raise
        except Exception:  # noqa: BLE001 - the peer gets a fault
            raise _failed() from None
        return SoapRequest(
            envelope,
            addressing,
            post.peer,
            post.path,
            content.document,
            post.identity,
            content.attachments,
            known,
        )

    def _refusal(self, post: PostRequest, fault: SoapFaultError) -> Response:
        """The response to a POST without an envelope that could be read."""
        version = fault.version or stated_version(post.body, post.content_type)
        return self._fault(fault, version, Addressing())

    async def _handle(self, received: SoapRequest) -> Response:
        try:
            answer: bytes | SoapFaultError | None = await self._handler(received)
        except SoapFaultError as fault:
            answer = fault
        except Exception:  # noqa: BLE001 - the peer gets a fault
            answer = _failed()
        return self.response(received.envelope.version, received.addressing, answer)

    def response(
        self,
        version: SoapVersion,
        addressing: Addressing,
        answer: bytes | SoapFaultError | None,
    ) -> Response:
        """The response to an envelope of this version and with these headers."""
        if isinstance(answer, SoapFaultError):
            return self._fault(answer, version, addressing)
        if answer is None:
            return _ACCEPTED
        return Response(200, answer, {"Content-Type": content_type(version)})

    def _fault(
        self, fault: SoapFaultError, version: SoapVersion, addressing: Addressing
    ) -> Response:
        code = fault.subcode.rpartition("}")[2] or str(fault.fault_code)
        self.refused[code] += 1
        # The first of each kind is a warning; a hostile sender must not fill the log.
        level = logging.WARNING if self.refused[code] == 1 else logging.DEBUG
        _log.log(level, "an envelope is refused: %s: %s", code, fault.message)
        wsa = addressing.version if self._addressed else None
        root = fault_envelope(fault, version, wsa, relates_to=addressing.message_id)
        status = fault.status or (
            400 if version is SOAP12 and fault.fault_code in _SENDERS else 500
        )
        headers = {"Content-Type": content_type(version)}
        if fault.retry_after_s:
            headers["Retry-After"] = str(fault.retry_after_s)
        return Response(status, xml_bytes(root), headers)


class _Answer(msgspec.Struct, gc=False):
    """A `SoapAnswer`. It keeps the bytes of the envelope, and no element."""

    endpoint: SoapEndpoint
    post: PostRequest
    version: SoapVersion
    addressing: Addressing
    respond: Respond

    def __call__(self, answer: bytes | SoapFaultError | None) -> None:
        self.respond(self.endpoint.response(self.version, self.addressing, answer))

    def decline(self) -> None:
        self.endpoint.respond_by_handler(self.post, self.respond)


def _recorded(recorder: ExchangeRecorder, post: PostRequest, respond: Respond) -> Respond:
    """Record a small POST, and return what records its response and gives it."""
    try:
        document = read_content(post.body, post.content_type).document
    except SoapFaultError:
        document = post.body  # it is refused, and shown as it came
    number = recorder.received(document)

    def responded(response: Response) -> None:
        recorder.answered(number, response)
        respond(response)

    return responded


def _failed() -> SoapFaultError:
    """The fault for an exception that is being handled."""
    _log.exception("an envelope could not be handled for a reason of our own")
    return SoapFaultError(FaultCode.RECEIVER, "it could not be handled")


def _busy() -> SoapFaultError:
    reason = "too many large envelopes are being read: send it again"
    return SoapFaultError(FaultCode.RECEIVER, reason, status=503, retry_after_s=_RETRY_AFTER_S)


def content_type(version: SoapVersion) -> str:
    """The Content-Type of an envelope."""
    return f"{version.media_type}; charset=utf-8"
