"""Carries an envelope to a peer's endpoint by HTTP POST (DIDComm 2.1, "Transports").

Redirects: 307 alone, a few times, and never to where the envelope is less protected: from https to
http, or, for one that is not encrypted, to another origin.
"""

from __future__ import annotations

import random
import ssl
from types import TracebackType
from typing import Final, Self

import aiohttp
import tenacity
from yarl import URL

from instep.errors import SourceError, TlsError, UnreachableError
from instep_didcomm.wire.envelope import MEDIA_TYPES, Form

__all__ = ["EnvelopeClient", "RefusedByPeerError"]

_MOST_REDIRECTS: Final = 3
_LONGEST_WAIT_S: Final = 5.0
_MOST_CONNECTIONS: Final = 64
_LATER: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


class RefusedByPeerError(SourceError):
    """The peer answered that it will not take this message."""

    code = "refused-by-peer"


class EnvelopeClient:
    """Posts envelopes. Use it as an async context.

    Args:
        tls: How peers are verified.
        timeout_s: Longest wait for one answer.
        attempts: How often one delivery knocks where the peer is away or says later.
        rng: For the jitter between two attempts.
    """

    def __init__(
        self, tls: ssl.SSLContext, timeout_s: float, attempts: int, rng: random.Random
    ) -> None:
        self._tls = tls
        self._timeout_s = timeout_s
        self._attempts = attempts
        self._rng = rng
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls, limit=_MOST_CONNECTIONS),
            timeout=aiohttp.ClientTimeout(total=self._timeout_s),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def deliver(self, endpoint: str, envelope: bytes, form: Form) -> None:
        """Post until the peer has taken it. Raises `SourceError`: it has not, as far as we know."""

        def wait_s(state: tenacity.RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            asked_s = (
                error.data.get("retry_after_s", 0.0) if isinstance(error, SourceError) else 0.0
            )
            longest = min(_LONGEST_WAIT_S, max(asked_s, 0.1 * 2.0**state.attempt_number))
            return longest * self._rng.uniform(0.5, 1.0)

        retrying = tenacity.AsyncRetrying(
            wait=wait_s,
            stop=tenacity.stop_after_attempt(self._attempts),
            retry=tenacity.retry_if_exception(
                lambda error: isinstance(error, SourceError) and error.retriable
            ),
            reraise=True,
        )
        await retrying(self._deliver, URL(endpoint), envelope, form)

    async def _deliver(self, url: URL, envelope: bytes, form: Form) -> None:
        for _ in range(_MOST_REDIRECTS + 1):
            target = await self._post(url, envelope, form)
            if target is None:
                return
            _check_redirect(url, target, form)
            url = target
        raise RefusedByPeerError("too many redirects", where=str(url))

    async def _post(self, url: URL, envelope: bytes, form: Form) -> URL | None:
        """Where the peer sends us on; None where it has taken the message."""
        assert self._session is not None, "use the client as an async context"
        where = str(url.with_query(None))
        try:
            async with self._session.post(
                url,
                data=envelope,
                headers={"Content-Type": MEDIA_TYPES[form]},
                allow_redirects=False,
            ) as response:
                status = response.status
                location = response.headers.get("Location", "")
                asked = response.headers.get("Retry-After", "")
        except aiohttp.ClientConnectorCertificateError as error:
            raise TlsError("the peer's certificate is not accepted", where=where) from error
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise UnreachableError(
                f"the peer does not answer ({type(error).__name__})", where=where
            ) from error
        if 200 <= status < 300:
            return None
        if status == 307:
            try:
                return url.join(URL(location))
            except ValueError:
                raise RefusedByPeerError("a redirect to no URL", where=where) from None
        raise RefusedByPeerError(
            f"the peer answers {status}",
            where=where,
            retriable=status in _LATER,
            status=status,
            retry_after_s=float(asked) if asked.isdecimal() and len(asked) < 6 else 0.0,
        )


def _check_redirect(url: URL, target: URL, form: Form) -> None:
    if target.scheme not in {"http", "https"} or (url.scheme == "https" != target.scheme):
        what = "from https to something weaker"
    elif form is not Form.ENCRYPTED and target.origin() != url.origin():
        what = "to another host, and the message is not encrypted"
    else:
        return
    raise RefusedByPeerError(f"redirects {what}", where=str(url.with_query(None)))
