"""Returns a response, or sends it to the ReplyTo of its request where an operator allows it."""

from __future__ import annotations

from instep_soap import WSA_2005, AllowedEndpoints, FaultCode, SoapFaultError
from instep_wsrm.answers import Exchange

__all__ = ["Responder"]


class Responder:
    """Sends responses; one that cannot be sent is lost, and its source asks again."""

    def __init__(self, endpoints: AllowedEndpoints) -> None:
        self._endpoints = endpoints

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
            self._endpoints.begin(reply_to, envelope, exchange.soap, action)
        return None
