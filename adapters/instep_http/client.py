"""Requests within bounds: TLS, proxy, time, size, redirects and addresses; errors are ours."""

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
"""Headers that describe the content, and go to another origin with it."""


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of a client."""

    connect_timeout_s: float = 10.0
    """Longest wait for a connection, TLS included."""
    read_timeout_s: float = 60.0
    """Longest silence within an answer."""
    total_timeout_s: float | None = None
    """Longest whole exchange with all its redirects, however steadily it drips; None: any."""
    max_body_bytes: int = 256 * MIB
    """Largest answer, after decompression; one with a status of 300 or above is cut at 64 KiB."""
    max_connections: int = 64
    """Most at once; a request beyond waits."""
    cookies: bool = False
    """Keep cookies, in memory, for the hosts that set them."""
    max_cookies: int = 100
    """More than these are all forgotten."""
    proxy: Secret | None = None
    """URL of an HTTP proxy, which may hold its password."""
    tls_hint: str = ""
    """What an error advises where a certificate is not accepted."""
    body_hint: str = ""
    """What an error advises where an answer is too big."""


class Answer(msgspec.Struct, frozen=True):
    """What a request brought; any status."""

    url: URL
    """The one that answered, after redirects."""
    status: int
    headers: CIMultiDictProxy[str]
    body: bytes

    def retry_after_s(self, now_s: float) -> float:
        """When to come again, by Retry-After (RFC 9110 10.2.3): seconds from now, 0 where it is
        not stated or not readable, a day at most. `now_s` is the time in seconds since 1970 UTC.
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
    """Sends requests to servers that may mean harm.

    No error of a library leaves it: all is `SourceError`. Every redirect is a request of its own,
    with the same bounds and the same check of its address. The connections are made at first use,
    in the loop that uses them, and live until `close`; then the client can be used again. It may
    be used as an async context.

    Args:
        settings: Its bounds.
        tls: How servers are verified.
        redirects: Which are followed, where `send` does not name others.
        addresses: Which addresses are connected to. Through a proxy the proxy resolves names: then
            only addresses in URLs are checked here.
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
        """Send a request and read the answer; every status is one.

        Args:
            method: GET, POST …
            url: http or https; may be what somebody else stated.
            headers: To another origin only those go that describe the content.
            data: The body, or the fields of a form.
            json: The body instead, written as JSON.
            redirects: Instead of the client's own policy.
            max_body_bytes: Instead of the settings' limit.
            cut: Cut a longer answer there; else it is an error.
            total_timeout_s: Instead of the settings' limit.
            on_head: Is given the headers of each answer as soon as they are there.

        Raises:
            UnreachableError: No connection, no answer in time, a redirect that is not followed.
            TlsError: The certificate is not accepted.
            SourceError: No URL, or an answer over the limit.
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
                            "too many redirects", where=shown(start), retriable=False
                        )
                    followed += 1
                    target = parse_url(policy.target(target, answer.status, location))
                    if target.origin() != start.origin():
                        sent = {n: v for n, v in sent.items() if n.lower() in _ANYWHERE}
                    if answer.status == 303 or (answer.status in {301, 302} and method == "POST"):
                        method, body = "GET", {}
        except FOREIGN_ERRORS as error:
            raise source_error(
                error, target, tls_hint=settings.tls_hint, body_hint=settings.body_hint
            ) from error

    def session(self) -> aiohttp.ClientSession:
        """The connections and cookies, for what is no exchange of request and answer; whoever uses
        them directly looks after redirects and bounds.
        """
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

    async def close(self) -> None:
        """Close the connections. Safe to call again."""
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
            if on_head is not None:
                on_head(response.headers)
            if response.status >= 300:
                limit_bytes, cut = min(limit_bytes, _MAX_ERROR_BYTES), True
            read = await _read_body(response, limit_bytes, cut=cut)
            return Answer(url, response.status, response.headers, read)

    def _new_socket(self, address: tuple[Any, ...]) -> socket.socket:
        """A socket for one address that a name was resolved to, or that a URL states."""
        family, kind, protocol, _, (host, *_) = address
        self._addresses.check(ip_address(host))
        return socket.socket(family, kind, protocol)


class _BoundedJar(aiohttp.CookieJar):
    """Keeps cookies, also of hosts without a name; too many are all forgotten."""

    def __init__(self, max_cookies: int) -> None:
        super().__init__(unsafe=True)
        self._max_cookies = max_cookies

    def update_cookies(self, cookies: LooseCookies, response_url: URL = _NO_URL) -> None:
        super().update_cookies(cookies, response_url)
        if len(self) > self._max_cookies:
            self.clear()


async def _read_body(response: aiohttp.ClientResponse, limit_bytes: int, *, cut: bool) -> bytes:
    """The body, decompressed. Over the limit it raises `BodyTooBig`, or is cut there."""
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
    """An answer that asks to come again."""

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
) -> Answer:
    """POST, again where the server is away or says later, with growing waits of 5 s at most.

    The server may get the body more than once: an answer can be lost.

    Args:
        client: Sends it.
        url: See `GuardedClient.send`, as for body and headers.
        body: The same each time.
        headers: The same each time.
        attempts: Most requests in all.
        rng: For the jitter between two of them.
        now: The time in seconds since 1970 UTC, for a Retry-After that is a date.
        redirects: Instead of the client's own policy.
        retry_on: Which statuses mean later.
        cut: See `GuardedClient.send`.

    Returns:
        The last answer, which may still be one that means later.

    Raises:
        SourceError: See `GuardedClient.send`; what is retriable was tried `attempts` times.
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
            isinstance(error, SourceError) and error.retriable
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
