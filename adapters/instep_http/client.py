"""An HTTP client with bounds: TLS, proxy, time, size, redirects and addresses. It raises errors of
instep only.
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import msgspec
import tenacity
from aiohttp.typedefs import LooseCookies
from multidict import CIMultiDictProxy
from yarl import URL

from instep.config.secret import Secret
from instep.errors import SourceError, UnreachableError
from instep_http.address_policy import ANY_ADDRESS, AddressPolicy, literal_address
from instep_http.errors import (
    FOREIGN_ERRORS,
    BodyTooBig,
    retry_later,
    source_error,
)
from instep_http.redirects import SAME_ORIGIN, RedirectPolicy
from instep_http.urls import parse_url, shown

__all__ = ["Answer", "ClientSettings", "GuardedClient", "post_with_retries"]

MIB: Final = 1024 * 1024
_MAX_ERROR_BYTES: Final = 64 * 1024
_LONGEST_WAIT_S: Final = 5.0
_MAX_RETRY_AFTER_S: Final = 86_400.0
_NO_URL: Final = URL()
_ANYWHERE: Final = frozenset({"accept", "content-encoding", "content-type", "user-agent"})
"""Headers that describe the content; only these are sent to another origin."""


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of a client."""

    connect_timeout_s: float = 10.0
    """Longest wait for a connection, including the TLS handshake."""
    read_timeout_s: float = 60.0
    """Longest wait between two reads of a response."""
    total_timeout_s: float | None = None
    """Longest whole exchange, including its redirects; None: no bound."""
    max_body_bytes: int = 256 * MIB
    """Largest response body, after decompression. A body with a status of 300 or above is truncated
    at 64 KiB.
    """
    max_connections: int = 64
    """Most connections at once; further requests wait."""
    cookies: bool = False
    """Keep cookies, in memory, for the hosts that set them."""
    max_cookies: int = 100
    """Most cookies; one more, and all are removed."""
    proxy: Secret | None = None
    """URL of an HTTP proxy, which may hold its password."""
    tls_hint: str = ""
    """The hint of an error when a certificate is not accepted."""
    certificate_hint: str = ""
    """The hint of an error when the server wants a client certificate."""
    body_hint: str = ""
    """The hint of an error when a response is too large."""


class Answer(msgspec.Struct, frozen=True):
    """The response to a request, with any status."""

    url: URL
    """The URL that responded, after redirects."""
    status: int
    headers: CIMultiDictProxy[str]
    body: bytes

    def retry_after_s(self, now_s: float) -> float:
        """The wait that Retry-After asks for (RFC 9110 10.2.3), in seconds: 0 if it is missing or
        not readable, a day at most. `now_s` is the time in seconds since 1970 UTC.
        """
        stated = self.headers.get("Retry-After", "").strip()
        if stated.isascii() and stated.isdecimal():
            wait_s = float(stated[:9])
        else:
            try:
                wait_s = parsedate_to_datetime(stated).timestamp() - now_s
            except (ValueError, TypeError, LookupError, OverflowError, OSError):
                return 0.0
        return min(max(wait_s, 0.0), _MAX_RETRY_AFTER_S)


