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
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

import msgspec
from yarl import URL

from instep_http import BoundedServer, Request, Response, ServerLimits
from instep_http.acceptor import Slot
from instep_http.fast_path import FastPostConnection, PostRequest, RequestHeadParser
from instep_soap.addressing import Addressing, read_addressing
from instep_soap.envelope import Envelope, fault_envelope, read_envelope, xml_bytes
from instep_soap.errors import FaultCode, SoapFaultError
from instep_soap.header_templates import HeaderReading
from instep_soap.names import SOAP11, SOAP12, SoapVersion
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
    """The envelope as it came."""
    identity: str = ""
    """The name in the certificate of the sender; empty where none is asked for."""


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

    @property
    def address(self) -> str:
        """The URL with the actual port; empty while it does not listen."""
        return self._server.address

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
        if self._submitted_by_template(post, respond):
            return
        received = self._read(post)
        if isinstance(received, Response):
            respond(received)
        elif not self._submitted(post, received, respond):
            self._begin(received, respond)

    def respond_by_handler(self, post: PostRequest, respond: Respond) -> None:
        """Respond in a task."""
        received = self._read(post)
        if isinstance(received, Response):
            respond(received)
        else:
            self._begin(received, respond)

    def _begin(self, received: SoapRequest, respond: Respond) -> None:
        task = asyncio.ensure_future(self._respond(received, respond))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    def _submitted_by_template(self, post: PostRequest, respond: Respond) -> bool:
        """Whether the message has headers as one before, and is taken."""
        if self._templates is None:
            return False
        try:
            found = self._templates.find(post.body)
        except Exception:  # noqa: BLE001 - the other way answers
            _log.exception("an envelope could not be read by a template")
            return False
        if found is None:
            return False
        reading, envelope = found
        request = _request(post, envelope, reading.addressing)
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
            self._templates.learn(post.body, HeaderReading(envelope.version, addressing, headers))
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

    async def _respond(self, received: SoapRequest, respond: Respond) -> None:
        respond(await self._handle(received))

    async def _answer(self, request: Request) -> Response:
        stated = request.headers.get("Content-Type", "")
        post = PostRequest(request.body, request.path, stated, request.peer, request.identity)
        received = self._read(post)
        return received if isinstance(received, Response) else await self._handle(received)

    def _read(self, post: PostRequest) -> SoapRequest | Response:
        """The envelope of a POST; a fault where it is none."""
        version: SoapVersion | None = None
        try:
            envelope = read_envelope(post.body, self._xml_limits)
            version = envelope.version
            addressing = read_addressing(envelope.headers)
        except SoapFaultError as error:
            fault = error
        except Exception:  # noqa: BLE001 - the peer gets a fault
            fault = _failed()
        else:
            return _request(post, envelope, addressing)
        return self._fault(fault, version or _version_of(post.content_type), Addressing())

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
        sent_as = SOAP12 if fault.fault_code is FaultCode.VERSION_MISMATCH else version
        status = fault.status or (
            400 if sent_as is SOAP12 and fault.fault_code in _SENDERS else 500
        )
        headers = {"Content-Type": content_type(sent_as)}
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


def _request(post: PostRequest, envelope: Envelope, addressing: Addressing) -> SoapRequest:
    return SoapRequest(envelope, addressing, post.peer, post.path, post.body, post.identity)


def _failed() -> SoapFaultError:
    """The fault for an exception that is being handled."""
    _log.exception("an envelope could not be handled for a reason of our own")
    return SoapFaultError(FaultCode.RECEIVER, "it could not be handled")


def content_type(version: SoapVersion) -> str:
    """The Content-Type of an envelope."""
    return f"{version.media_type}; charset=utf-8"


def _version_of(content_type: str) -> SoapVersion:
    """The version to answer in while the envelope is not read: as the media type states."""
    stated = content_type.partition(";")[0].strip().lower()
    return SOAP11 if stated == SOAP11.media_type else SOAP12
