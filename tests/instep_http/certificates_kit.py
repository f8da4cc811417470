"""Certificates for listeners that ask for them: an authority, its clients, and a foreign one."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import aiohttp
import trustme

__all__ = ["Certificates"]


class Certificates:
    """An authority for the server and its clients; its files are in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.authority, self._foreign = trustme.CA(), trustme.CA()
        server = self.authority.issue_cert("localhost", "127.0.0.1")
        server.private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
        self.authority.cert_pem.write_to_path(str(folder / "ca.pem"))

    @property
    def tls(self) -> dict[str, str]:
        """The table `tls` of a listener that asks for a certificate."""
        return {"cert": str(self._folder / "server.pem"), "client_ca": str(self._folder / "ca.pem")}

    def client(self, *names: str, foreign: bool = False, **options: Any) -> ssl.SSLContext:
        """The context of a client with a new certificate of these names; without, it has none."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if names or options:
            issuer = self._foreign if foreign else self.authority
            issuer.issue_cert(*names, **options).configure_cert(context)
        return context

    @staticmethod
    async def post(
        url: str, body: bytes, context: ssl.SSLContext, content_type: str = "text/xml"
    ) -> tuple[int, bytes]:
        """Status and body of the answer to a POST over a new connection."""
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
            session.post(url, data=body, headers={"Content-Type": content_type}) as answer,
        ):
            return answer.status, await answer.read()
