"""Sends replies to the addresses that messages state, where an operator allows it."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from instep.errors import InstepError
from instep_soap import WSA_2005, AllowedEndpoints, EndpointReference, SoapVersion
from instep_wsr.wire.encoder import envelope, response
from instep_wsr.wire.messages import GroupReply

__all__ = ["Callbacks"]

_MOST_UNDER_WAY: Final = 1_000

_log = logging.getLogger("instep.wsr")


class Callbacks:
    """Sends replies in requests of their own. One that cannot be sent, or comes when too many are
    under way, is lost: its sender sends its message again.
    """

    def __init__(self, endpoints: AllowedEndpoints) -> None:
        self._endpoints = endpoints
        self._sending: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Callbacks {len(self._sending)} under way>"

    def allows(self, address: str) -> bool:
        """Whether an operator allows to send to this address."""
        return self._endpoints.allows(_endpoint(address))

    def begin(self, address: str, soap: SoapVersion, replies: list[GroupReply]) -> None:
        """Send replies, without waiting for it."""
        if len(self._sending) >= _MOST_UNDER_WAY:
            _log.debug("too many callbacks are under way")
            return
        task = asyncio.ensure_future(self._send(address, soap, replies))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def send(self, address: str, soap: SoapVersion, replies: list[GroupReply]) -> None:
        """Send replies. Raises `SourceError`, or `SoapFaultError` where the peer refuses."""
        await self._endpoints.send(
            _endpoint(address), envelope(soap, [response(replies)]), soap, ""
        )

    async def close(self) -> None:
        """Cancel those that are under way."""
        for task in self._sending:
            task.cancel()
        if self._sending:
            await asyncio.wait(self._sending)

    async def _send(self, address: str, soap: SoapVersion, replies: list[GroupReply]) -> None:
        try:
            await self.send(address, soap, replies)
        except InstepError as error:
            _log.info("a callback could not be sent: %s", error)


def _endpoint(address: str) -> EndpointReference:
    return EndpointReference(WSA_2005, address)
