"""An endpoint for the tests, and a client that sends it any bytes."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from yarl import URL

from instep_http import ClientSettings, GuardedClient, ServerLimits
from instep_soap import SoapEndpoint, SoapHandler


@asynccontextmanager
async def serving(
    handler: SoapHandler, *, below: bool = False, fast_path: bool = True, **limits: int
) -> AsyncIterator[SoapEndpoint]:
    listen = URL("http://127.0.0.1:0/soap")
    endpoint = SoapEndpoint(
        listen, handler, ServerLimits(**limits), below=below, fast_path=fast_path
    )
    await endpoint.start()
    try:
        yield endpoint
    finally:
        await endpoint.stop()


def new_client() -> GuardedClient:
    return GuardedClient(ClientSettings(total_timeout_s=20.0), ssl.create_default_context())


async def post(url: str, raw: bytes, content_type: str) -> tuple[int, str, bytes]:
    """Status, Content-Type and body of the response."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=raw, headers={"Content-Type": content_type}) as answer,
    ):
        return answer.status, answer.headers.get("Content-Type", ""), await answer.read()