class GuardedClient:
    """Sends requests to servers that may be hostile.

    It raises no error of a library: every error is a `SourceError`. Every redirect is a request of
    its own, with the same bounds and the same check of its address. Connections are made at first
    use, in the running loop, and kept until `close`; after that the client can be used again. It
    can be used as an async context.

    Args:
        settings: The bounds of the client.
        tls: How servers are verified.
        redirects: The policy for redirects, unless `send` names another.
        addresses: The policy for IP addresses. A proxy resolves names itself: then only addresses
            in URLs are checked here.
    """

    def __init__(
        self,
        settings: ClientSettings,
        tls: ssl.SSLContext,
        *,
        redirects: RedirectPolicy = SAME_ORIGIN,
        addresses: AddressPolicy = ANY_ADDRESS,
    ) -> None:
        self._settings = settings
        self._tls = tls
        self._redirects = redirects
        self._addresses = addresses
        self._session: aiohttp.ClientSession | None = None
        self._answered = False
        self._ended = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def send(  # noqa: PLR0913 - what a request can differ in
        self,
        method: str,
        url: URL | str,
        *,
        headers: Mapping[str, str] | None = None,
        data: bytes | Mapping[str, str] | None = None,
        json: object = None,
        redirects: RedirectPolicy | None = None,
        max_body_bytes: int | None = None,
        cut: bool = False,
        total_timeout_s: float | None = None,
        on_head: Callable[[CIMultiDictProxy[str]], None] | None = None,
    ) -> Answer:
        """Send a request and read the response; no status raises an error.

        Args:
            method: GET, POST …
            url: An http or https URL; it may come from a peer.
            headers: Headers; only those that describe the content are sent to another origin.
            data: The body, or the fields of a form.
            json: The body as an object to encode as JSON, instead of `data`.
            redirects: Instead of the client's own policy.
            max_body_bytes: Instead of the settings' limit.
            cut: Whether a longer response is truncated; otherwise it is an error.
            total_timeout_s: Instead of the settings' limit.
            on_head: Called with the headers of each response as soon as they arrive.

        Raises:
            UnreachableError: No connection, no response in time, or a redirect that is not
                followed.
            TlsError: The certificate is not accepted.
            SourceError: Not a usable URL, or a response over the limit.
        """
        settings = self._settings
        limit_bytes = settings.max_body_bytes if max_body_bytes is None else max_body_bytes
        limit_s = settings.total_timeout_s if total_timeout_s is None else total_timeout_s
        policy = self._redirects if redirects is None else redirects
        body: dict[str, Any] = {"data": data} if json is None else {"json": json}
        target = start = parse_url(url)
        sent = dict(headers or {})
        followed = 0
        try:
            async with asyncio.timeout(limit_s):
                while True:
                    answer = await self._exchange(
                        method, target, sent, body, limit_bytes, on_head, cut=cut
                    )
                    location = answer.headers.get("Location")
                    if answer.status not in policy.statuses or location is None:
                        return answer
                    if followed == policy.max_redirects:
                        raise UnreachableError(
                            "too many redirects",
                            where=shown(start),
                            retriable=False,
                            retriable_after_success=True,
                        )
                    followed += 1
                    target = parse_url(policy.target(target, answer.status, location))
                    if target.origin() != start.origin():
                        sent = {n: v for n, v in sent.items() if n.lower() in _ANYWHERE}
                    if answer.status == 303 or (answer.status in {301, 302} and method == "POST"):
                        method, body = "GET", {}
        except FOREIGN_ERRORS as error:
            raise source_error(
                error,
                target,
                tls_hint=settings.tls_hint,
                # A server that has answered takes our certificate: then the connection is lost.
                certificate_hint="" if self._answered else settings.certificate_hint,
                body_hint=settings.body_hint,
            ) from error

    def session(self) -> aiohttp.ClientSession:
        """The aiohttp session, for uses other than request and response. Its user has to bound
        redirects, time and size.
        """
        if self._ended:
            raise UnreachableError("the client has ended", where="http", retriable=False)
        if self._session is None:
            settings = self._settings
            proxy = settings.proxy.reveal() if settings.proxy is not None else None
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    ssl=self._tls,
                    limit=settings.max_connections,
                    socket_factory=self._new_socket if proxy is None else None,
                ),
                timeout=aiohttp.ClientTimeout(
                    total=None,
                    connect=settings.connect_timeout_s,
                    sock_connect=settings.connect_timeout_s,
                    sock_read=settings.read_timeout_s,
                ),
                cookie_jar=_BoundedJar(settings.max_cookies)
                if settings.cookies
                else aiohttp.DummyCookieJar(),
                proxy=proxy,
            )
        return self._session

    async def close(self, *, for_good: bool = False) -> None:
        """Close the connections. Safe to call again. With `for_good` the client cannot be used
        again: requests under way are not tried again.
        """
        self._ended = self._ended or for_good
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _exchange(
        self,
        method: str,
        url: URL,
        headers: Mapping[str, str],
        body: Mapping[str, Any],
        limit_bytes: int,
        on_head: Callable[[CIMultiDictProxy[str]], None] | None,
        *,
        cut: bool,
    ) -> Answer:
        if self._settings.proxy is not None and (ip := literal_address(url.host or "")):
            self._addresses.check(ip)
        async with self.session().request(
            method, url, headers=headers, allow_redirects=False, **body
        ) as response:
            self._answered = True
            if on_head is not None:
                on_head(response.headers)
            if response.status >= 300:
                limit_bytes, cut = min(limit_bytes, _MAX_ERROR_BYTES), True
            read = await _read_body(response, limit_bytes, cut=cut)
            return Answer(url, response.status, response.headers, read)

    def _new_socket(self, address: tuple[Any, ...]) -> socket.socket:
        """Make a socket for an address that a name was resolved to, or that a URL states, after
        checking the address.
        """
        family, kind, protocol, _, (host, *_) = address
        self._addresses.check(ip_address(host))
        return socket.socket(family, kind, protocol)


