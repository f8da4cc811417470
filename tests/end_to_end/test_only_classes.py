"""A client that keeps some classes of a stream that carries more (TR-548 3.12)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from instep_sql.plugin import sink
from instep_tapi.wire.names import LogRecordStrategy, LogStorageStrategy
from tests.end_to_end.site_kit import Site, network, provider, site

pytestmark = pytest.mark.asyncio

NODES: dict[str, Any] = {"streams": {"only_classes": ["NODE"]}}
STRATEGIES: dict[str, dict[str, Any]] = {
    "compacted": {},
    "truncated": {"storage": LogStorageStrategy.TRUNCATED},
    "change only": {"record_strategy": LogRecordStrategy.CHANGE_ONLY},
}


async def is_kept(here: Site, *classes: str) -> None:
    """Wait until the store has what the provider states of these classes, and nothing else."""

    def stated() -> dict[str, Any]:
        of_stream = here.provider.entities("all").items()
        return {key: json.loads(body) for key, (cls, body) in of_stream if cls in classes}

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


async def test_3_12_another_selection_is_read_from_the_start(tmp_path: Path) -> None:
    """What is asked for now was not stored so far, and what was stored is not asked for."""
    async with site(provider(network(4, 3)), tmp_path) as here:
        async with here.consumer(**NODES) as consumer:
            await consumer.aligned(30)
        ports = {"streams": {"only_classes": ["NODE_EDGE_POINT", "TOPOLOGY"]}}
        async with here.consumer(**ports) as consumer:
            await consumer.aligned(30)
            await is_kept(here, "NODE_EDGE_POINT", "TOPOLOGY")
        async with here.consumer() as consumer:
            await consumer.aligned(30)
            await here.equal()
