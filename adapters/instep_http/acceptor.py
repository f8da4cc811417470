"""Accepts connections within limits, before the TLS handshake and before anything is read.

asyncio's own server accepts up to `backlog` connections in one iteration of the loop, makes a
protocol only after the TLS handshake, and logs a traceback at each accept without a free file
descriptor.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, cast

from instep_http.client_certificates import HandshakeContext
from instep_http.connection_limits import TOO_MANY, ConnectionLimits

__all__ = ["Acceptor", "Slot"]

_BACKLOG: Final = 64
_PAUSE_S: Final = 1.0
_LOG_EVERY_S: Final = 60.0
_NO_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_RESET: Final = struct.pack("ii", 1, 0)

_log = logging.getLogger("instep.http")


class Slot:
    """The place of one connection within the limits; its protocol releases it when the connection
    is lost.
    """

    def __init__(self, limits: ConnectionLimits, address: str) -> None:
        self._limits = limits
        self.address = address
        """The IP address of the peer."""
        self.identity = ""
        """The name in the certificate of the client; empty where none is asked for. Known before
        the first byte is read.
        """
        self._taken = True

    def release(self) -> None:
        """Release the place. Safe to call again."""
        if self._taken:
            self._taken = False
            self._limits.release(self.address)


class Acceptor:
    """Listens, accepts connections and makes their protocols.

    Args:
        factory: Makes the protocol of an accepted connection.
        limits: Decides which connections are admitted; others are reset at once.
        refused: Counts refused connections by reason.
        tls: The server's certificate; None for plain TCP.
        handshake_timeout_s: Longest TLS handshake.
        close_timeout_s: Longest wait for the TLS close of a peer.
        displace: Ends a connection to make room for another; returns whether it did.
    """

    def __init__(
        self,
        factory: Callable[[Slot], asyncio.Protocol],
        limits: ConnectionLimits,
        refused: Counter[str],
        tls: ssl.SSLContext | None,
        handshake_timeout_s: float,
        close_timeout_s: float,
        displace: Callable[[], bool] = lambda: False,
    ) -> None:
        self._factory = factory
        self._limits = limits
        self._refused = refused
        self._tls = tls
        self._handshake_timeout_s = handshake_timeout_s
        self._close_timeout_s = close_timeout_s
        self._displace = displace
        self._sockets: list[socket.socket] = []
        self._timers: dict[socket.socket, asyncio.TimerHandle] = {}
        self._starting: dict[asyncio.Task[None], Slot] = {}
        """Connections whose handshake is under way, the oldest first."""
        self._log_again_s = float("-inf")

    async def listen(self, host: str, port: int) -> int:
        """Listen on all addresses of a host. Returns the port. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, address in dict.fromkeys((one[0], one[4]) for one in found):
                # With port 0, all addresses use the port that the first one was given.
                at = (address[0], port, *address[2:])
                listening = socket.create_server(at, family=family, backlog=_BACKLOG)
                listening.setblocking(False)
                self._sockets.append(listening)
                port = listening.getsockname()[1]
        except OSError:
            self.close()
            raise
        for listening in self._sockets:
            self._resume(listening)
        return port

    def close(self) -> None:
        """Stop listening, and abort connections that are still in their handshake. Safe to call
        again.
        """
        loop = asyncio.get_running_loop()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for listening in self._sockets:
            loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()
        for task in self._starting:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until the aborted handshakes have ended."""
        if self._starting:
            await asyncio.wait(self._starting)

    def _resume(self, listening: socket.socket) -> None:
        self._timers.pop(listening, None)
        asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_BACKLOG):
            try:
                connection, peer = listening.accept()
            except OSError as error:
                if error.errno in _NO_RESOURCES:
                    self._pause(listening, error)
                return  # no more, or one that is gone already (accept(2))
            reason = self._limits.admit(peer[0])
            if reason == TOO_MANY and (self._end_handshake() or self._displace()):
                reason = self._limits.admit(peer[0])
            if reason:
                self._refused[reason] += 1
                _reset(connection)
                continue
            connection.setblocking(False)
            slot = Slot(self._limits, peer[0])
            task = asyncio.ensure_future(self._start(connection, slot))
            self._starting[task] = slot
            task.add_done_callback(lambda done: self._starting.pop(done, None))

    def _end_handshake(self) -> bool:
        """End the oldest TLS handshake under way; returns whether there is one."""
        if self._tls is None or not self._starting:
            return False
        task, slot = next(iter(self._starting.items()))
        self._refused["displaced"] += 1
        slot.release()
        del self._starting[task]
        task.cancel()
        return True

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        """Pause accepting for a while: without a free descriptor the socket stays readable."""
        loop = asyncio.get_running_loop()
        self._refused["no-descriptors"] += 1
        if loop.time() >= self._log_again_s:
            self._log_again_s = loop.time() + _LOG_EVERY_S
            _log.error(
                "no connection can be accepted: %s (%d are open; raise the limit of open files, "
                "or lower max_connections)",
                error.strerror,
                self._limits.open,
            )
        loop.remove_reader(listening)
        self._timers[listening] = loop.call_later(_PAUSE_S, self._resume, listening)

    async def _start(self, connection: socket.socket, slot: Slot) -> None:
        """Perform the TLS handshake, if any; then the protocol owns the connection and the slot."""
        timeouts = (self._handshake_timeout_s, self._close_timeout_s) if self._tls else (None, None)
        context = None
        if self._tls is not None:
            context = cast(
                ssl.SSLContext,
                HandshakeContext(self._tls, connection, partial(setattr, slot, "identity")),
            )
        connected = False
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._factory(slot),
                connection,
                ssl=context,
                ssl_handshake_timeout=timeouts[0],
                ssl_shutdown_timeout=timeouts[1],
            )
            connected = True
        except OSError:  # ssl.SSLError and TimeoutError, too
            self._refused["tls-handshake" if self._tls else "lost"] += 1
        finally:
            if not connected:
                slot.release()
                with suppress(OSError):
                    connection.close()


def _reset(connection: socket.socket) -> None:
    """Close with a reset, which leaves no TIME_WAIT state behind."""
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    connection.close()
