"""`instep run` with `kind = "wsr"`: a process of its own, real HTTP, a real store, SIGKILL."""

from __future__ import annotations

import asyncio
import signal
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from instep.errors import SourceError
from instep_http import ClientSettings, GuardedClient
from instep_wsr.testing import WsrSource
from tests.instep_soap.process_kit import Site


async def listening(source: WsrSource) -> None:
    """Poll until the receiver answers."""
    async with asyncio.timeout(60):
        while True:
            with suppress(SourceError):
                await source.poll()
                return
            await asyncio.sleep(0.05)


async def send(source: WsrSource, *numbers: int) -> None:
    for number in numbers:
        await source.send(f"<order xmlns='urn:shop'>{number}</order>".encode(), number=number)


@pytest.mark.asyncio
async def test_what_is_acknowledged_survives_sigkill(tmp_path: Path) -> None:
    site = Site("wsr", tmp_path)
    settings = ClientSettings(connect_timeout_s=5.0, total_timeout_s=30.0)
    async with GuardedClient(settings, ssl.create_default_context()) as client:
        source = WsrSource(site.url, client)
        with site.run() as process:
            await listening(source)
            await send(source, 0, 1, 3)
            assert source.unacknowledged == [], "3 is durable, and waits for 2"
            process.send_signal(signal.SIGKILL)
            process.wait(30)
        with site.run() as process:
            await listening(source)
            await send(source, 1, 2)
            assert list(source.acknowledged.pairs()) == [(0, 3)]
            (shown,) = [one for one in site.listed("status") if "received" in one]
            assert shown["received"] == "0-3"
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
    found = site.listed("messages")
    assert [one["number"] for one in found] == [0, 1, 2, 3]
    assert {one["stream"] for one in found} == {source.group_id}
    assert all("<order" in one["body"] for one in found)
