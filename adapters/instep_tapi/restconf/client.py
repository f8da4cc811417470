"""RESTCONF requests of one source, with login and limits (RFC 8040)."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
from multidict import CIMultiDictProxy
from yarl import URL

from instep.runtime.clock import steady_now
from instep_http import NO_REDIRECTS, ClientSettings, GuardedClient
from instep_tapi.options import Options
from instep_tapi.restconf.auth import Authenticator

__all__ = [
    "CERTIFICATE_HINT",
    "TLS_HINT",
    "Response",
    "RestconfClient",
    "error_text",
    "new_client",
    "restconf_root",
]

TLS_HINT = (
    "give the issuer as tls.ca (--ca); a client certificate as tls.cert and tls.key;"
    ' tls.verify = "off" (--insecure) trusts whoever answers'
)

CERTIFICATE_HINT = "give one that the server accepts as tls.cert, and its key as tls.key"

_YANG_JSON = "application/yang-data+json"
_ACCEPT = f"{_YANG_JSON}, application/json;q=0.9"
_MAX_CONNECTIONS = 100
_MAX_HOST_META_BYTES = 64 * 1024
_MAX_ERROR_TEXT = 200
_DATE_ERROR_US = 2_000_000


def new_client(options: Options, tls: ssl.SSLContext) -> GuardedClient:
    """The HTTP client of one instance of a provider; a redirect carries our login to no other
    origin.
    """
    return GuardedClient(
        ClientSettings(
            connect_timeout_s=options.connect_timeout_s,
            read_timeout_s=options.request_timeout_s,
            max_body_bytes=options.max_body_bytes,
            # Each stream of server-sent events keeps one.
            max_connections=_MAX_CONNECTIONS + options.max_streams,
            cookies=True,
            proxy=options.proxy,
            tls_hint=TLS_HINT,
            certificate_hint=CERTIFICATE_HINT,
            body_hint="max_body_bytes",
        ),
        tls,
    )


class Response(msgspec.Struct, frozen=True):
    """The answer to a request: its status and undecoded body."""

    url: str
    status: int
    body: bytes

    @property
    def found(self) -> bool:
        """Whether there is content."""
        return self.status == HTTPStatus.OK


class RestconfClient:
    """Sends the requests of one source.

    `longest_answer_s` bounds a whole answer, however slowly it comes. `headers` adds headers of our
    own to those of the login. `clock_offset_us` is the
    provider's clock minus ours by the Date headers, which have whole seconds; a smaller difference
    reads as 0.
    """

    def __init__(
        self,
        client: GuardedClient,
        auth: Authenticator,
        max_body_bytes: int,
        longest_answer_s: float,
        now: Callable[[], float] = steady_now,
        headers: Callable[[Mapping[str, str]], Mapping[str, str]] = dict,
    ) -> None:
        self._client = client
        self._auth = auth
        self._headers = headers
        self._max_body_bytes = max_body_bytes
        self._longest_answer_s = longest_answer_s
        self._now = now
        self.clock_offset_us = 0
        self.clock_error_us = _DATE_ERROR_US
        """How far `clock_offset_us` may be wrong: by the steps of a Date, and the round trip."""
        self.tap: Callable[[Response], None] | None = None
        """Is given the answer to each GET, where somebody judges the provider."""

    async def get(
        self, url: URL, *, accept: str = _ACCEPT, limit_bytes: int = 0, cut_bytes: int = 0
    ) -> Response:
        """GET with login; 401 is answered by one renewal of it. A body over `limit_bytes` (0: over
        that of the client) is an error. One that need not be whole is cut at `cut_bytes`.

        Raises `AuthenticationError`, `UnreachableError`, `TlsError`; any other status is an answer.
        """
        headers = await self._auth.headers()
        answer = await self._send(url, headers, accept, limit_bytes, cut_bytes)
        if answer.status == 401:
            headers = await self._auth.renew(headers, str(url))
            answer = await self._send(url, headers, accept, limit_bytes, cut_bytes)
            if answer.status == 401:
                raise self._auth.refusal(str(url))
        return answer

    async def change(self, method: str, url: URL, content: bytes | None) -> Response:
        """POST or DELETE with login. It is sent again only after a 401, which changed nothing.

        Raises as `get`. After an `UnreachableError` it is not known whether it was carried out.
        """
        headers = await self._auth.headers()
        answer = await self._change(method, url, headers, content)
        if answer.status == 401:
            headers = await self._auth.renew(headers, str(url))
            answer = await self._change(method, url, headers, content)
            if answer.status == 401:
                raise self._auth.refusal(str(url))
        return answer

    async def _change(
        self, method: str, url: URL, headers: dict[str, str], content: bytes | None
    ) -> Response:
        typed = {} if content is None else {"Content-Type": _YANG_JSON}
        answer = await self._client.send(
            method,
            url,
            headers={**self._headers(headers), "Accept": _ACCEPT, **typed},
            data=content,
            redirects=NO_REDIRECTS,
            total_timeout_s=self._longest_answer_s,
        )
        return Response(str(url), answer.status, answer.body)

    async def _send(
        self, url: URL, headers: dict[str, str], accept: str, limit_bytes: int, cut_bytes: int
    ) -> Response:
        most_bytes = min(limit_bytes or self._max_body_bytes, self._max_body_bytes)
        sent_s = self._now()

        def note_clock(found: CIMultiDictProxy[str]) -> None:
            self._note_clock(found.get("Date"), sent_s)

        answer = await self._client.send(
            "GET",
            url,
            headers={**self._headers(headers), "Accept": accept},
            max_body_bytes=cut_bytes or most_bytes,
            cut=bool(cut_bytes),
            total_timeout_s=self._longest_answer_s,
            on_head=note_clock,
        )
        response = Response(str(url), answer.status, answer.body)
        if self.tap is not None and not cut_bytes:
            self.tap(response)
        return response

    def _note_clock(self, date: str | None, sent_s: float) -> None:
        if date is None:
            return
        try:
            stated_s = parsedate_to_datetime(date).timestamp() + 0.5
        except (ValueError, TypeError, LookupError, OverflowError, OSError):
            return
        received_s = self._now()
        offset_s = stated_s - (sent_s + received_s) / 2
        self.clock_offset_us = round(offset_s * 1_000_000) if abs(offset_s) > 1 else 0
        round_trip_s = max(0.0, received_s - sent_s)
        self.clock_error_us = _DATE_ERROR_US + round(round_trip_s * 1_000_000)

    async def host_meta(self, endpoint: URL) -> str | None:
        """The RESTCONF root that `/.well-known/host-meta` names (RFC 8040 3.1), if it names one."""
        answer = await self.get(
            endpoint.with_path("/.well-known/host-meta"),
            accept="application/xrd+xml, application/jrd+json;q=0.9",
            cut_bytes=_MAX_HOST_META_BYTES,  # a web site may answer every path with its own page
        )
        return restconf_root(answer.body, endpoint) if answer.found else None


def restconf_root(document: bytes, endpoint: URL) -> str | None:
    """The path of the link `restconf` in an XRD or JRD document; None where there is none.

    A root on another host than the one that was asked is no root of this provider.
    """
    hrefs: list[Any] = []
    if document.lstrip()[:1] == b"{":
        try:
            links = msgspec.json.decode(document).get("links", [])
            hrefs = [link.get("href") for link in links if link.get("rel") == "restconf"]
        except (msgspec.MsgspecError, RecursionError, AttributeError, TypeError, ValueError):
            return None
    else:
        try:
            text = document.decode()
            if "<!DOCTYPE" in text:  # it could declare entities without end
                return None
            tree = ET.fromstring(text)  # noqa: S314 - no document type, bounded size
        except (ET.ParseError, ValueError, LookupError):
            return None
        hrefs = [link.get("href") for link in tree.iter() if link.get("rel") == "restconf"]
    for href in hrefs:
        try:
            url = endpoint.join(URL(href)) if isinstance(href, str) else None
        except ValueError:
            continue
        if url is not None and url.host == endpoint.host:
            return url.path.rstrip("/")
    return None


def error_text(body: bytes) -> str:
    """The first error-message or error-tag of an RFC 8040 errors body, empty if it has none."""
    try:
        answer = msgspec.json.decode(body)
        errors = answer.get("ietf-restconf:errors") or answer.get("errors") or {}
        first = errors["error"][0]
        return str(first.get("error-message") or first.get("error-tag") or "")[:_MAX_ERROR_TEXT]
    except (ValueError, RecursionError, AttributeError, TypeError, LookupError):
        return ""
