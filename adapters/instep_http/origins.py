"""Refuses requests of web pages: cross-site requests and DNS rebinding.

The peers of these protocols are programs, which send no Origin. A page of a foreign site that
reaches a server on its visitor's machine or network does send one (Fetch standard, "origin header";
RFC 6455 10.2). If the site resolves its own name to our address, the page sends that name as Host.
The port of Host is not compared: behind a forwarded port or a proxy it is not the one that the
server listens on.
"""

from __future__ import annotations

import re
from typing import Final

from multidict import CIMultiDict, CIMultiDictProxy

from instep_http.connection_limits import is_loopback

__all__ = ["OriginRules"]

_HOST: Final = re.compile(r"(\[[^\[\]@]*\]|[^\[\]@:]*)(?::[0-9]*)?")


class OriginRules:
    """Checks Origin and Host of requests.

    Args:
        listen_host: The host that the server listens on.
        allow_origins: Origins, as browsers write them: ``https://app.example.org``.
        allow_hosts: Names or addresses, without port, that Host may have, beside `listen_host`.
            Without any, Host is checked on a loopback address only: a server that listens elsewhere
            cannot know all of its names.
    """

    def __init__(
        self, listen_host: str, allow_origins: frozenset[str], allow_hosts: frozenset[str]
    ) -> None:
        self._origins = allow_origins
        self._loopback = is_loopback(listen_host)
        self._checks_host = self._loopback or bool(allow_hosts)
        self._hosts = {host.lower().strip("[]") for host in (listen_host, *allow_hosts)}

    def refusal(
        self, headers: CIMultiDict[str] | CIMultiDictProxy[str], authority: str | None = None
    ) -> str:
        """The reason why a request is refused; empty if it is allowed. The authority of its target
        counts instead of Host, if it has one (RFC 9112 3.2.2).
        """
        for origin in headers.getall("Origin", ()):
            if origin not in self._origins:
                return "requests of web pages are not taken from this Origin"
        if self._checks_host:
            hosts = headers.getall("Host", ()) if authority is None else (authority,)
            if not all(map(self._is_ours, hosts)):
                return "this Host is not served here"
        return ""

    def _is_ours(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        name = found[1].strip("[]").lower() if found else ""
        return name in self._hosts or (self._loopback and is_loopback(name))
