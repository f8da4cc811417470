"""`instep run` with `kind = "wsrm"`: a process of its own, real HTTP, a real store, SIGKILL."""

from __future__ import annotations

import asyncio
import signal
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from instep.errors import SourceError
from instep_http import ClientSettings, GuardedClient
from instep_wsrm.testing import WsrmSource
from tests.instep_soap.process_kit import Site

ORDER = "urn:shop/order"


async def listening(source: WsrmSource) -> None:
    """Create the sequence, or ask for its acknowledgement, until the destination answers."""
    async with asyncio.timeout(60):
        while True:
            with suppress(SourceError):
                await (source.ask() if source.identifier else source.create())
                return
            await asyncio.sleep(0.05)


async def send(source: WsrmSource, *numbers: int) -> None:
    for number in numbers:
        body = f"<order xmlns='urn:shop'>{number}</order>".encode()
        await source.send(body, ORDER, number=number)


@pytest.mark.asyncio
async def test_a_cancelled_number_is_never_accepted_also_after_sigkill(tmp_path: Path) -> None:
    site = Site("wsrm", tmp_path)
    settings = ClientSettings(connect_timeout_s=5.0, total_timeout_s=30.0)
    async with GuardedClient(settings, ssl.create_default_context()) as client:
        source = WsrmSource(site.url, client)
        with site.run() as process:
            await listening(source)
            await send(source, 1, 2, 6)
            await source.cancel((3, 5))
            assert list(source.cancelled.pairs()) == [(3, 5)]
            process.send_signal(signal.SIGKILL)
            process.wait(30)
        with site.run() as process:
            await listening(source)
            assert list(source.cancelled.pairs()) == [(3, 5)]
            await send(source, 3, 4, 5, 2, 7)
            assert list(source.acknowledged.pairs()) == [(1, 2), (6, 7)]
            assert source.unacknowledged == []
            (shown,) = [one for one in site.listed("status") if "received" in one]
            assert (shown["received"], shown["cancelled"]) == ("1-2,6-7", "3-5")
            await source.fill((3, 5))
            await source.close()
            assert (list(source.acknowledged.pairs()), source.final) == ([(1, 7)], True)
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
    found = site.listed("messages")
    assert [one["number"] for one in found] == [1, 2, 6, 7]
    assert {one["stream"] for one in found} == {source.identifier}
    assert all("<order" in one["body"] for one in found)
