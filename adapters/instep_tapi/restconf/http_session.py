"""The HTTP session: TLS, proxy, limits and redirects; no foreign exception leaves it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from types import SimpleNamespace

import aiohttp
from aiohttp.typedefs import LooseCookies
from python_socks import ProxyError
from yarl import URL

from instep.errors import ConfigurationError, SourceError, TlsError, UnreachableError
from instep_tapi.options import Options, TlsOptions

__all__ = [
    "FOREIGN_ERRORS",
    "BodyTooBig",
    "make_session",
    "read_body",
    "redirect_target",
    "source_error",
    "tls_context",
]

FOREIGN_ERRORS = (aiohttp.ClientError, ProxyError, OSError, asyncio.TimeoutError, ssl.SSLError)
"""The errors that the library raises; `source_error` turns them into ours."""


_MAX_COOKIES = 100
_NO_URL = URL()


class BodyTooBig(aiohttp.ClientError):
    """A body exceeds its limit in bytes."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"a body of more than {limit_bytes} bytes")
        self.limit_bytes = limit_bytes


class _BoundedJar(aiohttp.CookieJar):
    """Keeps a session's cookies for the addresses of controllers; when there are too many, drops
    all.
    """

    def update_cookies(self, cookies: LooseCookies, response_url: URL = _NO_URL) -> None:
        super().update_cookies(cookies, response_url)
        if len(self) > _MAX_COOKIES:
            self.clear()


def tls_context(tls: TlsOptions, where: str) -> ssl.SSLContext:
    """Verification is on unless it is turned off by name. Raises `ConfigurationError`."""
    try:
        context = ssl.create_default_context(cafile=tls.ca)
    except (ssl.SSLError, OSError) as error:
        raise ConfigurationError(f"no certificates in it: {error}", where=f"{where}.ca") from None
    if not tls.verifies:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert:
        try:
            context.load_cert_chain(tls.cert, tls.key)
        except (ssl.SSLError, OSError) as error:
            raise ConfigurationError(
                f"certificate and key do not fit: {error}", where=f"{where}.cert"
            ) from None
    return context


def make_session(options: Options, context: ssl.SSLContext) -> aiohttp.ClientSession:
    """A session for one source; must be made within the running loop and closed there."""
    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(_refuse_to_leave)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=context),
        timeout=aiohttp.ClientTimeout(
            total=None,
            connect=options.connect_timeout_s,
            sock_connect=options.connect_timeout_s,
            sock_read=options.request_timeout_s,
        ),
        cookie_jar=_BoundedJar(unsafe=True),
        trace_configs=[trace],
        proxy=options.proxy.reveal() if options.proxy is not None else None,
    )


async def _refuse_to_leave(
    _session: aiohttp.ClientSession,
    _context: SimpleNamespace,
    params: aiohttp.TraceRequestRedirectParams,
) -> None:
    redirect_target(params.url, params.response.headers.get("Location", ""))


def redirect_target(url: URL, location: str) -> URL:
    """The target of a redirect. Raises `UnreachableError` where it would carry our login to another
    origin.
    """
    origin = None
    with suppress(ValueError):
        target = url.join(URL(location))
        origin = target.origin()
    if origin != url.origin():
        raise UnreachableError(
            f"redirects to {origin or 'no URL'}: our login is not taken there",
            where=str(url.with_query(None)),
            hint="if that address is the right one, make it an endpoint",
            retriable=False,
        )
    return target


async def read_body(
    response: aiohttp.ClientResponse, limit_bytes: int, *, whole: bool = True
) -> bytes:
    """The body, decompressed. Over the limit it raises `BodyTooBig`, or is cut if not `whole`."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > limit_bytes:
            if whole:
                raise BodyTooBig(limit_bytes)
            del body[limit_bytes:]
            break
    return bytes(body)


def source_error(error: BaseException, where: URL | str) -> SourceError:
    """Turn an error of the library into a `SourceError`; it never holds a secret."""
    place = str(URL(where).with_query(None).with_user(None))
    match error:
        case SourceError():
            return error
        case (
            aiohttp.ClientConnectorCertificateError()
            | aiohttp.ClientConnectorSSLError()
            | ssl.SSLCertVerificationError()
        ):
            return TlsError(
                f"the TLS handshake failed: {_reason(error)}",
                where=place,
                hint="give the issuer as tls.ca; a client certificate as tls.cert and tls.key",
            )
        case ssl.SSLError():
            return TlsError(f"TLS failed: {_reason(error)}", where=place)
        case aiohttp.ClientConnectorDNSError() | socket.gaierror():
            return UnreachableError("unknown host", where=place, hint="check the endpoint's name")
        case aiohttp.ClientProxyConnectionError():
            return UnreachableError("the proxy cannot be reached", where=place)
        case aiohttp.ClientHttpProxyError():
            return UnreachableError(f"the proxy answers {error.status}", where=place)
        case ProxyError():
            return UnreachableError(f"the proxy refuses: {_reason(error)}", where=place)
        case asyncio.TimeoutError():
            return UnreachableError("no answer in time", where=place)
        case BodyTooBig():
            return SourceError(
                f"an answer of more than {error.limit_bytes} bytes",
                where=place,
                hint="max_body_bytes",
            )
        case aiohttp.TooManyRedirects():
            return UnreachableError("too many redirects", where=place, retriable=False)
        case aiohttp.ClientConnectorError() | OSError():
            return UnreachableError(f"no connection: {_reason(error)}", where=place)
        case _:
            return UnreachableError(f"connection lost: {type(error).__name__}", where=place)


def _reason(error: BaseException) -> str:
    cause = getattr(error, "os_error", None) or error
    text = getattr(cause, "verify_message", None) or getattr(cause, "strerror", None) or str(cause)
    return str(text)[:200]
