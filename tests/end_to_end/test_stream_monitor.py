"""What a provider says of our reading (TR-548 3.18), beside our own figures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace
from typer.testing import CliRunner

from instep.cli.app import app
from instep.model.freshness import ProviderMonitor
from instep_sql import SqlStore
from tests.instep_tapi.hostile_kit import Peer
from tests.instep_tapi.small_provider_kit import (
    CONTEXT,
    DEADLINE_S,
    SETTINGS,
    SmallProvider,
    node,
    running,
)

pytestmark = pytest.mark.asyncio

MONITOR = f"{CONTEXT}/tapi-streaming:stream-admin-context"
SOON = replace(SETTINGS, monitor_every_s=0.2, stale_after_s=3)


class MonitoredProvider(SmallProvider):
    def __init__(self, *, edition: str = "2.6") -> None:
        super().__init__("NODE", log=[node("n1", 7)], storage="COMPACTED")
        self.edition = edition
        self.entries: list[dict[str, Any]] | None = []
        self.clients: list[str] = []

    async def serve(self, peer: Peer) -> None:
        if peer.target != MONITOR:
            if "Upgrade" in peer.headers:
                host, port = peer.writer.get_extra_info("peername")
                self.clients.append(f"{host}:{port}")
            await super().serve(peer)
        elif self.entries is None:
            await peer.answer(b"", status="404 Not Found")
        else:
            admin = {"stream-monitor": self.entries}
            await peer.answer(json.dumps({"tapi-streaming:stream-admin-context": admin}).encode())

    def entry(self, read: str, written: str, **more: str) -> dict[str, Any]:
        ids = {
            "id-of-last-record-read-from-log": read,
            "id-of-last-record-written-to-log": written,
        }
        context = self.streams("ws://h")
        (stream,) = context["available-stream"]
        own = {"dynamic-stream-data": ids} if self.edition == "2.6" else ids
        return {"available-stream": {"available-stream-uuid": stream["uuid"]}, **own, **more}


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = SqlStore(f"sqlite:///{tmp_path / 's.db'}")
    yield opened
    await opened.close()


async def said(store: SqlStore, **wanted: Any) -> ProviderMonitor:
    """What is stored of it, once it has these values."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            (stream,) = await store.reader.streams()
            found = stream.report.monitor if stream.report else None
            if found and all(getattr(found, name) == value for name, value in wanted.items()):
                return found
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("edition", ["2.1.3", "2.6"])
async def test_3_18_the_providers_own_count_of_our_lag_is_shown(
    edition: str, store: SqlStore, tmp_path: Path
) -> None:
    provider = MonitoredProvider(edition=edition)
    provider.entries = [provider.entry("10", "905")]
    async with running(provider, store, SOON):
        found = await said(store, lag_records=895)
        assert (found.read_id, found.written_id, found.difference) == ("10", "905", "")
        url = f"sqlite:///{tmp_path / 's.db'}"
        shown = await asyncio.to_thread(CliRunner().invoke, app, ["status", "--store", url])
        assert "895 records behind; read up to 10, written 905" in shown.output
        line = await asyncio.to_thread(
            CliRunner().invoke, app, ["status", "--store", url, "--format", "jsonl"]
        )
        assert json.loads(line.output)["monitor"]["lag_records"] == 895


async def test_3_18_two_connections_of_this_client_are_told(store: SqlStore) -> None:
    provider = MonitoredProvider()
    async with running(provider, store, SOON):
        (ours,) = provider.clients
        entry = provider.entry("7", "7", **{"client-address": ours, "client-id": "c1"})
        other = entry | {"client-address": "192.0.2.1:99"}
        stranger = entry | {"client-address": "192.0.2.1:99", "client-id": "c2"}
        provider.entries = [entry, stranger]
        assert (await said(store, connections=1)).difference == ""
        provider.entries = [entry, other, stranger]
        told = "2 connections of this client are open for the provider"
        await said(store, connections=2, difference=told)


async def test_3_18_a_reading_that_is_behind_what_is_committed_is_told(store: SqlStore) -> None:
    provider = MonitoredProvider()
    provider.entries = [provider.entry("5", "7")]
    async with running(provider, store, SOON):
        told = "it takes us to have read up to 5; 7 is committed"
        await said(store, difference=told)
        provider.entries = [provider.entry("7", "7")]
        await said(store, difference="", lag_records=0)


class PlainProvider(MonitoredProvider):
    """Its paths have no modules."""

    async def serve(self, peer: Peer) -> None:
        plain = "/restconf/data/context"
        if peer.target.startswith(plain):
            member = peer.target.removeprefix(plain)
            peer.target = f"{CONTEXT}{member.replace('/stream-', '/tapi-streaming:stream-')}"
        elif "Upgrade" not in peer.headers:
            await peer.answer(b"", status="404 Not Found")
            return
        await super().serve(peer)


async def test_3_18_the_monitor_is_found_where_paths_have_no_modules(store: SqlStore) -> None:
    provider = PlainProvider()
    provider.entries = [provider.entry("1", "5")]
    async with running(provider, store, SOON):
        await said(store, lag_records=4)


async def test_3_18_after_a_reconnect_the_provider_is_asked_again(store: SqlStore) -> None:
    provider = MonitoredProvider()
    provider.entries = None
    async with running(provider, store, SOON):
        await asyncio.sleep(0.5)
        provider.entries = [provider.entry("7", "9")]
        provider.cut()
        await said(store, lag_records=2)


async def test_3_18_a_provider_without_a_monitor_is_not_asked_again(store: SqlStore) -> None:
    provider = MonitoredProvider()
    provider.entries = None
    async with running(provider, store, SOON):
        await asyncio.sleep(1)
        provider.entries = [provider.entry("7", "7")]
        await asyncio.sleep(0.6)
        (stream,) = await store.reader.streams()
        assert stream.report is not None
        assert stream.report.monitor is None
