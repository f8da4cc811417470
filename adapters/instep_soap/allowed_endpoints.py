"""Sends envelopes to endpoints that a peer stated, where an operator allows it."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Final

from yarl import URL

from instep.errors import SourceError
from instep_http import ClientSettings, GuardedClient
from instep_soap.addressing import EndpointReference
from instep_soap.client import post_envelope
from instep_soap.names import SoapVersion

__all__ = ["AllowedEndpoints"]

_MAX_ANSWER_BYTES: Final = 256 * 1024
_MOST_CONNECTIONS: Final = 128


class AllowedEndpoints:
    """The endpoints that something may be sent to.

    Args:
        origins: The origins that an operator allows.
        tls: How peers are verified.
        timeout_s: Longest wait for one response, in seconds.
    """

    def __init__(self, origins: Iterable[str], tls: ssl.SSLContext, timeout_s: float) -> None:
        self._origins = frozenset(URL(origin).origin() for origin in origins)
        self._client = GuardedClient(
            ClientSettings(
                connect_timeout_s=timeout_s,
                read_timeout_s=timeout_s,
                total_timeout_s=timeout_s,
                max_body_bytes=_MAX_ANSWER_BYTES,
                max_connections=_MOST_CONNECTIONS,
                tls_hint="give the issuer of the peer's certificate as tls.ca",
            ),
            tls,
        )

    async def close(self) -> None:
        """Close the connections. Safe to call again."""
        await self._client.close()

    def allows(self, endpoint: EndpointReference) -> bool:
        """Whether an operator allows to send to this address."""
        return self.origin(endpoint) in self._origins

    def origin(self, endpoint: EndpointReference) -> URL | None:
        """The origin of an address; None: nothing can be sent there."""
        try:
            url = URL(endpoint.address)
            return url.origin() if url.scheme in ("http", "https") and url.host else None
        except ValueError:
            return None

    async def send(
        self, endpoint: EndpointReference, envelope: bytes, version: SoapVersion, action: str
    ) -> None:
        """Post an envelope. Raises `SourceError`, or `SoapFaultError` where the peer refuses."""
        if not self.allows(endpoint):
            raise SourceError("no operator allows to send there", where=endpoint.address[:200])
        await post_envelope(self._client, endpoint.address, envelope, version, action)
