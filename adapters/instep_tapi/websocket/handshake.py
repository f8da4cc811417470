"""Opens a WebSocket: login, cookies, TLS, proxy and redirects (TR-548 ST-0.3, RFC 6455 4.1)."""

from __future__ import annotations

import asyncio
import socket
import ssl
from functools import partial
from logging import CRITICAL, Logger
from typing import Final

import picows
from aiohappyeyeballs import start_connection
from python_socks import ProxyError
from yarl import URL

from instep.errors import SourceError, UnreachableError
from instep.model.streams import Start
from instep_http import FOREIGN_ERRORS, GuardedClient, source_error
from instep_tapi.feeds.opening_request import OpeningRequest
from instep_tapi.options import Options
from instep_tapi.restconf.auth import Authenticator
from instep_tapi.restconf.client import CERTIFICATE_HINT, TLS_HINT
from instep_tapi.websocket.assembly import offered_extensions

__all__ = ["connect"]

_MAX_REASON_CHARS: Final = 200
_READ_BUFFER_BYTES: Final = 16_384
"""Of a new connection; the library doubles it where more comes at once."""
_NEXT_ADDRESS_S: Final = 0.25
"""Seconds until another address of a host is tried beside one that does not answer (RFC 8305 5)."""
_SILENT: Final = Logger("picows", CRITICAL + 1)  # noqa: LOG001 - nobody else may set its level
"""The library's logger is silenced: at its lowest level it would log our login. Our errors replace
it.
"""


async def connect(
    listener: picows.WSListener,
    client: GuardedClient,
    tls: ssl.SSLContext,
    auth: Authenticator,
    options: Options,
    address: URL,
    start: str | Start,
) -> picows.WSTransport:
    """Connect with login, once more where it was refused, to a stream at its `address`; `listener`
    gets the frames.

    Raises `TokenRefusedError`, `StreamGoneError`, `AuthenticationError`, `UnreachableError`,
    `TlsError`.
    """
    opening = await OpeningRequest.of(auth, address, start)
    while True:
        try:
            return await _upgrade(listener, client, tls, options, opening)
        except picows.WSHandshakeError as error:
            if error.response is None:
                raise UnreachableError(
                    f"the WebSocket handshake is not understood: {error}"[:200],
                    where=opening.where,
                ) from error
            await opening.follow(error.response.status, error.response.headers.get("Location"))
        except ProxyError as error:
            refusal = f"the proxy refuses: {error}"[:_MAX_REASON_CHARS]
            raise UnreachableError(refusal, where=opening.where) from error
        except (*FOREIGN_ERRORS, SourceError) as error:
            raise source_error(
                error, opening.url, tls_hint=TLS_HINT, certificate_hint=CERTIFICATE_HINT
            ) from error


async def _upgrade(
    listener: picows.WSListener,
    client: GuardedClient,
    tls: ssl.SSLContext,
    options: Options,
    opening: OpeningRequest,
) -> picows.WSTransport:
    headers = options.request_headers(opening.login)
    cookies = client.session().cookie_jar.filter_cookies(opening.url)
    if cookies:
        headers["Cookie"] = "; ".join(f"{one.key}={one.coded_value}" for one in cookies.values())
    if options.compression:
        headers["Sec-WebSocket-Extensions"] = offered_extensions()
    proxy = None if options.proxy is None else options.proxy.reveal()
    # The library's own limit covers the upgrade only, and closes the socket where we are cancelled
    # during the upgrade.
    async with asyncio.timeout(options.request_timeout_s):
        transport, _ = await picows.ws_connect(
            lambda: listener,
            str(opening.url),
            ssl_context=tls,
            websocket_handshake_timeout=options.request_timeout_s,
            logger_name=_SILENT,
            enable_auto_pong=False,
            max_frame_size=options.max_frame_bytes,
            read_buffer_init_size=_READ_BUFFER_BYTES,
            extra_headers=headers,
            max_redirects=0,
            proxy=proxy,
            proxy_ssl_context=tls if proxy and proxy.startswith("https:") else None,
            socket_factory=partial(_connect_socket, options),
        )
    if transport.response is None:
        raise ConnectionResetError("closed within the handshake")
    return transport


async def _connect_socket(options: Options, to: picows.WSParsedURL) -> socket.socket:
    """A connection to the provider, or to the proxy on the way to it."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(options.connect_timeout_s):
            found = await loop.getaddrinfo(to.host, to.port, type=socket.SOCK_STREAM)
            return await start_connection(found, happy_eyeballs_delay=_NEXT_ADDRESS_S)
    except OSError:
        if options.proxy is None:
            raise
        raise UnreachableError(
            "the proxy cannot be reached", where=f"{to.host}:{to.port}"
        ) from None
