"""One instance of a provider: its own connections, cookies and login, shared with no other."""

from __future__ import annotations

import asyncio
import ssl

import aiohttp
from yarl import URL

from instep.errors import UnreachableError
from instep_tapi.options import Options
from instep_tapi.restconf.auth import Authenticator
from instep_tapi.restconf.client import RestconfClient
from instep_tapi.restconf.discovery import ContextAddress, find_context
from instep_tapi.restconf.http_session import make_session
from instep_tapi.wire.stream_context import StreamContext

__all__ = ["Endpoint"]

_LONGEST_ANSWER_TIMEOUTS = 20
_DISCOVERY_TIMEOUTS = 5


class Endpoint:
    """The HTTP session is made at first use, in the loop that uses it, and lives until `close`."""

    def __init__(self, url: URL, options: Options, tls: ssl.SSLContext) -> None:
        self.url = url
        self.auth = Authenticator(options.auth, self.session)
        self.auth.use(url)
        self.rest = RestconfClient(
            self.session,
            self.auth,
            options.max_body_bytes,
            options.request_timeout_s * _LONGEST_ANSWER_TIMEOUTS,
        )
        self._options = options
        self.tls = tls
        self._session: aiohttp.ClientSession | None = None

    def session(self) -> aiohttp.ClientSession:
        """The connections of this instance."""
        if self._session is None:
            self._session = make_session(self._options, self.tls)
        return self._session

    def serves(self, address: URL) -> bool:
        """Whether an address has the host and port of this instance."""
        return (address.host, address.port) == (self.url.host, self.url.port)

    async def find(self) -> tuple[ContextAddress, StreamContext]:
        """Log in and find the stream context (TR-548 ST-0.1, ST-0.2). Raises `SourceError`."""
        timeout_s = self._options.request_timeout_s * _DISCOVERY_TIMEOUTS
        try:
            async with asyncio.timeout(timeout_s):
                return await find_context(self.rest, self.url, self._options.roots)
        except TimeoutError:
            raise UnreachableError(
                f"no stream context within {timeout_s:g} s", where=str(self.url)
            ) from None

    async def close(self) -> None:
        """Close the connections; the instance can be used again afterwards."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