class _BoundedJar(aiohttp.CookieJar):
    """Keeps cookies, also of hosts that are IP addresses. Above the bound, all are removed."""

    def __init__(self, max_cookies: int) -> None:
        super().__init__(unsafe=True)
        self._max_cookies = max_cookies

    def update_cookies(self, cookies: LooseCookies, response_url: URL = _NO_URL) -> None:
        super().update_cookies(cookies, response_url)
        if len(self) > self._max_cookies:
            self.clear()


async def _read_body(response: aiohttp.ClientResponse, limit_bytes: int, *, cut: bool) -> bytes:
    """Read the decompressed body. Over the limit it raises `BodyTooBig`, or with `cut`
    truncates.
    """
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > limit_bytes:
            if not cut:
                raise BodyTooBig(limit_bytes)
            del body[limit_bytes:]
            break
    return bytes(body)


class _RetryLater(Exception):
    """A response that asks to retry later."""

    def __init__(self, answer: Answer, wait_s: float) -> None:
        super().__init__()
        self.answer = answer
        self.wait_s = wait_s


async def post_with_retries(  # noqa: PLR0913 - clock and randomness come from outside
    client: GuardedClient,
    url: URL | str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    attempts: int,
    rng: random.Random,
    now: Callable[[], float],
    redirects: RedirectPolicy | None = None,
    retry_on: Callable[[int], bool] = retry_later,
    cut: bool = False,
    once: bool = False,
) -> Answer:
    """POST; try again if the server is unreachable or asks for it, with growing waits of 5 s at
    most.

    The server may receive the body more than once, because a response can be lost.

    Args:
        client: The client to send with.
        url: See `GuardedClient.send`, as for body and headers.
        body: The same each time.
        headers: The same each time.
        attempts: Most requests in total.
        rng: Randomness for the jitter between two requests.
        now: The time in seconds since 1970 UTC, for a Retry-After that is a date.
        redirects: Instead of the client's own policy.
        retry_on: Returns whether a status means to retry later.
        cut: See `GuardedClient.send`.
        once: Whether it is not sent again where the server may have received it.

    Returns:
        The last response, whose status may still mean to retry later.

    Raises:
        SourceError: See `GuardedClient.send`; a retriable error was met in all `attempts`.
    """

    async def post() -> Answer:
        answer = await client.send(
            "POST", url, headers=headers, data=body, redirects=redirects, cut=cut
        )
        if retry_on(answer.status):
            raise _RetryLater(answer, answer.retry_after_s(now()))
        return answer

    def wait_s(state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked_s = error.wait_s if isinstance(error, _RetryLater) else 0.0
        longest_s = min(_LONGEST_WAIT_S, max(asked_s, 0.1 * 2.0**state.attempt_number))
        return longest_s * rng.uniform(0.5, 1.0)

    def retriable(error: BaseException) -> bool:
        return isinstance(error, _RetryLater) or (
            isinstance(error, SourceError)
            and error.retriable
            and not (once and error.data.get("maybe_received"))
        )

    retrying = tenacity.AsyncRetrying(
        wait=wait_s,
        stop=tenacity.stop_after_attempt(attempts),
        retry=tenacity.retry_if_exception(retriable),
        reraise=True,
    )
    try:
        return await retrying(post)
    except _RetryLater as later:
        return later.answer
