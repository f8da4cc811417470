"""Sends envelopes to endpoints that a peer stated, where an operator allows it."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterable
from typing import Final

from yarl import URL

from instep.errors import InstepError, SourceError
from instep_http import ClientSettings, GuardedClient
from instep_soap.addressing import EndpointReference
from instep_soap.client import post_envelope
from instep_soap.names import SoapVersion

__all__ = ["AllowedEndpoints"]

_MAX_ANSWER_BYTES: Final = 256 * 1024
_MOST_CONNECTIONS: Final = 128
_MOST_UNDER_WAY: Final = 1_000

_log = logging.getLogger("instep.soap")


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
        self._sending: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Cancel what was begun, and close the connections. Safe to call again."""
        for task in self._sending:
            task.cancel()
        if self._sending:
            await asyncio.wait(self._sending)
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

    def begin(
        self, endpoint: EndpointReference, envelope: bytes, version: SoapVersion, action: str
    ) -> None:
        """Post an envelope, without waiting for it. One that cannot be sent, or comes when too many
        are under way, is lost: its peer sends its message again, or asks.
        """
        if len(self._sending) >= _MOST_UNDER_WAY:
            _log.debug("too many envelopes are under way to their peers")
            return
        task = asyncio.ensure_future(self._try(endpoint, envelope, version, action))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _try(
        self, endpoint: EndpointReference, envelope: bytes, version: SoapVersion, action: str
    ) -> None:
        try:
            await self.send(endpoint, envelope, version, action)
        except InstepError as error:
            _log.info("an envelope could not be sent to its peer: %s", error)
