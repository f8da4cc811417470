"""A provider, a source that follows it, and what came."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trustme

from instep.errors import SourceError
from instep.model.records import Record
from instep.model.streams import StreamInfo
from instep.ports.source import Feed, Source
from instep_tapi.facts.names import LogStorageStrategy
from instep_tapi.plugin import source as plugin
from instep_tapi_provider import (
    Context,
    Faults,
    Provider,
    ProviderSettings,
    RecordStyle,
    StreamSettings,
)

DEADLINE_S = 20.0
TRUNCATED = LogStorageStrategy.TRUNCATED
NODES = 20


def network(nodes: int = NODES) -> Context:
    node = [{"uuid": f"n{n}", "owned-node-edge-point": [{"uuid": f"p{n}"}]} for n in range(nodes)]
    topology = {"topology": [{"uuid": "t", "node": node}]}
    return Context({"uuid": "c", "tapi-topology:topology-context": topology})


def certified(ca: Path) -> ssl.SSLContext:
    """TLS of a server at 127.0.0.1; who shall trust it, finds its authority in the file `ca`."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(ca))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    return tls


def one_stream(style: RecordStyle | None = None, **stream: Any) -> ProviderSettings:
    settings = StreamSettings("network", style=style or RecordStyle(), **stream)
    return ProviderSettings(streams=(settings,))


@asynccontextmanager
async def following(provider: Provider, **options: Any) -> AsyncIterator[Source]:
    source = plugin.build({"endpoints": [provider.url], **options}, "source")
    try:
        yield source
    finally:
        await source.close()


@asynccontextmanager
async def serving(
    settings: ProviderSettings | None = None, faults: Faults | None = None, **options: Any
) -> AsyncIterator[tuple[Provider, Source]]:
    async with (
        Provider(network(), settings or one_stream(), faults=faults) as provider,
        following(provider, **options) as source,
    ):
        yield provider, source


async def receive(feed: Feed, count: int) -> list[Record]:
    records: list[Record] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(records) < count:
            records += (await feed.receive()).decode().records
    return records


async def ending(feed: Feed) -> SourceError:
    """The error that the feed ends with."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                await feed.receive()
            except SourceError as error:
                return error


async def only(source: Source) -> StreamInfo:
    [info] = await source.discover()
    return info


def same(records: list[Record], truth: dict[str, tuple[str, bytes]]) -> bool:
    return {record.key: (record.entity_class, json.loads(record.body)) for record in records} == {
        key: (entity_class, json.loads(body)) for key, (entity_class, body) in truth.items()
    }
