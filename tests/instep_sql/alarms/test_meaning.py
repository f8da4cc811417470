"""Episodes of alarms of a SQL store mean what those of a lake mean: random logs, with redeliveries,
missed changes, new attempts with their sweeps and lost logs, against the plain loop that the lake
is held to.
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")

from instep.model.batches import Batch, SweepStep
from instep.model.position import Position
from instep.model.records import Record, RecordType
from instep_sql import SqlStore
from instep_tapi.derivations.alarms import AlarmEpisode, alarms
from tests.instep_spark.lake.log_kit import Provider, Row
from tests.instep_spark.lake.model_kit import Episode, Model
from tests.instep_sql.store_kit import STREAM, stream_info

pytestmark = pytest.mark.asyncio


def record(row: Row) -> Record:
    at = datetime.fromtimestamp(row.event_at / 1e6, UTC).isoformat(timespec="microseconds")
    body = row.body
    named = "CONDITION_DETECTOR" if row.detector else "NODE"
    return Record(
        STREAM,
        row.key,
        RecordType[row.kind],
        row.token,
        row.appended_at,
        row.partition,
        row.offset,
        named if body else "",
        body.encode() if body else b"",
        json.dumps({"event-time-stamp": {"primary-time-stamp": at}}).encode(),
        ends=row.ends,
    )


class Follower:
    """Commits the rows of a log as a consumer does, in batches of any size."""

    def __init__(self, store: SqlStore, chance: random.Random) -> None:
        self._store = store
        self._chance = chance
        self._ordinal = 0
        self._began: dict[int, int] = {}
        self._waiting: list[Row] = []

    async def read(self, rows: list[Row]) -> None:
        for row in rows:
            if row.kind == "ATTEMPT":
                await self._commit()
                self._began[row.attempt] = row.committed_at
            elif row.kind == "SWEEP":
                await self._commit()
                await self._sweep(row)
            elif row.kind != "POSITION":
                other = self._waiting and self._waiting[0].lineage != row.lineage
                if other or self._chance.random() < 0.2:
                    await self._commit()
                self._waiting.append(row)
        await self._commit()

    async def _commit(self) -> None:
        if self._waiting:
            rows, self._waiting = self._waiting, []
            await self._batch(rows[-1], records=[record(row) for row in rows])

    async def _sweep(self, row: Row) -> None:
        cursor, done = 0, False
        while not done:
            step = SweepStep(row.attempt, cursor, self._chance.choice((3, 1_000)))
            result = await self._batch(row, sweep=step)
            cursor, done = result.sweep_cursor, result.sweep_done

    async def _batch(self, row: Row, **changes: Any) -> Any:
        before, self._ordinal = self._ordinal, self._ordinal + 1
        position = Position(
            token=row.token,
            ordinal=self._ordinal,
            attempt=row.attempt,
            attempt_started_at_us=self._began[row.attempt],
            lineage=row.lineage,
        )
        return await self._store.commit(Batch(STREAM, position, before, **changes))


def told(one: AlarmEpisode) -> dict[str, Any]:
    return {
        "raised_at": one.raised_at_us,
        "state": one.state,
        "severity": one.severity,
        "worst": one.worst_severity,
        "changes": one.severity_changes,
        "intermittent": one.intermittent_count,
        "statements": one.statements,
        "flapping": one.flapping_count,
        "cleared_at": one.cleared_at_us,
        "ended_by": one.ended_by,
    }


def expected(one: Episode) -> dict[str, Any]:
    whole = asdict(one)
    del whole["episode"]  # the row of the lake's log
    return whole


@pytest.mark.parametrize("offsets", [True, False], ids=["offsets", "append times"])
@pytest.mark.parametrize("seed", range(4))
async def test_random_logs_give_the_episodes_of_the_lake(
    offsets: bool, seed: int, tmp_path: Path
) -> None:
    provider = Provider(seed, keys=6, offsets=offsets)
    rows = provider.run(150)
    model = Model()
    model.read(rows)
    async with SqlStore(f"sqlite:///{tmp_path}/s.db", alarms=True) as store:
        await store.open("c")
        await store.position(stream_info())
        await Follower(store, random.Random(seed)).read(rows)
        found: dict[str, list[dict[str, Any]]] = {}
        async for one in alarms(store.reader):
            found.setdefault(one.key, []).append(told(one))
    wanted = {key[2]: list(map(expected, many)) for key, many in model.alarms.items() if many}
    assert sum(map(len, wanted.values())) > 10
    assert found == wanted
