"""Opens a stream of server-sent events: login, own headers, redirects (TR-548 ST-0.3)."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Final

import aiohttp
from yarl import URL

from instep.errors import SourceError, UnreachableError
from instep.model.streams import Start
from instep_http import FOREIGN_ERRORS, source_error
from instep_tapi.endpoints.endpoint import Endpoint
from instep_tapi.feeds.opening_request import OpeningRequest
from instep_tapi.options import Options
from instep_tapi.restconf.client import CERTIFICATE_HINT, TLS_HINT

__all__ = ["EVENT_STREAM", "request_events"]

EVENT_STREAM: Final = "text/event-stream"
_MAX_REASON_CHARS: Final = 200


async def request_events(
    endpoint: Endpoint, options: Options, address: URL, start: str | Start
) -> aiohttp.ClientResponse:
    """The response whose body is the stream, opened at `start`: a token is sent as `start_from`
    and as Last-Event-ID. The caller closes it.

    Raises `TokenRefusedError`, `StreamGoneError`, `AuthenticationError`, `UnreachableError`,
    `TlsError`.
    """
    opening = await OpeningRequest.of(endpoint.auth, address, start)
    while True:
        try:
            response = await _get(endpoint, options, opening)
        except (*FOREIGN_ERRORS, SourceError) as error:
            raise source_error(
                error, opening.url, tls_hint=TLS_HINT, certificate_hint=CERTIFICATE_HINT
            ) from error
        status = response.status
        if status == HTTPStatus.OK and (other := _other_content(response)) == "":
            return response
        response.close()
        if status == HTTPStatus.OK:
            # A gateway may answer for a provider that is away, so it is tried again.
            raise UnreachableError(
                f"the stream is answered with {other!r}, not {EVENT_STREAM}"[:_MAX_REASON_CHARS],
                where=opening.where,
                hint="what answers at this address? A proxy may stand before the provider, or"
                " compress what must come as it is",
            )
        await opening.follow(status, response.headers.get("Location"))


def _other_content(response: aiohttp.ClientResponse) -> str:
    """What a response is, if it is no plain stream of events; else empty."""
    if response.content_type != EVENT_STREAM:
        return response.content_type
    encoding = response.headers.get("Content-Encoding", "identity")
    return "" if encoding.lower() == "identity" else encoding


async def _get(
    endpoint: Endpoint, options: Options, opening: OpeningRequest
) -> aiohttp.ClientResponse:
    headers = options.request_headers(opening.login)
    # A compressed stream would be bounded by what is received, not by what it becomes.
    headers.update(
        {"Accept": EVENT_STREAM, "Accept-Encoding": "identity", "Cache-Control": "no-cache"}
    )
    if not isinstance(opening.start, Start):
        headers["Last-Event-ID"] = opening.start
    # Silence has its own limit: the feed tells it from back-pressure.
    timeout = aiohttp.ClientTimeout(
        total=None,
        connect=options.connect_timeout_s,
        sock_connect=options.connect_timeout_s,
        sock_read=None,
    )
    session = endpoint.client.session()
    async with asyncio.timeout(options.request_timeout_s):
        return await session.get(
            opening.url, headers=headers, allow_redirects=False, timeout=timeout
        )
