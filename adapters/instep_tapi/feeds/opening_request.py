"""Opens a stream by HTTP, whatever the transport: start, login, redirects (TR-548 ST-0.3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from yarl import URL

from instep.model.streams import Start
from instep_http import SAME_ORIGIN, shown
from instep_tapi.feeds.close_codes import handshake_error
from instep_tapi.restconf.auth import Authenticator

__all__ = ["OpeningRequest", "start_url"]

_MAX_REDIRECTS: Final = 3


def start_url(address: URL, start: str | Start) -> URL:
    """The connection-address with `start_from` (5.10.1); none for the oldest record."""
    if start is Start.OLDEST:
        return address
    value = "latest" if start is Start.LATEST else quote(start, safe="")
    joint = "&" if address.raw_query_string else "?"
    return URL(f"{address.with_fragment(None)}{joint}start_from={value}", encoded=True)


@dataclass(slots=True)
class OpeningRequest:
    """The next request that opens a stream at `start`: where it goes, and with which login."""

    auth: Authenticator
    start: str | Start
    url: URL
    login: dict[str, str] = field(repr=False)
    where: str
    _redirects: int = 0
    _renewed: bool = False

    @classmethod
    async def of(cls, auth: Authenticator, address: URL, start: str | Start) -> OpeningRequest:
        """The first request. Raises `AuthenticationError`, or `SourceError` without an answer."""
        url = start_url(address, start)
        return cls(auth, start, url, await auth.headers(), shown(url))

    async def follow(self, status: int, location: str | None) -> None:
        """Prepare the request after an answer that opened nothing: a login that was refused is
        renewed once, a redirect is followed within the origin.

        Raises `TokenRefusedError`, `StreamGoneError`, `AuthenticationError`, `UnreachableError`
        where there is none.
        """
        if status == HTTPStatus.UNAUTHORIZED:
            if self._renewed:
                raise self.auth.refusal(self.where)
            self._renewed = True
            self.login = await self.auth.renew(self.login, self.where)
        elif 300 <= status < 400 and location and self._redirects < _MAX_REDIRECTS:
            self._redirects += 1
            self.url = SAME_ORIGIN.target(self.url, status, location)
        else:
            raise handshake_error(status, self.where, self.start)
