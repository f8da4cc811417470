"""Carries an envelope to a peer's endpoint by HTTP POST (DIDComm 2.1, "Transports").

Redirects: 307 alone, a few times, and never to where the envelope is less protected: from https to
http, or, for one that is not encrypted, to another origin.
"""

from __future__ import annotations

import ssl
from types import TracebackType
from typing import Final, Self

import msgspec

from instep.errors import SourceError
from instep.runtime.retry import Environment
from instep_didcomm.wire.envelope import MEDIA_TYPES, Form
from instep_http import (
    ANY_ADDRESS,
    PUBLIC_ONLY,
    ClientSettings,
    GuardedClient,
    KeepMethod,
    post_with_retries,
    retry_later,
    shown,
)

__all__ = ["EnvelopeClient", "PeerEndpoint", "RefusedByPeerError"]

_MAX_ANSWER_BYTES: Final = 64 * 1024
_MOST_CONNECTIONS: Final = 128
"""As many as the slots of what is sent at the same time, and some."""


class PeerEndpoint(msgspec.Struct, frozen=True):
    """Where a peer takes messages."""

    url: str
    configured: bool
    """The user named it; else the peer did, who may mean harm."""


class RefusedByPeerError(SourceError):
    """The peer answered that it will not take this message."""

    code = "refused-by-peer"


class EnvelopeClient:
    """Posts envelopes. Use it as an async context.

    Args:
        tls: How peers are verified.
        timeout_s: Longest wait for one answer.
        attempts: How often one delivery posts where the peer is away or says later.
        environment: The clock, for a Retry-After; randomness, for the wait between two attempts.
        private_endpoints: Post to any address that a DID document states; else to public ones.
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
        self._stated = GuardedClient(settings, tls, addresses=stated)
        self._attempts = attempts
        self._environment = environment

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._configured.close()
        await self._stated.close()

    async def deliver(self, endpoint: PeerEndpoint, envelope: bytes, form: Form) -> None:
        """Post until the peer has taken it. Raises `SourceError`: it has not, as far as we know."""
        now = self._environment.now
        answer = await post_with_retries(
            self._configured if endpoint.configured else self._stated,
            endpoint.url,
            envelope,
            {"Content-Type": MEDIA_TYPES[form]},
            attempts=self._attempts,
            rng=self._environment.rng,
            now=now,
            redirects=KeepMethod(other_origin=form is Form.ENCRYPTED),
            cut=True,
        )
        if not 200 <= answer.status < 300:
            raise RefusedByPeerError(
                f"the peer answers {answer.status}",
                where=shown(answer.url),
                retriable=retry_later(answer.status),
                status=answer.status,
                retry_after_s=answer.retry_after_s(now()),
            )
