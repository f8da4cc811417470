"""Sends replies to the addresses that messages state, where an operator allows it."""

from __future__ import annotations

from instep_soap import WSA_2005, AllowedEndpoints, EndpointReference, SoapVersion
from instep_wsr.wire.encoder import envelope, response
from instep_wsr.wire.messages import GroupReply

__all__ = ["Responder"]


class Responder:
    """Sends replies in requests of their own (the reply pattern Callback)."""

    def __init__(self, endpoints: AllowedEndpoints) -> None:
        self._endpoints = endpoints

    def allows(self, address: str) -> bool:
        """Whether an operator allows to send to this address."""
        return self._endpoints.allows(_endpoint(address))

    def begin(self, address: str, soap: SoapVersion, replies: list[GroupReply]) -> None:
        """Send replies, without waiting for it; they may be lost."""
        self._endpoints.begin(_endpoint(address), _written(soap, replies), soap, "")

    async def send(self, address: str, soap: SoapVersion, replies: list[GroupReply]) -> None:
        """Send replies. Raises `SourceError`, or `SoapFaultError` where the peer refuses."""
        await self._endpoints.send(_endpoint(address), _written(soap, replies), soap, "")


def _endpoint(address: str) -> EndpointReference:
    return EndpointReference(WSA_2005, address)


def _written(soap: SoapVersion, replies: list[GroupReply]) -> bytes:
    return envelope(soap, [response(replies)])
