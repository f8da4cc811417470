"""One instance of a provider: its own connections, cookies and login, shared with no other."""

from __future__ import annotations

import asyncio
import ssl

from yarl import URL

from instep.errors import UnreachableError
from instep_tapi.options import Options
from instep_tapi.restconf.auth import Authenticator
from instep_tapi.restconf.baseline import has_active_conditions
from instep_tapi.restconf.client import RestconfClient, new_client
from instep_tapi.restconf.discovery import ContextAddress, find_context
from instep_tapi.restconf.yang_library import module_revision
from instep_tapi.wire.stream_context import StreamContext

__all__ = ["Endpoint"]

_LONGEST_ANSWER_TIMEOUTS = 20
_DISCOVERY_TIMEOUTS = 5


class Endpoint:
    """Its connections are made at first use, in the loop that uses them, and live until `close`."""

    def __init__(self, url: URL, options: Options, tls: ssl.SSLContext) -> None:
        self.url = url
        self.tls = tls
        self.client = new_client(options, tls)
        self.auth = Authenticator(options.auth, self.client)
        self.auth.use(url)
        self.rest = RestconfClient(
            self.client,
            self.auth,
            options.max_body_bytes,
            options.request_timeout_s * _LONGEST_ANSWER_TIMEOUTS,
            headers=options.request_headers,
        )
        self._options = options
        self._shows_alarms: bool | None = None
        """Whether a GET shows the alarms that stand; None: not asked yet."""
        self._stated: StreamContext | None = None
        self._judged: StreamContext | None = None
        """The streams as they were stated last, and as the revision shows them."""

    def serves(self, address: URL) -> bool:
        """Whether an address has the host and port of this instance."""
        return (address.host, address.port) == (self.url.host, self.url.port)

    async def find(self) -> tuple[ContextAddress, StreamContext]:
        """Log in and find the stream context (TR-548 ST-0.1, ST-0.2). Raises `SourceError`."""
        timeout_s = self._options.request_timeout_s * _DISCOVERY_TIMEOUTS
        try:
            async with asyncio.timeout(timeout_s):
                address, context = await find_context(self.rest, self.url, self._options.roots)
                return address, await self._judge(address, context)
        except TimeoutError:
            raise UnreachableError(
                f"no stream context within {timeout_s:g} s", where=str(self.url)
            ) from None

    async def _judge(self, address: ContextAddress, stated: StreamContext) -> StreamContext:
        """The streams, with the revision of the module where names alone show their edition."""
        if self._judged is not None and self._stated == stated:
            return self._judged
        # A provider that states other streams may be of another version now.
        self._stated = self._judged = self._shows_alarms = None
        judged = stated
        if any(stream.profile.by_names for stream in stated.streams):
            data = URL(address.context).parent
            revision = await module_revision(self.rest, data, "tapi-streaming")
            judged = stated.with_revision(revision) if revision else stated
        self._stated, self._judged = stated, judged
        return judged

    async def shows_alarms(self, address: ContextAddress) -> bool:
        """Whether a GET shows the alarms that stand. Asked once for each statement of streams: the
        answer has them all, and what a provider has changes with its version. Raises `SourceError`.
        """
        if self._shows_alarms is None:
            self._shows_alarms = await has_active_conditions(self.rest, address)
        return self._shows_alarms

    async def close(self) -> None:
        """Close the connections; the instance can be used again afterwards."""
        await self.client.close()
