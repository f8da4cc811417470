"""The certificate of a client: the name in it, and what a client is told whose handshake fails."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

__all__ = ["HandshakeContext", "certificate_name"]

_MOST_CHARS: Final = 255
_BEFORE: Final = ("URI", "DNS")
_AGAIN: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError, ssl.SSLSyscallError)


def certificate_name(certificate: Mapping[str, Any]) -> str:
    """The name of the holder of a certificate (`ssl.SSLSocket.getpeercert`): the first URI of its
    subject alternative names (as SPIFFE has it), else the first DNS name, else the common name of
    the subject, else whatever alternative name there is. Empty: it has none.

    The name is the holder: a new certificate with the same name is the same sender. So no name is
    cut: one of more than 255 characters is none, and no other takes its place.
    """
    name = next((name for name in _names(certificate) if name.isprintable()), "")
    return name if len(name) <= _MOST_CHARS else ""


def _names(certificate: Mapping[str, Any]) -> Iterator[str]:
    alternative = [one for one in certificate.get("subjectAltName", ()) if isinstance(one[1], str)]
    for kind in _BEFORE:
        yield from (name for stated, name in alternative if stated == kind and name)
    for part in certificate.get("subject", ()):
        yield from (value for key, value in part if key == "commonName" and value)
    yield from (name for stated, name in alternative if stated not in _BEFORE and name)


class HandshakeContext:
    """The TLS context for the handshake of one accepted connection. asyncio asks it for nothing but
    `wrap_bio`.

    asyncio closes a connection whose handshake failed before it sends why: a client without a
    certificate would see a connection that is lost. So the alert is sent here.

    Args:
        context: The context of the server.
        connection: The socket of the connection.
        named: Called with the name in the client's certificate (`certificate_name`) before the
            protocol gets the first byte; not called where none was asked for.
    """

    def __init__(
        self, context: ssl.SSLContext, connection: socket.socket, named: Callable[[str], None]
    ) -> None:
        self._context = context
        self._connection = connection
        self._named = named

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, **options: Any
    ) -> ssl.SSLObject:
        wrapped = self._context.wrap_bio(incoming, outgoing, **options)
        handshake = wrapped.do_handshake

        def do_handshake() -> None:
            try:
                handshake()
            except _AGAIN:
                raise
            except ssl.SSLError:
                with suppress(OSError):
                    self._connection.send(outgoing.read())
                raise
            del wrapped.do_handshake  # which refers to it
            if self._context.verify_mode is ssl.CERT_REQUIRED:
                name = certificate_name(wrapped.getpeercert() or {})
                if not name:
                    raise ssl.SSLCertVerificationError(
                        "the certificate of the client has no name, or one that is too long"
                    )
                self._named(name)

        wrapped.do_handshake = do_handshake  # type: ignore[method-assign]
        return wrapped
