"""An endpoint for the tests, and a client that sends it any bytes."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from yarl import URL

from instep_http import ClientSettings, GuardedClient, ServerLimits
from instep_soap import SoapEndpoint, SoapHandler, xml
from instep_soap.header_templates import HeaderTemplates


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


def fresh_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the tags that other tests have parsed: they may have used up the room."""
    monkeypatch.setattr(xml, "_LOCAL", xml._Local())


def count_templates(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each envelope from now on was read by a template."""
    fresh_vocabulary(monkeypatch)
    found: list[bool] = []
    find = HeaderTemplates.find

    def counted(self: HeaderTemplates[Any], raw: bytes) -> Any:
        result = find(self, raw)
        found.append(result is not None)
        return result

    monkeypatch.setattr(HeaderTemplates, "find", counted)
    return found
