"""Sends an envelope to a peer's endpoint by HTTP POST (DIDComm 2.1, "Transports").

Only redirects with status 307 are followed, a few at most, and never to a place where the envelope
is less protected: not from https to http, and an envelope that is not encrypted not to another
origin.
"""

from __future__ import annotations

import asyncio
import ssl
from types import TracebackType
from typing import Final, Self

import msgspec

from instep.errors import SourceError, UnreachableError
from instep.runtime.retry import Environment
from instep_didcomm.http.origin_limits import OriginLimits
from instep_didcomm.wire.envelope import MEDIA_TYPES, Form
from instep_http import (
    ANY_ADDRESS,
    PUBLIC_ONLY,
    ClientSettings,
    GuardedClient,
    KeepMethod,
    parse_url,
    post_with_retries,
    retry_later,
    shown,
)

__all__ = ["EnvelopeClient", "PeerEndpoint", "RefusedByPeerError"]

_MAX_ANSWER_BYTES: Final = 64 * 1024
_STATED_TIMEOUT_S: Final = 10.0
"""Longest wait for an endpoint that the peer stated."""
_ANSWERS_WITHIN_S: Final = 1.0
"""An endpoint that fails sooner holds nothing up."""
_MOST_CONNECTIONS: Final = 128
"""As many as the slots of what is sent at the same time, and some."""


class PeerEndpoint(msgspec.Struct, frozen=True):
    """The endpoint at which a peer receives messages."""

    url: str
    configured: bool
    """Whether the user configured it. Otherwise the peer stated it, and the peer may be hostile."""


class RefusedByPeerError(SourceError):
    """The peer refused the message with a response that is not retriable."""

    code = "refused-by-peer"


class EnvelopeClient:
    """Posts envelopes. Use it as an async context.

    Args:
        tls: How peers are verified.
        timeout_s: Longest wait for one response, in seconds.
        attempts: Number of POSTs of one delivery while the peer is unreachable or asks to retry
            later.
        environment: The clock, for a Retry-After; randomness, for the wait between two attempts.
        private_endpoints: Whether an endpoint from a DID document may have any address; otherwise
            only a public one.

    An endpoint that does not answer in time is left aside for a while, and what peers can cause is
    bounded by endpoint and in all: see `instep_didcomm.http.origin_limits`.
    """

    def __init__(
        self,
        tls: ssl.SSLContext,
        timeout_s: float,
        attempts: int,
        environment: Environment,
        *,
        private_endpoints: bool = False,
    ) -> None:
        settings = ClientSettings(
            connect_timeout_s=timeout_s,
            read_timeout_s=timeout_s,
            total_timeout_s=timeout_s,
            max_body_bytes=_MAX_ANSWER_BYTES,
            max_connections=_MOST_CONNECTIONS,
            tls_hint="give the issuer of the peer's certificate as tls.ca",
        )
        stated = ANY_ADDRESS if private_endpoints else PUBLIC_ONLY
        self._configured = GuardedClient(settings, tls, addresses=ANY_ADDRESS)
        quick = min(timeout_s, _STATED_TIMEOUT_S)
        self._stated = GuardedClient(
            msgspec.structs.replace(settings, total_timeout_s=quick), tls, addresses=stated
        )
        self._attempts = attempts
        self._environment = environment
        self._origins = OriginLimits()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._configured.close(for_good=True)
        await self._stated.close(for_good=True)

    async def deliver(
        self, endpoint: PeerEndpoint, envelope: bytes, form: Form, *, once: bool = False
    ) -> None:
        """Post the envelope until the peer has accepted it. With `once` it is not posted again
        where the peer may have received it: the next sending must have another `sent_count`.
        Otherwise it is a reply, which the peer caused.

        Raises `SourceError`: the peer has not accepted it, as far as we know. `maybe_received` in
        its data: it may have received it.
        """
        origin = str(parse_url(endpoint.url).origin())
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        chosen_by_peer = not (once or endpoint.configured)
        reason = self._origins.begin(origin, began_s, chosen_by_peer=chosen_by_peer)
        if reason:
            raise UnreachableError(reason, where=shown(endpoint.url))
        answered = accepted = False
        try:
            await self._post(endpoint, envelope, form, once=once)
            answered = accepted = True
        except SourceError as error:
            answered = "status" in error.data or loop.time() - began_s < _ANSWERS_WITHIN_S
            raise
        finally:
            self._origins.end(origin, loop.time(), answered=answered, accepted=accepted)

    async def _post(
        self, endpoint: PeerEndpoint, envelope: bytes, form: Form, *, once: bool
    ) -> None:
        now = self._environment.now
        answer = await post_with_retries(
            self._configured if endpoint.configured else self._stated,
            endpoint.url,
            envelope,
            {"Content-Type": MEDIA_TYPES[form]},
            # A peer may cause any number of replies: each is tried once where it chose the place.
            attempts=self._attempts if endpoint.configured or once else 1,
            rng=self._environment.rng,
            now=now,
            redirects=KeepMethod(other_origin=form is Form.ENCRYPTED, query=endpoint.configured),
            cut=True,
            once=once,
        )
        if not 200 <= answer.status < 300:
            raise RefusedByPeerError(
                f"the peer answers {answer.status}",
                where=shown(answer.url),
                retriable=retry_later(answer.status),
                status=answer.status,
                retry_after_s=answer.retry_after_s(now()),
            )
