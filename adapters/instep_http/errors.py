"""Translates the errors of HTTP libraries into errors of instep."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl

import aiohttp
from yarl import URL

from instep.errors import SourceError, TlsError, UnreachableError
from instep_http.urls import shown

__all__ = ["FOREIGN_ERRORS", "AddressRefusedError", "BodyTooBig", "retry_later", "source_error"]

FOREIGN_ERRORS = (
    aiohttp.ClientError,
    OSError,
    asyncio.TimeoutError,
    ssl.SSLError,
    ValueError,
    OverflowError,
)
"""The errors that an exchange can raise; `source_error` translates them. ValueError: a URL or
header that cannot be sent (a name that IDNA refuses, a line end). OverflowError: a port out of
range.
"""

_CERTIFICATE_ALERTS = frozenset(
    {
        *("access denied", "bad certificate", "certificate expired", "certificate required"),
        *("certificate revoked", "certificate unknown", "unknown ca", "unsupported certificate"),
    }
)
"""What a server says of the certificate that a client has presented, or has not."""
_CLOSED = frozenset({errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE})
_RETRY_LATER = frozenset({408, 425, 429, 500, 502, 503, 504})
_MAX_REASON_CHARS = 200


class BodyTooBig(aiohttp.ClientError):
    """A body exceeds its limit of `limit_bytes`."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"a body of more than {limit_bytes} bytes")
        self.limit_bytes = limit_bytes


class AddressRefusedError(OSError):
    """An address that an `AddressPolicy` refuses."""


def retry_later(status: int) -> bool:
    """Whether the same request may succeed later (RFC 9110 15.5, 15.6; RFC 6585 4)."""
    return status in _RETRY_LATER


def source_error(
    error: BaseException,
    where: URL | str,
    *,
    tls_hint: str = "",
    certificate_hint: str = "",
    body_hint: str = "",
) -> SourceError:
    """Translate an error of a library; the result never contains a secret. `maybe_received` in its
    data: the request may have reached the server.

    Args:
        error: One of `FOREIGN_ERRORS`, or a `SourceError`, which is returned as it is.
        where: The URL of the request; its query, user and password are left out.
        tls_hint: The hint when a certificate is not accepted.
        certificate_hint: The hint when the server wants a client certificate, or may want one: it
            closed a TLS connection before any answer. Empty: that is a lost connection.
        body_hint: The hint when a response is too large.
    """
    place = shown(where)
    return (
        _other_scheme(error, place)
        or _other_certificate(error, place, certificate_hint)
        or _translated(error, place, tls_hint, body_hint)
    )


def _translated(error: BaseException, place: str, tls_hint: str, body_hint: str) -> SourceError:
    match error:
        case SourceError():
            return error
        case (
            aiohttp.ClientConnectorCertificateError()
            | aiohttp.ClientConnectorSSLError()
            | ssl.SSLCertVerificationError()
        ):
            return TlsError(
                f"the TLS handshake failed: {_reason(error)}", where=place, hint=tls_hint
            )
        case ssl.SSLError():
            return TlsError(f"TLS failed: {_reason(error)}", where=place)
        case aiohttp.ClientConnectorDNSError() | socket.gaierror():
            return UnreachableError(
                "unknown host", where=place, hint="check the name of the host in the URL"
            )
        case aiohttp.ClientProxyConnectionError():
            return UnreachableError("the proxy cannot be reached", where=place)
        case aiohttp.ClientHttpProxyError():
            return UnreachableError(f"the proxy answers {error.status}", where=place)
        case asyncio.TimeoutError():
            sent = not isinstance(error, aiohttp.ConnectionTimeoutError)
            return UnreachableError("no answer in time", where=place, maybe_received=sent)
        case BodyTooBig():
            return SourceError(
                f"an answer of more than {error.limit_bytes} bytes",
                where=place,
                hint=body_hint,
                retriable_after_success=True,
            )
        case AddressRefusedError() | aiohttp.ClientConnectorError(os_error=AddressRefusedError()):
            return UnreachableError(_reason(error), where=place, retriable=False)
        case aiohttp.ClientConnectorError() | OSError():
            return _no_connection(error, place)
        case ValueError() | OverflowError():
            # The text of the error is left out: it may quote a header with a login.
            return SourceError("no URL or header that can be sent", where=place)
        case _:
            return UnreachableError(
                f"connection lost: {type(error).__name__}", where=place, maybe_received=True
            )


