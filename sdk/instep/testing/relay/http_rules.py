"""Rules for HTTP: what proxies, gateways and the libraries of others do to requests and answers."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import uuid
from collections.abc import AsyncIterator, Callable

from instep.testing.relay.http import Forward, Headers, HttpRule, Request, Response
from instep.testing.relay.rule import Side
from instep.testing.relay.streams import Cut

__all__ = [
    "AbsoluteTarget",
    "AnswerLost",
    "Buffered",
    "Chunked",
    "DuplicateRequest",
    "ErrorMidStream",
    "ExpectContinue",
    "Forwarded",
    "GatewayPage",
    "HeaderCase",
    "HostRewritten",
    "HtmlPage",
    "Http10",
    "KeepAliveRace",
    "LoginRedirect",
    "Multipart",
    "Recompressed",
    "RefreshedResend",
    "Reordered",
    "RetryHeaders",
    "ServiceUnavailable",
    "TooManyRequests",
    "Transcoded",
    "TruncatedBody",
]

_PAGE = (
    b"<!DOCTYPE html><html><head><title>%b</title></head><body><h1>%b</h1><hr>"
    b"<center>proxy</center></body></html>\n"
)


def _page(title: str, status: int) -> Response:
    headers = Headers([("Server", "proxy"), ("Content-Type", "text/html; charset=utf-8")])
    return Response(status, headers, _PAGE % (title.encode(), title.encode()), title)


class _AnswersItself(HttpRule):
    """A proxy that answers instead of the server."""

    async def handle(self, request: Request, forward: Forward) -> Response:
        return self.answer() if self.strikes() else await forward(request)

    def answer(self) -> Response:
        """What it answers to any request."""
        raise NotImplementedError


class HtmlPage(_AnswersItself):
    """An HTML page with status 200 is the answer, as from a captive portal or a single-page
    application behind a wrong path.
    """

    name = "html-page"
    reports = ("AltimateAI/altimate-code #1119", "jellyfin/jellyfin-web #4898")

    def answer(self) -> Response:
        return _page("Please accept the terms of use", 200)


class GatewayPage(_AnswersItself):
    """502 with an HTML page is the answer."""

    name = "gateway-page"
    reports = ("bartve/disconnect #13", "afeld/jsonp #107")

    def answer(self) -> Response:
        return _page("502 Bad Gateway", 502)


class LoginRedirect(_AnswersItself):
    """A redirect to the page of a login is the answer, though there was no request for a page.

    Args:
        location: Where it leads.
    """

    name = "login-redirect"
    reports = ("oauth2-proxy/oauth2-proxy #1393", "louketo/louketo-proxy #273")

    def __init__(
        self,
        location: str = "http://login.invalid/authorize",
        *,
        share: float = 1.0,
        most: int | None = None,
    ) -> None:
        super().__init__(share=share, most=most)
        self.location = location

    def answer(self) -> Response:
        response = _page("Found", 302)
        response.headers.set("Location", self.location)
        return response


class ServiceUnavailable(_AnswersItself):
    """503 with Retry-After is the answer.

    Args:
        retry_after_s: What it asks for, in whole seconds.
    """

    name = "service-unavailable"
    reports = ("databricks/databricks-sdk-py #402", "neochaotic/leoflow #1100")
    status = 503
    reason = "Service Unavailable"

    def __init__(
        self, retry_after_s: int = 1, *, share: float = 1.0, most: int | None = None
    ) -> None:
        super().__init__(share=share, most=most)
        self.retry_after_s = retry_after_s

    def answer(self) -> Response:
        headers = Headers([("Retry-After", str(self.retry_after_s))])
        return Response(self.status, headers, reason=self.reason)


class TooManyRequests(ServiceUnavailable):
    """429 with Retry-After is the answer.

    Args:
        retry_after_s: What it asks for, in whole seconds.
    """

    name = "too-many-requests"
    reports = ("curl/curl #3794", "DouglasdeMoura/chroncal #105")
    status = 429
    reason = "Too Many Requests"


class KeepAliveRace(HttpRule):
    """The server closes a kept connection just when its next request comes: no answer, and the
    request was not carried out.
    """

    name = "keep-alive-race"
    reports = ("nodejs/node #47130", "hyperium/hyper #3553", "yhirose/cpp-httplib #1282")

    async def handle(self, request: Request, forward: Forward) -> Response:
        if request.number > 1 and self.strikes():
            raise Cut
        return await forward(request)


class AnswerLost(HttpRule):
    """The request is carried out, and its answer is lost with the connection."""

    name = "answer-lost"
    reports = ("pleaseai/shunt #126", "apex/up #334")

    async def handle(self, request: Request, forward: Forward) -> Response:
        response = await forward(request)
        if not request.upgrades and self.strikes():
            raise Cut
        return response


class DuplicateRequest(HttpRule):
    """A request with a body is delivered twice, by a proxy that tries again; the second answer is
    passed on.
    """

    name = "duplicate-request"
    reports = ("cloudflare/pingora #979", "apex/up #334")
    sides = frozenset({Side.LISTENER})

    async def handle(self, request: Request, forward: Forward) -> Response:
        if request.body and self.strikes():
            await forward(request.copy())
            request = self.again(request)
        return await forward(request)

    def again(self, request: Request) -> Request:
        """The request as it is delivered the second time."""
        return request


class RetryHeaders(DuplicateRequest):
    """A request is delivered twice, the second time with other HTTP headers."""

    name = "retry-headers"
    reports = ("rmyndharis/OpenWA #1641", "openresty/openresty #351")

    def again(self, request: Request) -> Request:
        """The same request by way of another proxy."""
        trace = f"{self.rng.getrandbits(128):032x}"
        request.headers.set("User-Agent", "retrying-proxy/1.0")
        request.headers.set("Via", "1.1 second-proxy")
        request.headers.set("X-Request-ID", trace)
        request.headers.set("Traceparent", f"00-{trace}-{trace[:16]}-01")
        request.headers.set("X-Envoy-Attempt-Count", "2")
        return request


def _refreshed(request: Request) -> Request:
    """The headers within a message made anew: `created_time` of DIDComm, MessageID of SOAP."""
    if request.body.lstrip()[:1] == b"{":
        message = json.loads(request.body)
        message["created_time"] = message.get("created_time", 1_700_000_000) + 1
        message["sent_count"] = message.get("sent_count", 1) + 1
        request.body = json.dumps(message).encode()
    else:
        made = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, request.body.hex())}"
        request.body = re.sub(
            rb"(<(?:[\w.-]+:)?MessageID\b[^>]*>)[^<]*", rb"\g<1>" + made.encode(), request.body
        )
    return request


class RefreshedResend(DuplicateRequest):
    """A message is sent twice, the second time with the headers within it made anew: another
    created_time, another MessageID; its id, number and content are the same.

    Args:
        refresh: Makes the second request; by default for DIDComm in JSON and for SOAP.
    """

    name = "refreshed-resend"
    reports = ("rmyndharis/OpenWA #1641", "chatmail/core #7890")

    def __init__(
        self,
        refresh: Callable[[Request], Request] = _refreshed,
        *,
        share: float = 1.0,
        most: int | None = None,
    ) -> None:
        super().__init__(share=share, most=most)
        self.refresh = refresh

    def again(self, request: Request) -> Request:
        """The message as its sender would send it again."""
        return self.refresh(request)


class Reordered(HttpRule):
    """A request is held until a later one of another connection was answered.

    Args:
        wait_s: How long it is held at most, in seconds.
    """

    name = "reordered"
    reports = ("KubeElasti/KubeElasti #223", "kaazing/gateway #73")
    sides = frozenset({Side.LISTENER})

    def __init__(self, wait_s: float = 1.0, *, share: float = 1.0, most: int | None = None) -> None:
        super().__init__(share=share, most=most)
        self.wait_s = wait_s
        self._overtaken: asyncio.Event | None = None

    async def handle(self, request: Request, forward: Forward) -> Response:
        if self._overtaken is None and self.may_strike():
            event = self._overtaken = asyncio.Event()
            try:
                self.played += await self.within(self.wait_s, _wait(event))
            finally:
                self._overtaken = None
            return await forward(request)
        response = await forward(request)
        if self._overtaken is not None:
            self._overtaken.set()
        return response


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


class ExpectContinue(HttpRule):
    """A request with a body says Expect: 100-continue, and the body waits for the 100."""

    name = "expect-continue"
    reports = ("dotnet/wcf #4844", "K0M15/webserv #41", "facebook/hhvm #1384")
    sides = frozenset({Side.LISTENER})

    async def handle(self, request: Request, forward: Forward) -> Response:
        if request.body and self.strikes():
            request.expects_continue = True
        return await forward(request)


class Transcoded(HttpRule):
    """The body is written in another charset, and Content-Type says so; what the XML declaration
    says stays.

    Args:
        charset: The charset, by a name that Python knows.
    """

    name = "transcoded"
    reports = ("eclipse-ee4j/metro-saaj #25", "DigDes/SoapCore #918")
    sides = frozenset({Side.LISTENER})

    def __init__(
        self, charset: str = "ISO-8859-1", *, share: float = 1.0, most: int | None = None
    ) -> None:
        super().__init__(share=share, most=most)
        self.charset = charset

    async def handle(self, request: Request, forward: Forward) -> Response:
        if request.body and "xml" in request.media_type and self.strikes():
            text = request.body.decode()
            request.body = text.encode(self.charset, errors="xmlcharrefreplace")
            kind = request.headers.get("Content-Type")
            kept = [part for part in kind.split(";") if "charset" not in part.lower()]
            request.headers.set("Content-Type", ";".join([*kept, f" charset={self.charset}"]))
        return await forward(request)


class Multipart(HttpRule):
    """A SOAP envelope comes as the root part of multipart/related, as MTOM does, with or without
    an attachment.

    Args:
        attachment: Whether there is a second part.
    """

    name = "multipart"
    reports = ("codecentric/cxf-spring-boot-starter #43", "dotnet/wcf #4918", "arskom/spyne #541")
    sides = frozenset({Side.LISTENER})

    def __init__(
        self, *, attachment: bool = False, share: float = 1.0, most: int | None = None
    ) -> None:
        super().__init__(share=share, most=most)
        self.attachment = attachment

    async def handle(self, request: Request, forward: Forward) -> Response:
        if request.body and "xml" in request.media_type and self.strikes():
            kind = request.media_type
            boundary = f"uuid:{uuid.UUID(int=self.rng.getrandbits(128))}"
            parts = [(f'application/xop+xml; charset=UTF-8; type="{kind}"', "root", request.body)]
            if self.attachment:
                parts.append(("application/octet-stream", "attachment", bytes(range(256))))
            request.body = b"".join(
                f"--{boundary}\r\nContent-Type: {media}\r\nContent-Transfer-Encoding: binary\r\n"
                f"Content-ID: <{name}@relay>\r\n\r\n".encode()
                + content
                + b"\r\n"
                for media, name, content in parts
            )
            request.body += f"--{boundary}--\r\n".encode()
            request.headers.set(
                "Content-Type",
                f'multipart/related; type="application/xop+xml"; boundary="{boundary}"; '
                f'start="<root@relay>"; start-info="{kind}"',
            )
        return await forward(request)


class Chunked(HttpRule):
    """Bodies come in many small chunks instead of with their length.

    Args:
        chunk_bytes: The size of a chunk.
    """

    name = "chunked"
    reports = ("nginx/nginx #316", "netty/netty #1401")

    def __init__(
        self, chunk_bytes: int = 7, *, share: float = 1.0, most: int | None = None
    ) -> None:
        super().__init__(share=share, most=most)
        self.chunk_bytes = chunk_bytes

    async def handle(self, request: Request, forward: Forward) -> Response:
        if request.body and self.strikes():
            request.chunk_bytes = self.chunk_bytes
        response = await forward(request)
        if response.pieces is not None and response.chunk_bytes and self.strikes():
            response.pieces = self._small(response.pieces)
        elif response.body and self.strikes():
            response.chunk_bytes = self.chunk_bytes
        return response

    async def _small(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for piece in pieces:
            for at in range(0, len(piece), self.chunk_bytes):
                yield piece[at : at + self.chunk_bytes]


class Recompressed(HttpRule):
    """Bodies are compressed with gzip on the way: requests always, responses where the client
    accepts it.
    """

    name = "recompressed"
    reports = ("clerk/javascript #8159", "preset-io/agor #1104")

    async def handle(self, request: Request, forward: Forward) -> Response:
        if request.body and not request.headers.get("Content-Encoding") and self.strikes():
            request.body = gzip.compress(request.body, mtime=0)
            request.headers.set("Content-Encoding", "gzip")
        accepted = "gzip" in request.headers.get("Accept-Encoding")
        response = await forward(request)
        plain = not response.headers.get("Content-Encoding")
        if response.body and plain and accepted and self.strikes():
            response.body = gzip.compress(response.body, mtime=0)
            response.headers.set("Content-Encoding", "gzip")
        return response


class HeaderCase(HttpRule):
    """The names of headers come in lower case to the server and in capitals to the client."""

    name = "header-case"
    reports = ("http-party/node-http-proxy #40", "mitmproxy/mitmproxy #5")

    async def handle(self, request: Request, forward: Forward) -> Response:
        if not self.strikes():
            return await forward(request)
        request.headers = Headers((name.lower(), value) for name, value in request.headers.fields)
        response = await forward(request)
        fields = response.headers.fields
        response.headers = Headers((name.upper(), value) for name, value in fields)
        return response


class Http10(HttpRule):
    """Requests and responses become HTTP/1.0, and each has a connection of its own; a WebSocket
    stays as it is.
    """

    name = "http-1.0"
    reports = ("matrix-org/synapse #14414", "jasonwyatt/docker-nginx-loadbalancer #5")

    async def handle(self, request: Request, forward: Forward) -> Response:
        if request.upgrades or not self.strikes():
            return await forward(request)
        request.version, request.chunk_bytes = "HTTP/1.0", 0
        request.headers.set("Connection", "close")
        response = await forward(request)
        response.version, response.close = "HTTP/1.0", True
        if response.pieces is not None:
            response.headers.remove("Transfer-Encoding")
            response.chunk_bytes = 0
        return response


class AbsoluteTarget(HttpRule):
    """The request line has the whole URL, as for a proxy."""

    name = "absolute-target"
    reports = ("honojs/node-server #228", "xrootd/xrootd #1675", "zoxy-io/zoxy #233")

    async def handle(self, request: Request, forward: Forward) -> Response:
        if request.target.startswith("/") and self.strikes():
            request.target = f"http://{request.headers.get('Host')}{request.target}"
        return await forward(request)


class HostRewritten(HttpRule):
    """Host names the server by the name that the proxy has for it, as behind a proxy that ends
    TLS.

    Args:
        host: The name, with a port if it has one.
    """

    name = "host-rewritten"
    reports = ("apache/knox #374", "Xpra-org/xpra #2175")

    def __init__(
        self, host: str = "backend.internal", *, share: float = 1.0, most: int | None = None
    ) -> None:
        super().__init__(share=share, most=most)
        self.host = host

    async def handle(self, request: Request, forward: Forward) -> Response:
        if self.strikes():
            request.headers.set("X-Forwarded-Host", request.headers.get("Host"))
            request.headers.set("X-Forwarded-Proto", "https")
            request.headers.set("Host", self.host)
        return await forward(request)


class Forwarded(HttpRule):
    """Headers of proxies are added: X-Forwarded-For, Forwarded, Via, X-Request-ID, Traceparent."""

    name = "forwarded"
    reports = ("http-party/node-http-proxy #967", "mitre/HTTP-Proxy-Servlet #65")

    async def handle(self, request: Request, forward: Forward) -> Response:
        if self.strikes():
            request.headers.fields += [
                ("X-Forwarded-For", "203.0.113.7, 10.0.0.1"),
                ("X-Forwarded-Proto", "https"),
                ("X-Forwarded-Host", "public.example"),
                ("X-Real-IP", "203.0.113.7"),
                ("Forwarded", 'for="[2001:db8::1]:4711";proto=https;host=public.example'),
                ("Via", "1.1 edge, 1.0 inner"),
                ("X-Request-ID", f"{self.rng.getrandbits(128):032x}"),
            ]
        return await forward(request)


class Buffered(HttpRule):
    """Server-sent events are held back until so many bytes have come.

    Args:
        hold_bytes: How many.
    """

    name = "buffered"
    reports = ("nginx/nginx #1505", "vmware-archive/atc #139")
    sides = frozenset({Side.PROVIDER})

    def __init__(
        self, hold_bytes: int = 4096, *, share: float = 1.0, most: int | None = None
    ) -> None:
        super().__init__(share=share, most=most)
        self.hold_bytes = hold_bytes

    async def handle(self, request: Request, forward: Forward) -> Response:
        response = await forward(request)
        if response.pieces is not None and self.strikes():
            response.pieces = self._held(response.pieces)
        return response

    async def _held(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        held = bytearray()
        async for piece in pieces:
            held += piece
            if len(held) >= self.hold_bytes or not self.active:
                yield bytes(held)
                held.clear()
        if held:
            yield bytes(held)


class TruncatedBody(HttpRule):
    """The body of a response is shorter than its Content-Length says, and the connection closes."""

    name = "truncated-body"
    reports = ("psf/requests #4956", "martian56/raven #739")

    async def handle(self, request: Request, forward: Forward) -> Response:
        response = await forward(request)
        if response.body and self.strikes():
            response.stated_bytes = len(response.body)
            response.body = response.body[: len(response.body) // 2]
            response.chunk_bytes = 0
        return response


class ErrorMidStream(HttpRule):
    """The page of an error stands in the middle of a body with status 200, which ends with it.

    Args:
        after_pieces: How many pieces of a stream come before.
    """

    name = "error-mid-stream"
    reports = ("opennextjs/opennextjs-netlify #3532", "httpwg/http-core #895")

    def __init__(
        self, after_pieces: int = 5, *, share: float = 1.0, most: int | None = None
    ) -> None:
        super().__init__(share=share, most=most)
        self.after_pieces = after_pieces

    async def handle(self, request: Request, forward: Forward) -> Response:
        response = await forward(request)
        if response.pieces is not None:
            response.pieces = self._broken(response.pieces)
        elif response.status == 200 and response.body and self.strikes():
            response.body = response.body[: len(response.body) // 2] + _error_page()
        return response

    async def _broken(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        place = 0
        async for piece in pieces:
            place += 1
            if place > self.after_pieces and self.strikes():
                yield piece[: len(piece) // 2] + _error_page()
                return
            yield piece


def _error_page() -> bytes:
    return _page("500 Internal Server Error", 500).body
