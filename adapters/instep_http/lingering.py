"""Closes a connection so that the peer can still read its last response (RFC 9112 9.6), also where
it has sent more on a kept connection (RFC 9112 9.3).

A connection that is closed while bytes of the peer wait unread is reset, and the reset can destroy
the response on its way. So our side is closed first. What the peer still sends is read and thrown
away, neither parsed nor kept: up to a bound, and for a short while. After the bound nothing is read
any more: back-pressure stops the peer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

__all__ = ["linger"]

_DRAINED_BYTES: Final = 256 * 1024
_LINGER_S: Final = 1.0


def linger(transport: asyncio.Transport, lost: Callable[[Exception | None], None]) -> None:
    """Close a connection to which its last response was written; its protocol sees nothing more.

    Args:
        transport: The connection.
        lost: Called when it is closed, instead of `connection_lost` of its protocol.
    """
    lingering = _Lingering(transport, lost)
    transport.set_protocol(lingering)
    if transport.can_write_eof():
        with suppress(OSError):  # the peer has closed it already
            transport.write_eof()
    transport.resume_reading()


class _Lingering(asyncio.Protocol):
    def __init__(
        self, transport: asyncio.Transport, lost: Callable[[Exception | None], None]
    ) -> None:
        self._transport = transport
        self._lost = lost
        self._left_bytes = _DRAINED_BYTES
        self._timer = asyncio.get_running_loop().call_later(_LINGER_S, self._end)

    def data_received(self, data: bytes) -> None:
        self._left_bytes -= len(data)
        if self._left_bytes <= 0:
            self._transport.pause_reading()

    # The end of what the peer sends closes the transport: `eof_received` of the base class.

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._lost(exc)

    def _end(self) -> None:
        # A peer that does not even read its response must not hold its place.
        self._transport.abort()
