"""Current state as the sink reads it from `changes`, compared with rule A3 applied record by
record.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from instep.model.streams import SweepEstimate
from instep_spark.landing.live_view import estimate_sweep, live
from instep_spark.landing.writers.delta_rs import DeltaRsWriter
from instep_spark.options import DeltaOptions
from tests.instep_spark.lake.log_kit import Provider, Row, land
from tests.instep_spark.lake.model_kit import Model
from tests.instep_spark.sink_kit import rows, stage, url_of
from tests.instep_sql.store_kit import BASELINE, baseline_row, create_update, end_record

# A JVM starts, and may share the machine.
pytestmark = pytest.mark.timeout(900)


def _landed(url: str, rows: list[Row]) -> DeltaRsWriter:
    writer = DeltaRsWriter(DeltaOptions(url=url))
    writer.open("c")
    land(Path(url.removeprefix("file://")), rows)
    return writer


def _check(writer: DeltaRsWriter, rows: list[Row]) -> None:
    model = Model()
    model.read(rows)
    found = writer.query(live(writer, "c", "s"))["ordinal"].to_pylist()
    assert sorted(found) == sorted(row.ordinal for row in model.entities.values())
    for attempt in {row.attempt for row in rows} | {rows[-1].attempt + 1}:
        marks = [model.marks[key] for key in model.entities]
        expected = SweepEstimate(len(marks), sum(mark < attempt for mark in marks))
        assert estimate_sweep(writer, "c", "s", attempt) == expected


@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_a3_random_logs(tmp_path: Path, seed: int, offsets: bool) -> None:
    rows = Provider(seed, keys=3, offsets=offsets).run(60)
    _check(_landed(url_of(tmp_path), rows), rows)


def _row(key: str, offset: int, at_us: int, **changes: Any) -> Row:
    given = {"partition": "0", "kind": "CREATE_UPDATE", "token": f"{key}{offset}", **changes}
    return Row("c", "s", 0, key=key, offset=offset, appended_at=at_us, **given)


def _in_order(*rows: Row) -> list[Row]:
    return [replace(row, ordinal=number) for number, row in enumerate(rows, 1)]


def test_a3_offsets_decide_where_append_times_go_backwards(tmp_path: Path) -> None:
    rows = _in_order(
        *(_row("a", 1, 50), _row("a", 2, 40), _row("b", 3, 60)),
        _row("b", 4, 30, kind="DELETE", ends=True),
    )
    writer = _landed(url_of(tmp_path), rows)
    _check(writer, rows)
    assert writer.query(live(writer, "c", "s"))["ordinal"].to_pylist() == [2]


def test_a3_after_an_end_or_a_sweep_an_older_statement_counts(tmp_path: Path) -> None:
    rows = _in_order(
        *(_row("a", 5, 50), _row("a", 6, 60, kind="DELETE", ends=True), _row("b", 7, 70)),
        *(Row("c", "s", 0, "ATTEMPT", attempt=2), _row("a", 3, 30, attempt=2)),
        *(Row("c", "s", 0, "SWEEP", attempt=2), _row("b", 4, 40, attempt=2)),
    )
    writer = _landed(url_of(tmp_path), rows)
    _check(writer, rows)
    assert sorted(writer.query(live(writer, "c", "s"))["ordinal"].to_pylist()) == [5, 7]


@pytest.mark.asyncio
async def test_a_baseline_marks_what_it_shows_though_newer_content_stays(
    tmp_path: Path, writer: dict[str, Any]
) -> None:
    async with stage(url_of(tmp_path), stream=BASELINE, **writer) as at:
        await at.commit(baseline_row("u1", 1), baseline_row("u2", 1), by_uuid=True)
        await at.commit(create_update("key-1", 9, uuid="u1"), by_uuid=True)
        at.attempt = 2
        await at.commit(baseline_row("u1", 5), end_record("u2", 6), by_uuid=True)
        assert await at.sink.estimate_sweep("s1", 2) == SweepEstimate(1, 0)


@pytest.mark.asyncio
async def test_a14_no_clock_is_compared_with_a_baseline_of_no_log(tmp_path: Path) -> None:
    url = url_of(tmp_path)
    async with stage(url, stream=BASELINE) as at:
        await at.commit(create_update("key-1", 900, uuid="u1"), by_uuid=True)
        at.attempt = 2
        # Our clock is behind the provider's; the stream was opened at its newest record.
        await at.commit(baseline_row("u1", 5), by_uuid=True, lineage=0)
        sink: Any = at.sink
        assert sink._writer.query(live(sink._writer, "c", "s1"))["ordinal"].to_pylist() == [4]
        assert await at.sink.estimate_sweep("s1", 2) == SweepEstimate(1, 0)
        await at.commit(create_update("key-1", 3, uuid="u1"), by_uuid=True)
        assert sink._writer.query(live(sink._writer, "c", "s1"))["ordinal"].to_pylist() == [5]
    control = {row["ordinal"]: row["lineage"] for row in rows(url)}
    assert control == {1: 1, 2: 1, 3: 1, 4: 0, 5: 1}
