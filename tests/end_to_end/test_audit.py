"""Audits of streams whose log alone does not state each entity whole (TR-548 ST-2.3, 3.8), beside a
consumer that goes on, under a storm.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from instep import Consumer
from instep.alignment.audit import AuditReport
from instep_tapi.facts.names import LogRecordStrategy, LogStorageStrategy
from tests.end_to_end.site_kit import network, provider, site

pytestmark = pytest.mark.asyncio

TRUNCATED: dict[str, Any] = {"storage": LogStorageStrategy.TRUNCATED}
BY_CHANGE: dict[str, Any] = {"record_strategy": LogRecordStrategy.CHANGE_ONLY}
STRATEGIES = {
    "truncated": TRUNCATED,
    "change only": BY_CHANGE,
    "change only, truncated": TRUNCATED | BY_CHANGE,
}
NODES, PORTS = 40, 4
STORM_NODES = 10
"""The storm is over the first of them."""


def spoil(folder: Path) -> dict[str, str]:
    """Remove, alter and add rows behind instep's back; what an audit should find."""
    with contextlib.closing(sqlite3.connect(folder / "store.db", timeout=30)) as raw, raw:
        raw.execute("DELETE FROM instep_entity WHERE key IN ('n20', 'n21p1')")
        raw.execute("UPDATE instep_entity SET body = CAST('{}' AS BLOB) WHERE key = 'n22'")
        raw.execute(
            "UPDATE instep_entity SET body = CAST(replace(CAST(body AS TEXT), 'ENABLED', 'LOST')"
            " AS BLOB) WHERE key = 'n23p2'"
        )
        raw.execute("UPDATE instep_entity SET key = 'ghost', uuid = 'ghost' WHERE key = 'n24'")
    stale = dict.fromkeys(("n22", "n23p2"), "stale")
    return {"n20": "missing", "n21p1": "missing", "n24": "missing", "ghost": "bogus", **stale}


async def audited(consumer: Consumer, *, repair: bool) -> tuple[dict[str, str], AuditReport]:
    found: dict[str, str] = {}
    [report] = await consumer.audit(
        repair=repair, found=lambda one: found.update({one.key: one.verdict.value})
    )
    return found, report


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("partitions", [1, 3])
async def test_all_that_is_wrong_is_found_and_repaired_and_nothing_else(
    strategy: str, partitions: int, tmp_path: Path
) -> None:
    served = provider(network(NODES, PORTS), partitions=partitions, **STRATEGIES[strategy])
    async with site(served, tmp_path) as here, here.consumer() as consumer:
        await consumer.aligned(30)
        # Some rows are of the log, not of the first reading.
        for n in range(18, 30):
            served.update(f"n{n}", {"operational-state": "DISABLED"})
            served.update(f"n{n}", {"operational-state": "ENABLED", "lifecycle-state": "INSTALLED"})
        served.update("n23p2", {"operational-state": "ENABLED", "termination-state": "X"})
        served.delete("n39")
        await here.equal()
        await served.start_storm(100, STORM_NODES)
        assert (await audited(consumer, repair=False))[0] == {}
        wrong = spoil(tmp_path)
        found, report = await audited(consumer, repair=True)
        assert (found, report.counts.repaired, report.clean) == (wrong, len(wrong), True)
        assert report.counts.right > 100
        await served.stop_storm()
        served.update("n22", {"operational-state": "DISABLED"})
        served.delete("n20")
        await here.equal()
        found, report = await audited(consumer, repair=False)
        assert (found, report.counts.undecided) == ({}, 0)
        assert here.attempt(consumer) == 1
