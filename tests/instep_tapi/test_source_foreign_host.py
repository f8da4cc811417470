"""A provider that names another host as the address of its stream."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from instep.errors import DiscoveryError
from instep.model.streams import Start
from instep_tapi.source import TapiSource
from tests.instep_tapi.hostile_kit import (
    CONTAINER,
    DEADLINE_S,
    Peer,
    frame,
    hostile,
    record,
    source_of,
    streams,
)

pytestmark = pytest.mark.asyncio
LOGIN = {"kind": "bearer", "token": "s3cret"}


@asynccontextmanager
async def elsewhere(logins: list[str], **options: Any) -> AsyncIterator[TapiSource]:
    """A source whose stream is offered at `localhost`, another name than the endpoint's; `logins`
    gets what is sent there.
    """

    async def site(peer: Peer) -> None:
        if "Upgrade" in peer.headers:
            logins.append(peer.headers.get("Authorization", ""))
            await peer.upgrade()
            await peer.send(frame(record()))
            await peer.reader.read()
        elif peer.target == CONTAINER:
            port = peer.headers["Host"].partition(":")[2]
            await peer.answer(json.dumps(streams(f"ws://localhost:{port}/stream")).encode())
        else:
            await peer.answer(b"", status="404 Not Found")

    async with hostile(site) as url, source_of(url, auth=LOGIN, **options) as source:
        yield source


async def test_it_gets_no_login() -> None:
    logins: list[str] = []
    async with elsewhere(logins) as source:
        with pytest.raises(DiscoveryError, match="at another host, ws://localhost:") as raised:
            await source.discover()
    assert 'stream_hosts = ["localhost"]' in raised.value.hint
    assert not raised.value.retriable
    assert not logins


async def test_allowed_by_name_it_is_read_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    logins: list[str] = []
    async with elsewhere(logins, stream_hosts=["localhost"]) as source, asyncio.timeout(DEADLINE_S):
        with caplog.at_level(logging.WARNING, "instep.tapi"):
            (stream,) = await source.discover()
            await source.discover()
        async with source.feed(stream, Start.OLDEST) as feed:
            assert (await feed.receive()).size_bytes
    assert logins == ["Bearer s3cret"]
    ours = [one.getMessage() for one in caplog.records if one.name == "instep.tapi"]
    assert len(ours) == 1
    assert ours[0].endswith("has streams read at localhost")
