"""A SOAP endpoint over HTTP (SOAP 1.2 Part 2, 7; SOAP 1.1, 6): envelopes in, envelopes out.

The fast path exists only for its speed. `bench`, on two cores under heavy load, processor time of a
durable and acknowledged message with it and without it: 244 and 392 µs (wsrm-100), 251 and 387 µs
(wsr-100); medians of two rounds. A test of each adapter compares what both ways answer and deliver.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from yarl import URL

from instep_http import BoundedServer, Request, Response, ServerLimits
from instep_http.acceptor import Slot
from instep_http.fast_path import FastPostConnection, PostRequest, RequestHeadParser
from instep_soap.addressing import Addressing, read_addressing
from instep_soap.envelope import Envelope, fault_envelope, read_envelope, xml_bytes
from instep_soap.errors import FaultCode, SoapFaultError
from instep_soap.names import SOAP11, SOAP12, SoapVersion
from instep_soap.xml import XmlLimits

__all__ = ["SoapEndpoint", "SoapHandler", "SoapRequest", "SoapSubmit", "content_type"]

_ACCEPTED: Final = Response(202)
_SENDERS: Final = frozenset({FaultCode.SENDER})

_log = logging.getLogger("instep.soap")


class SoapRequest(msgspec.Struct, frozen=True):
    """An envelope that was received, with its addressing."""

    envelope: Envelope
    addressing: Addressing
    peer: str
    """The IP address of the sender, which may be a proxy."""
    path: str
    """The path that it was sent to."""


SoapHandler = Callable[[SoapRequest], Awaitable[bytes | None]]
"""Returns the envelope of the response; None: 202 without one. A `SoapFaultError` is the response,
any other exception becomes a fault of the receiver.
"""


SoapSubmit = Callable[[SoapRequest, Callable[[bytes | SoapFaultError | None], None]], bool]
"""`submit(request, answer)` takes an envelope without a task: it calls `answer` once, at once or
later, with what the handler would return or raise. False: it took nothing, and the handler is to
respond.
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
        submit: Takes the usual envelopes of simple POSTs, faster than `handler`; None: there are
            none.
        fast_path: Whether simple POSTs are read by `FastPostConnection` and offered to `submit`;
            the responses are the same.
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
        submit: SoapSubmit | None = None,
        fast_path: bool = True,
    ) -> None:
        self._handler = handler
        self._submit = submit
        self._xml_limits = xml_limits or XmlLimits()
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

    def _on_post(self, post: PostRequest, respond: Callable[[Response], None]) -> None:
        received = self._read(post)
        if isinstance(received, Response):
            respond(received)
        elif not self._submitted(received, respond):
            task = asyncio.ensure_future(self._respond(received, respond))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    def _submitted(self, received: SoapRequest, respond: Callable[[Response], None]) -> bool:
        if self._submit is None:
            return False
        try:
            return self._submit(received, lambda answer: respond(self._response(received, answer)))
        except Exception:  # noqa: BLE001 - the peer gets a fault
            respond(self._response(received, _failed()))
            return True

    async def _respond(self, received: SoapRequest, respond: Callable[[Response], None]) -> None:
        respond(await self._handle(received))

    async def _answer(self, request: Request) -> Response:
        stated = request.headers.get("Content-Type", "")
        received = self._read(PostRequest(request.body, request.path, stated, request.peer))
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
            return SoapRequest(envelope, addressing, post.peer, post.path)
        return self._fault(fault, version or _version_of(post.content_type), Addressing())

    async def _handle(self, received: SoapRequest) -> Response:
        try:
            answer: bytes | SoapFaultError | None = await self._handler(received)
        except SoapFaultError as fault:
            answer = fault
        except Exception:  # noqa: BLE001 - the peer gets a fault
            answer = _failed()
        return self._response(received, answer)

    def _response(self, received: SoapRequest, answer: bytes | SoapFaultError | None) -> Response:
        version = received.envelope.version
        if isinstance(answer, SoapFaultError):
            return self._fault(answer, version, received.addressing)
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