def _no_connection(error: Exception, place: str) -> UnreachableError:
    """The error where no connection was made, or where one broke."""
    sent = not isinstance(error, aiohttp.ClientConnectorError)
    if isinstance(getattr(error, "os_error", error), ConnectionRefusedError):
        return UnreachableError(
            "the connection is refused",
            where=place,
            hint="check that the server runs, and that the port is right",
            suggests_restart=True,
        )
    return UnreachableError(f"no connection: {_reason(error)}", where=place, maybe_received=sent)


def _other_scheme(error: BaseException, place: str) -> SourceError | None:
    """The error where TLS was spoken to a server without it, or the other way round."""
    match error:
        case (
            ssl.SSLError(reason="WRONG_VERSION_NUMBER")
            | aiohttp.ClientConnectorSSLError(os_error=ssl.SSLError(reason="WRONG_VERSION_NUMBER"))
        ):
            return TlsError(
                "the server does not speak TLS",
                where=place,
                hint="write http:// if it has none, or the port at which it speaks TLS",
            )
        case (
            aiohttp.ServerDisconnectedError()
            # It did not even read what was sent.
            | ConnectionResetError()
            | aiohttp.ClientOSError(errno=errno.ECONNRESET)
        ) if place.startswith(("http://", "ws://")):
            address = "/".join(place.split("/")[:3])
            return UnreachableError(
                "the server closes the connection without an answer",
                where=place,
                hint=f"if it speaks TLS, write {address.replace('://', 's://', 1)}",
                maybe_received=True,
            )
        case _:
            return None


def _other_certificate(error: BaseException, place: str, hint: str) -> SourceError | None:
    """The error where the server wants a client certificate, another one than ours, or may.

    With TLS 1.3 it says so after the handshake: then what fails is the first reading, and where
    the server does not wait for us to read its alert, the connection is just closed.
    """
    perhaps = f"if it wants a client certificate: {hint}" if hint else ""
    alert = next(filter(None, map(_alert, (error, *_causes(error)))), "")
    if alert in _CERTIFICATE_ALERTS:
        text = f"the server wants a client certificate that it accepts (TLS alert: {alert})"
        return TlsError(text, where=place, hint=hint)
    if alert == "handshake failure" and hint:
        text = f"the server refuses the TLS handshake (TLS alert: {alert})"
        return TlsError(text, where=place, hint=perhaps)
    if hint and place.startswith(("https://", "wss://")) and _closed_early(error):
        return UnreachableError(
            "the server closes the connection without an answer",
            where=place,
            hint=perhaps,
            maybe_received=True,
        )
    return None


def _causes(error: BaseException) -> tuple[object, ...]:
    return getattr(error, "os_error", None), error.__cause__


def _alert(error: object) -> str:
    """What an alert of the peer is called (RFC 8446 6); empty where it is none. OpenSSL has it in
    names such as TLSV1_ALERT_UNKNOWN_CA.
    """
    # The errors of aiohttp inherit from it, and have no reason of their own.
    reason = getattr(error, "reason", None) if isinstance(error, ssl.SSLError) else None
    return (reason or "").partition("_ALERT_")[2].replace("_", " ").lower()


def _closed_early(error: BaseException) -> bool:
    return isinstance(error, aiohttp.ServerDisconnectedError) or any(
        isinstance(one, OSError) and (one.errno in _CLOSED or isinstance(one, ConnectionResetError))
        for one in (error, *_causes(error))
    )


def _reason(error: BaseException) -> str:
    cause = getattr(error, "os_error", None) or error
    for name in ("verify_message", "strerror"):
        if text := getattr(cause, name, None):
            return str(text)[:_MAX_REASON_CHARS]
    # Some errors of TLS have nothing but the name of their reason.
    text = str(cause) or (getattr(cause, "reason", None) or "").replace("_", " ").lower()
    return str(text)[:_MAX_REASON_CHARS]
