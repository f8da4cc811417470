"""A client that keeps some classes or subtrees of a stream that carries more (TR-548 3.12)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from instep_sql.plugin import sink
from instep_tapi.facts.names import LogRecordStrategy, LogStorageStrategy
from tests.end_to_end.site_kit import Site, network, provider, site

pytestmark = pytest.mark.asyncio

PORT = "NODE_EDGE_POINT"
NODES: dict[str, Any] = {"streams": {"only_classes": ["NODE"]}}
STRATEGIES: dict[str, dict[str, Any]] = {
    "compacted": {},
    "truncated": {"storage": LogStorageStrategy.TRUNCATED},
    "change only": {"record_strategy": LogRecordStrategy.CHANGE_ONLY},
}


async def is_kept(here: Site, *classes: str) -> None:
    """Wait until the store has what the provider states of these classes, and nothing else."""
    await are_kept(here, lambda cls, _: cls in classes)


async def are_kept(here: Site, wanted: Callable[[str, dict[str, Any]], bool]) -> None:
    """Wait until the store has what the provider states of the wanted entities, nothing else."""

    def stated() -> dict[str, Any]:
        of_stream = here.provider.entities("all").items()
        read = {key: (cls, json.loads(body)) for key, (cls, body) in of_stream}
        return {key: body for key, (cls, body) in read.items() if wanted(cls, body)}

    held: dict[str, Any] = {}
    reader = sink.reader(here.url)
    try:
        for _ in range(300):
            held = {one.key: json.loads(one.body) async for one in reader.entities()}
            if held == stated():
                break
            await asyncio.sleep(0.05)
        assert held == stated()
        assert [one async for one in reader.quarantine()] == []
    finally:
        await reader.close()


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_3_12_only_what_is_asked_for_is_kept(strategy: str, tmp_path: Path) -> None:
    served = provider(network(6, 3), partitions=2, **STRATEGIES[strategy])
    async with site(served, tmp_path) as here, here.consumer(**NODES) as consumer:
        await consumer.aligned(30)
        await is_kept(here, "NODE")
        served.update("n1", {"operational-state": "DISABLED"})
        served.update("n1p1", {"operational-state": "DISABLED"})
        served.delete("n2p1")
        served.delete("n3")
        served.raise_alarm("n1")
        await is_kept(here, "NODE")
        served.drop_clients()
        served.delete("n4p0")
        await consumer.aligned(30)
        await is_kept(here, "NODE")
        assert here.attempt(consumer) == 1
        [report] = await consumer.audit(repair=True)
        assert (report.clean, report.counts.repaired) == (True, 0)
        await is_kept(here, "NODE")


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_3_12_another_selection_is_read_from_the_start(strategy: str, tmp_path: Path) -> None:
    """What is asked for now was not stored so far, and what was stored is not asked for."""
    async with site(provider(network(4, 3), **STRATEGIES[strategy]), tmp_path) as here:
        here.provider.raise_alarm("n1")
        alarms = {"streams": {"only_classes": ["NODE", "CONDITION_DETECTOR"]}}
        async with here.consumer(**alarms) as consumer:
            await consumer.aligned(30)
            await is_kept(here, "NODE", "CONDITION_DETECTOR")
        ports = {"streams": {"only_classes": ["NODE_EDGE_POINT", "TOPOLOGY"]}}
        async with here.consumer(**ports) as consumer:
            await consumer.aligned(30)
            await is_kept(here, "NODE_EDGE_POINT", "TOPOLOGY")
        async with here.consumer() as consumer:
            await consumer.aligned(30)
            await here.equal()


def is_in(cls: str, body: dict[str, Any], *nodes: str) -> bool:
    """Whether it is a node of these or a port of one, or has no place: the context, topologies,
    alarms.
    """
    return cls not in ("NODE", PORT) or body["uuid"][:2] in nodes


def in_n1_or_n4(cls: str, body: dict[str, Any]) -> bool:
    return is_in(cls, body, "n1", "n4")


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_3_12_only_the_subtrees_asked_for_are_kept(strategy: str, tmp_path: Path) -> None:
    served = provider(network(6, 3), partitions=2, **STRATEGIES[strategy])
    subtrees = {"streams": {"only_below": ["n1", "n4"]}}
    async with site(served, tmp_path) as here:
        async with here.consumer(**subtrees) as consumer:
            await consumer.aligned(30)
            await are_kept(here, in_n1_or_n4)
            served.update("n1p1", {"operational-state": "DISABLED"})
            served.update("n2p1", {"operational-state": "DISABLED"})
            served.update("n4", {"operational-state": "DISABLED"})
            served.delete("n1p2")
            served.delete("n3")
            served.raise_alarm("n2")
            await are_kept(here, in_n1_or_n4)
            served.drop_clients()
            served.delete("n4p0")
            await consumer.aligned(30)
            await are_kept(here, in_n1_or_n4)
            assert here.attempt(consumer) == 1
            [report] = await consumer.audit(repair=True)
            assert (report.clean, report.counts.repaired) == (True, 0)
        # Another selection is read from the start: what is not asked for any more is removed.
        async with here.consumer(streams={"only_below": ["n2"]}) as consumer:
            await consumer.aligned(30)
            await are_kept(here, lambda *entity: is_in(*entity, "n2"))


async def test_3_12_what_passes_both_filters_is_kept(tmp_path: Path) -> None:
    both = {"streams": {"only_below": ["n2"], "only_classes": [PORT]}}
    async with site(provider(network(4, 3)), tmp_path) as here, here.consumer(**both) as consumer:
        await consumer.aligned(30)
        await are_kept(here, lambda cls, body: cls == PORT and body["uuid"].startswith("n2"))
