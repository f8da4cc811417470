"""The public contexts, with whole sub-trees in the records: whatever the log keeps, both sides are
equal entity by entity, and neither the journal nor an audit tells of a change that is none (TR-548
3.8.1, 3.10; A12 to A15).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from instep import Consumer
from instep.model.entities import ChangeKind, StoredEntity
from instep_sql import SqlStore
from instep_tapi.facts.names import LogStorageStrategy
from instep_tapi.plugin import source
from instep_tapi_provider import Context, Nested, Provider, ProviderSettings, StreamSettings
from tests.end_to_end.site_kit import QUICK, until

pytestmark = pytest.mark.asyncio

CONTEXTS = ["odtn_out_tapi", "onf_ri_odu", "onf_ri_ols", "onf_ri_tpnd", "transportpce_tapi24"]
TRUNCATED = LogStorageStrategy.TRUNCATED
COMPACTED = LogStorageStrategy.COMPACTED
ALARMS = frozenset({"CONDITION_DETECTOR"})
STREAMS: dict[str, dict[str, tuple[LogStorageStrategy, frozenset[str] | None]]] = {
    "compacted": {"all": (COMPACTED, None)},
    "truncated": {"all": (TRUNCATED, None)},
    # Connections, rule groups and interface points are in no stream.
    "mixed": {
        "nodes": (TRUNCATED, frozenset({"TOPOLOGY", "NODE", "LINK"})),
        "points": (COMPACTED, frozenset({"NODE_EDGE_POINT"})),
        "ends": (TRUNCATED, frozenset({"CONNECTION_END_POINT"})),
        "alarms": (TRUNCATED, ALARMS),
    },
    "nodes alone": {"nodes": (TRUNCATED, frozenset({"NODE"}))},
}
MEMBER_OF = {
    "SERVICE_INTERFACE_POINT": "service-interface-point",
    "TOPOLOGY": "topology",
    "NODE": "node",
    "LINK": "link",
    "NODE_EDGE_POINT": "owned-node-edge-point",
    "CONNECTION_END_POINT": "connection-end-point",
    "NODE_RULE_GROUP": "node-rule-group",
    "INTER_RULE_GROUP": "inter-rule-group",
    "NETWORK_TOPOLOGY_SERVICE": "nw-topology-service",
    "CONNECTIVITY_SERVICE": "connectivity-service",
    "CONNECTION": "connection",
}
"""The lists of the YANG that these contexts have, by the class of what they contain."""


def own(value: Any, carried: set[str]) -> Any:
    """A statement without what has records of its own (TR-548 3.10), and without the containers
    that held nothing else.
    """
    members = {MEMBER_OF[cls] for cls in carried if cls in MEMBER_OF}
    if isinstance(value, list):
        return [own(item, carried) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {}
    for name, inner in value.items():
        items = inner if isinstance(inner, list) else [inner]
        entities = [isinstance(item, dict) and "uuid" in item for item in items]
        if name.rpartition(":")[2] in members and all(entities):
            continue
        stated = own(inner, carried)
        if stated or not inner:
            kept[name] = stated
    return kept


class Site:
    """A provider of a public context, and where its consumers keep their store."""

    def __init__(self, provider: Provider, folder: Path) -> None:
        self.provider = provider
        self.carried = {cls for stream in provider.streams for cls in stream.classes}
        self.url = f"sqlite:///{folder}/store.db"

    @asynccontextmanager
    async def consumer(self) -> AsyncIterator[tuple[Consumer, SqlStore]]:
        built = source.build({"endpoints": [self.provider.url]}, "test")
        store = SqlStore(self.url, journal="previous")
        async with Consumer("test", built, store, QUICK) as consumer:
            yield consumer, store

    def truth(self) -> dict[tuple[str, str], tuple[str, Any]]:
        """By stream and key the class of an entity and what is its own, as the tree has it."""
        found = {}
        nodes = self.provider.context.nodes
        for stream in self.provider.streams:
            for key, (cls, body) in self.provider.entities(stream.stream_id).items():
                value = nodes[key].value if key in nodes else json.loads(body)
                found[stream.stream_id, key] = (cls, own(value, self.carried))
        return found

    async def held(self, store: SqlStore) -> dict[tuple[str, str], tuple[str, Any]]:
        return {
            (one.stream, one.key): (one.entity_class, own(json.loads(one.body), self.carried))
            async for one in store.reader.entities()
        }

    async def equal(self, consumer: Consumer, store: SqlStore) -> None:
        held, truth = await self.held(store), self.truth()
        for _ in range(200):
            if held == truth and consumer.health().aligned:
                return
            await asyncio.sleep(0.05)
            held, truth = await self.held(store), self.truth()
        assert sorted(held.keys() - truth.keys()) == []
        assert sorted(truth.keys() - held.keys()) == []
        assert {key: held[key] for key in held if held[key] != truth[key]} == {}

    async def journal_tells_changes_alone(self, store: SqlStore) -> None:
        last: dict[tuple[str, str], Any] = {}
        async for change in store.changes():
            key = change.stream, change.key
            stated = own(json.loads(change.body), self.carried) if change.body else None
            if change.change is ChangeKind.UPDATED and change.entity_class not in ALARMS:
                before = own(json.loads(change.previous or b"null"), self.carried)
                assert stated != before, change
            last[key] = stated

    async def audit_finds_nothing(self, consumer: Consumer, store: SqlStore) -> None:
        found: list[Any] = []
        before = await stored(store)
        for stream in self.provider.streams:
            if stream.stream_id == "alarms":
                continue  # what no GET shows cannot be audited
            [report] = await consumer.audit(stream.stream_id, repair=True, found=found.append)
            assert report.clean
        assert found == []
        assert await stored(store) == before


async def stored(store: SqlStore) -> dict[tuple[str, str], StoredEntity]:
    """What is stored, but for what has proven it last."""
    return {
        (one.stream, one.key): msgspec.structs.replace(one, proven_at_us=0, proven_by="")
        async for one in store.reader.entities()
    }


def changed(provider: Provider, count: int) -> None:
    """Change, delete and create here and there, also what no stream carries."""
    nodes = provider.context.nodes
    by_class: dict[str, list[str]] = {}
    for key, node in nodes.items():
        by_class.setdefault(node.cls, []).append(key)
    for cls, keys in sorted(by_class.items()):
        for key in keys[:3]:
            name = [{"value-name": "x", "value": f"{cls} {count}"}]
            provider.update(key, {"name": name})
    for cls in ("CONNECTION_END_POINT", "NODE_RULE_GROUP", "NODE_EDGE_POINT", "LINK"):
        keys = [key for key in by_class.get(cls, ()) if key in nodes]
        if len(keys) > 3:
            provider.delete(keys[-1])
    first = by_class["NODE"][0]
    provider.create(first, "owned-node-edge-point", {"uuid": f"new-{count}", "name": []})


@pytest.mark.parametrize("strategy", STREAMS)
@pytest.mark.parametrize("name", CONTEXTS)
async def test_both_sides_are_equal_whatever_happens(
    name: str, strategy: str, shared_data: Path, tmp_path: Path
) -> None:
    context = Context.load(shared_data / "tapi" / f"{name}_context.json")
    streams = tuple(
        StreamSettings(stream, classes=classes, storage=storage, nested=Nested.WHOLE)
        for stream, (storage, classes) in STREAMS[strategy].items()
    )
    keys = {cls: [k for k, n in context.nodes.items() if n.cls == cls] for cls in MEMBER_OF}
    points, ends = keys["NODE_EDGE_POINT"], keys["CONNECTION_END_POINT"]
    for key in ends[:8]:
        # As a real controller has them: below two node edge points.
        context.share(key, points[-1], "cep-list/connection-end-point")
    async with Provider(context, ProviderSettings(streams=streams)) as provider:
        site = Site(provider, tmp_path)
        async with site.consumer() as (consumer, store):
            await consumer.aligned(30)
            await site.equal(consumer, store)
            await provider.start_storm(400)
            await asyncio.sleep(0.3)
            changed(provider, 1)
            provider.drop_clients()
            await asyncio.sleep(0.2)
            await provider.stop_storm()
            await site.equal(consumer, store)
            await site.audit_finds_nothing(consumer, store)
            await site.journal_tells_changes_alone(store)
        changed(provider, 2)
        for stream in provider.streams:
            stream.log.tokens = type(stream.log.tokens)(4711)
        async with site.consumer() as (consumer, store):
            await until(
                lambda: (
                    bool(consumer.health().streams)
                    and all(one.attempt > 1 for one in consumer.health().streams)
                ),
                "the second attempt",
            )
            await consumer.aligned(30)
            await site.equal(consumer, store)
            await site.audit_finds_nothing(consumer, store)
            await site.journal_tells_changes_alone(store)
