"""A network of two controllers, one of TAPI 2.1.3 and one of 2.6, in one store: whatever a user
asks, both answer alike.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from instep import Consumer
from instep_sql import SqlStore
from instep_sql.projections.ready import ready_projection
from instep_tapi import ConnectivityServices, TapiSource, read_options
from instep_tapi.derivations import alarms, measurements, references
from instep_tapi_provider import Context, Provider, ProviderSettings
from instep_tapi_provider.topology import topology_context
from tests.end_to_end.site_kit import QUICK

pytestmark = pytest.mark.asyncio

EDITIONS = {"east": "2.1.3", "west": "2.6"}
JOB, POINT = "9d1b7f9e-2a52-4a3c-9b59-0f5a6c1d0001", "9d1b7f9e-2a52-4a3c-9b59-0f5a6c1d0002"
QUARTER = {"value": "15", "unit": "MINUTES"}
ENDS = ("2026-11-22T10:15:00Z", "2026-11-22T10:30:00Z")
TABLES = (
    *("node", "node_edge_point", "link", "connection_end_point", "connection"),
    "connectivity_service",
)


def measured(tapi: str) -> dict[str, Any]:
    """Two periods of one series, as the edition has them."""
    if tapi == "2.1.3":
        history = [
            {"local-id": f"h{n}", "granularity-period": QUARTER, "period-end-time": end}
            for n, end in enumerate(ENDS)
        ]
        current = {"local-id": "c", "pm-history-data": history}
        return {"oam-job": [{"uuid": JOB, "pm-current-data": [current]}]}
    pac = {"granularity-period": {"period": [QUARTER]}}
    history = [
        {"local-id": f"h{n}", "pm-data-pac": pac, "period-end-time": end}
        for n, end in enumerate(ENDS)
    ]
    return {"cep-pm-data": [{"uuid": POINT, "history-data": history}]}


class Network(NamedTuple):
    """Both controllers are followed, and aligned."""

    store: SqlStore
    database: str
    providers: dict[str, Provider]
    sources: dict[str, TapiSource]

    def rows(self, table: str) -> dict[str, set[tuple[Any, ...]]]:
        """The rows of a ready table by consumer, without the number of the entity."""
        query = f"""
            SELECT s.consumer, r.* FROM {table} AS r JOIN instep_entity AS e ON e.id = r.entity_id
            JOIN instep_stream AS s ON s.id = e.stream_no
        """
        found: dict[str, set[tuple[Any, ...]]] = {name: set() for name in EDITIONS}
        with sqlite3.connect(self.database) as connection:
            for consumer, _, *row in connection.execute(query):
                found[consumer].add(tuple(row))
        return found


@pytest_asyncio.fixture
async def network(tmp_path: Path) -> AsyncIterator[Network]:
    database = f"{tmp_path}/s.db"
    async with AsyncExitStack() as stack:
        providers, sources = {}, {}
        for name, tapi in EDITIONS.items():
            root = topology_context("sndlib/polska", services=5, tapi=tapi).root
            content = Context(root | {"tapi-oam:oam-context": measured(tapi)})
            provider = Provider(content, ProviderSettings().of_edition(tapi))
            port = next(n.key for n in content.nodes.values() if n.cls == "NODE_EDGE_POINT")
            provider.operator.raise_alarm(port, "LOS")
            providers[name] = await stack.enter_async_context(provider)
            sources[name] = TapiSource(read_options({"endpoints": [provider.url]}, name))
        stores = [
            SqlStore(
                f"sqlite:///{database}",
                projections=[ready_projection(one) for one in (*TABLES, "alarm")],
                alarms=True,
                references=True,
                measurements=True,
            )
            for _ in EDITIONS
        ]
        for name, store in zip(EDITIONS, stores, strict=True):
            consumer = Consumer(name, sources[name], store, QUICK)
            await stack.enter_async_context(consumer)
            await consumer.aligned(timeout_s=60)
        yield Network(stores[0], database, providers, sources)


async def test_entities_are_alike_in_tables_places_and_references(network: Network) -> None:
    for table in TABLES:
        east, west = network.rows(table).values()
        assert east == west
        assert east
    reader = network.store.reader
    points = {
        one.uuid
        async for one in reader.entities(consumer="west", entity_class="CONNECTION_END_POINT")
    }
    point = min(points)
    paths = [await references.path(reader, point, consumer=name) for name in EDITIONS]
    assert paths[0] == paths[1]
    assert [(one.name, one.known) for one in paths[1]] == [
        ("topology-uuid", True),
        ("node-uuid", True),
        ("node-edge-point-uuid", True),
    ]
    found = []
    for name in EDITIONS:
        stated = references.referrers(reader, point, consumer=name)
        found.append({(one.entity_class, one.role, one.name) async for one in stated})
        # Of all that entities refer to, only detectors are no entities.
        dangling = {one.name async for one in references.dangling(reader, consumer=name)}
        assert dangling == {"detector-uuid"}
    role = "connection-end-point"
    assert found[0] == found[1] >= {("CONNECTION", role, f"{role}-uuid")}


async def test_alarms_are_alike(network: Network) -> None:
    found = {
        one.consumer: (
            *(one.condition, one.severity, one.state, one.service_affect, one.acknowledged),
            *(one.measured_class, one.measured_uuid, one.measured_known, one.info),
        )
        async for one in alarms.alarms(network.store.reader, standing=True)
    }
    assert found["east"] == found["west"]
    assert found["west"][0] == "Loss Of Signal"
    # Uuid, condition, measured entity, its native id, state, severity, acknowledged.
    (east,), (west,) = network.rows("alarm").values()
    assert east[:4] == west[:4]
    assert east[5:] == west[5:] == ("CRITICAL", 0)
    assert [row[4] for row in (east, west)] == [
        "ALARM_DETECTOR_STATE_ACTIVE",
        "SIMPLE_DETECTOR_STATE_ACTIVE",
    ]


async def test_measurements_are_series_alike(network: Network) -> None:
    found: dict[str, list[Any]] = {name: [] for name in EDITIONS}
    series = set()
    async for one in measurements.measurements(network.store.reader):
        found[one.consumer].append((one.begin_us, one.end_us, one.complete))
        series.add((one.consumer, one.series))
    assert found["east"] == found["west"]
    assert len(found["west"]) == len(ENDS)
    assert series == {("east", f"{JOB}/c"), ("west", POINT)}


@pytest.mark.parametrize("name", EDITIONS)
async def test_a_service_is_ordered_followed_and_deleted(network: Network, name: str) -> None:
    services = ConnectivityServices(
        network.sources[name], network.store.reader, consumer=name, poll_s=0.05
    )
    nodes = network.providers[name].context.nodes
    sips = [node.uuid for node in nodes.values() if node.cls == "SERVICE_INTERFACE_POINT"]
    end_points = [
        {"local-id": uuid, "service-interface-point": {"service-interface-point-uuid": uuid}}
        for uuid in sips[:2]
    ]
    service = await services.create({"end-point": end_points}, timeout_s=30)
    assert service["lifecycle-state"] == "INSTALLED"
    await services.delete(service["uuid"], timeout_s=30)
    assert service["uuid"] not in nodes
