"""Returns a response, or sends it to the ReplyTo of its request where an operator allows it."""

from __future__ import annotations

import asyncio
import logging

from instep.errors import InstepError
from instep_soap import (
    WSA_2005,
    AllowedEndpoints,
    EndpointReference,
    FaultCode,
    SoapFaultError,
)
from instep_wsrm.answers import Exchange

__all__ = ["Responder"]

_log = logging.getLogger("instep.wsrm")


class Responder:
    """Sends responses; one that cannot be sent is lost, and its source asks again."""

    def __init__(self, endpoints: AllowedEndpoints) -> None:
        self._endpoints = endpoints
        self._sending: set[asyncio.Task[None]] = set()

    def check(self, exchange: Exchange) -> None:
        """Refuse a request whose response would go where no operator allows, before anything is
        done for it. Raises `SoapFaultError`.
        """
        reply_to = exchange.reply_to
        if reply_to is None or reply_to.none or self._endpoints.allows(reply_to):
            return
        wsa = exchange.wsa
        local = "OnlyAnonymousAddressSupported" if wsa is WSA_2005 else "EndpointUnavailable"
        raise SoapFaultError(
            FaultCode.SENDER, "ReplyTo: nothing is sent to this address", subcode=wsa.name(local)
        )

    def respond(self, exchange: Exchange, envelope: bytes, action: str) -> bytes | None:
        """Return the response, or send it to the address that the request states."""
        reply_to = exchange.reply_to
        if reply_to is None:
            return envelope
        if not reply_to.none:
            task = asyncio.ensure_future(self._send(reply_to, exchange, envelope, action))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        return None

    async def close(self) -> None:
        """Cancel the responses that are still on their way."""
        for task in self._sending:
            task.cancel()
        if self._sending:
            await asyncio.wait(self._sending)

    async def _send(
        self, endpoint: EndpointReference, exchange: Exchange, envelope: bytes, action: str
    ) -> None:
        try:
            await self._endpoints.send(endpoint, envelope, exchange.soap, action)
        except InstepError as error:
            _log.info("a response could not be sent: %s", error)
