"""The Delta sink on real tables, with both writers; read back by delta-rs."""

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from instep.config.plugins import sink_plugin
from instep.errors import FencedError, SinkError
from instep.model.batches import Batch, SweepStep
from instep.model.holds import Hold, UnprovenReason
from instep.model.position import Phase, Position
from instep.model.records import Record, RecordType
from instep_spark import DeltaSink
from instep_spark.landing.arrow_rows import change_rows
from tests.instep_spark.sink_kit import Stage, rows, stage, url_of
from tests.instep_sql.store_kit import (
    BASELINE,
    baseline_row,
    create_update,
    end_record,
    stream_info,
)


@pytest.mark.asyncio
async def test_rows_and_position_are_one_commit(tmp_path: Path, writer: dict[str, Any]) -> None:
    url = url_of(tmp_path)
    envelope = b'{"event-time-stamp":"2026-01-01T00:00:00.5Z","parent-address":["a",{"b":1}]}'
    async with stage(url, **writer) as at:
        assert at.position == Position()
        result = await at.commit(
            create_update("a", 1, envelope=envelope), create_update("b", 2), end_record("a", 3)
        )
        assert (result.written, result.deleted) == (2, 1)
        await at.commit()
        left = at.position
    found = rows(url)
    assert [(row["ordinal"], row["kind"], row["key"]) for row in found] == [
        (1, "ATTEMPT", ""),
        (2, "CREATE_UPDATE", "a"),
        (3, "CREATE_UPDATE", "b"),
        (4, "DELETE", "a"),
        (5, "POSITION", ""),
    ]
    assert [row["position"] is not None for row in found] == [False, False, False, True, True]
    first = found[1]
    assert (first["token"], first["record_offset"], first["body"]) == ("t1", 1, '{"at":1}')
    assert first["appended_at"].microsecond == 1
    assert first["event_at"].isoformat() == "2026-01-01T00:00:00.500000+00:00"
    assert first["parent_address"] == '["a",{"b":1}]'
    assert (found[3]["body"], found[3]["ends"], first["ends"]) == (None, True, False)
    async with stage(url, **writer) as again:
        assert again.position == left


@pytest.mark.asyncio
async def test_a_second_process_is_fenced(tmp_path: Path, writer: dict[str, Any]) -> None:
    url = url_of(tmp_path)
    async with stage(url, **writer) as one, stage(url, **writer) as two:
        await one.commit(create_update("a", 1))
        with pytest.raises(FencedError, match="another process has committed"):
            await two.commit(create_update("a", 1), create_update("b", 2))
        await one.commit(create_update("b", 2))
    assert [row["key"] for row in rows(url)] == ["", "a", "b"]


@pytest.mark.asyncio
async def test_batches_of_other_streams_are_not_held_back(tmp_path: Path) -> None:
    url = url_of(tmp_path)
    async with DeltaSink(url, commit_interval_s=0.2) as sink:
        await sink.open("c")
        stages = [
            Stage(sink, i, await sink.position(i)) for i in map(stream_info, ("s1", "s2", "s3"))
        ]
        await asyncio.gather(*[one.commit(create_update("a", 1)) for one in stages])
        before = DeltaTable(f"{url}/changes").version()
        stages[1].position = Position(ordinal=7)
        results = await asyncio.gather(
            *[one.commit(create_update("b", 2)) for one in stages], return_exceptions=True
        )
        assert isinstance(results[1], FencedError)
        assert [isinstance(result, Exception) for result in results] == [False, True, False]
        assert DeltaTable(f"{url}/changes").version() == before + 1, "one commit for both"
    counts = Counter(row["stream"] for row in rows(url))
    assert counts == {"s1": 3, "s2": 2, "s3": 3}


@pytest.mark.asyncio
async def test_a_record_delivered_again_is_a_row_once(tmp_path: Path) -> None:
    url = url_of(tmp_path)
    batch = [
        create_update("a", 1),
        create_update("b", 2),
        end_record("b", 3),
        end_record("b", 3, RecordType.TOMBSTONE),
    ]
    async with stage(url) as at:
        await at.commit(*batch[:3])
    async with stage(url) as at:
        # A provider that goes on at our token itself; the TOMBSTONE shares it and is new.
        await at.commit(batch[2], batch[3], create_update("c", 4), create_update("c", 4), batch[1])
        at.attempt = 2
        await at.commit(*batch)
    found = [(row["attempt"], row["kind"], row["key"]) for row in rows(url) if row["key"]]
    once = [(said_.kind.name, said_.key) for said_ in batch]
    assert [(kind, key) for attempt, kind, key in found if attempt == 1] == [
        *once,
        ("CREATE_UPDATE", "c"),
    ]
    assert [(kind, key) for attempt, kind, key in found if attempt == 2] == once


@pytest.mark.asyncio
async def test_a_log_without_offsets_is_known_by_its_tokens(tmp_path: Path) -> None:
    url = url_of(tmp_path)
    first, second = create_update("a", 1, offset=-1), create_update("a", 2, offset=-1)
    other = create_update("a", 2, b'{"other":1}', offset=-1)
    async with stage(url) as at:
        await at.commit(first, second)
    async with stage(url) as at:
        await at.commit(second, other, other)
    assert [row["body"] for row in rows(url)[1:]] == ['{"at":1}', '{"at":2}', '{"other":1}']


@pytest.mark.asyncio
async def test_current_state_for_the_guard(tmp_path: Path, writer: dict[str, Any]) -> None:
    url = url_of(tmp_path)
    async with stage(url, **writer) as at:
        await at.commit(*[create_update(f"k{n}", n) for n in range(1, 6)], end_record("k1", 6))
        at.attempt = 2
        # An older record of the same log than the one that is stored marks nothing (A3).
        await at.commit(create_update("k2", 2), create_update("k3", 7), create_update("k4", 1))
        estimate = await at.sink.estimate_sweep("s1", 2)
        assert (estimate.total, estimate.unmarked) == (4, 2)
        result = await at.commit(create_update("k6", 8), sweep=SweepStep(2))
        assert result.sweep_done
        estimate = await at.sink.estimate_sweep("s1", 2)
        assert (estimate.total, estimate.unmarked) == (3, 0)
    last = rows(url)[-1]
    assert (last["kind"], last["attempt"], last["body"]) == ("SWEEP", 2, None)


@pytest.mark.asyncio
async def test_a22_the_count_of_unproven_entities_follows_what_has_landed(tmp_path: Path) -> None:
    now_s = 0.0
    unreadable = Hold(UnprovenReason.UNREADABLE_RECORD, digest="ab")
    reader = sink_plugin("delta").reader(url_of(tmp_path))
    async with stage(url_of(tmp_path), monotonic_s=lambda: now_s) as at:

        async def commit(count: int, *records: Record, **more: Any) -> int:
            """How many are unproven by the result, where so many are by the position."""
            aligned = at.batch(*records).position
            position = msgspec.structs.replace(aligned, phase=Phase.ALIGNED, unproven=count)
            return count + (await at.commit(*records, position=position, **more)).kept

        await at.commit(create_update("a", 1), create_update("b", 2), create_update("c", 3))
        at.attempt = 2
        await at.commit(create_update("a", 4))
        assert await commit(0, sweep=SweepStep(2, holds=(unreadable,))) == 2
        [status] = await reader.streams()
        assert status.unproven == 2
        # Not with each commit: it is a query of all that is stored.
        assert await commit(2, create_update("b", 5)) == 2
        now_s = 61.0
        assert await commit(2) == 1
        now_s = 122.0
        assert await commit(1, end_record("c", 6)) == 0
        at.attempt = 3
        assert await commit(0, create_update("a", 7), sweep=SweepStep(3)) == 0


@pytest.mark.asyncio
async def test_baseline_rows_and_ends_by_an_unknown_name(tmp_path: Path) -> None:
    url = url_of(tmp_path)
    async with stage(url, stream=BASELINE) as at:
        await at.commit(baseline_row("u1", 1), baseline_row("u2", 1), by_uuid=True)
        await at.commit(create_update("key-1", 2, uuid="u1"), by_uuid=True)
        assert (await at.sink.estimate_sweep("s1", 1)).total == 2
        result = await at.commit(
            end_record("key-1", 3), end_record("u2", 4), end_record("odd", 5), by_uuid=True
        )
        assert result.unresolved_keys == ("odd",)
        assert (await at.sink.estimate_sweep("s1", 1)).total == 0
        at.attempt = 2
        sweep = SweepStep(2, readable=frozenset({"NODE"}))
        await at.commit(
            baseline_row("u3", 6), create_update("det", 7, entity_class="ODD"), by_uuid=True
        )
        at.attempt = 3
        await at.commit(sweep=SweepStep(3, readable=sweep.readable), by_uuid=True)
        assert (await at.sink.estimate_sweep("s1", 3)).total == 1, "of a class that no GET shows"


@pytest.mark.asyncio
async def test_facts_of_streams_outlive_the_process(tmp_path: Path) -> None:
    url = url_of(tmp_path)
    async with stage(url) as at:
        await at.commit(create_update("a", 1), deviations={"odd": 2})
        await at.commit(create_update("a", 2), deviations={"odd": 3})
    async with stage(url, stream=stream_info(endpoint="b")) as at:
        assert await at.sink.known_streams() == [stream_info(endpoint="b")]
        assert not await at.sink.is_sweep_released("s1", 1)
    facts = rows(url, "SELECT fact, name, count FROM stream_facts ORDER BY at")
    assert [(one["fact"], one["name"], one["count"]) for one in facts] == [
        ("STREAM", "", 0),
        ("DEVIATION", "odd", 2),
        ("DEVIATION", "odd", 3),
        ("STREAM", "", 0),
    ]


@pytest.mark.spark
@pytest.mark.asyncio
async def test_both_writers_leave_the_same_table(tmp_path: Path, spark: SparkSession) -> None:
    del spark
    left = []
    both: tuple[tuple[str, dict[str, Any]], ...] = (
        ("rust", {"writer": "rust"}),
        ("spark", {"writer": "spark", "spark": {"master": "local[2]"}}),
    )
    for (name, options), (_, other) in zip(both, reversed(both), strict=True):
        url = url_of(tmp_path / name)
        async with stage(url, clock_us=lambda: 1_700_000_000_000_000, **options) as at:
            # More than go to Spark as Arrow.
            await at.commit(*[create_update(f"k{n}", n) for n in range(1, 12_000)])
        # What one began the other goes on with.
        async with stage(url, clock_us=lambda: 1_700_000_000_000_001, **other) as at:
            assert at.position.ordinal == 1
            await at.commit(end_record("k1", 12_000), sweep=SweepStep(1))
        table = DeltaTable(f"{url}/changes")
        left.append((rows(url), table.schema().to_arrow(), table.metadata().configuration))
        assert not list((tmp_path / name / "lake").glob("_handoff/*"))
    assert left[0][0] == left[1][0]
    assert str(left[0][1]) == str(left[1][1])
    assert left[0][2].items() <= left[1][2].items()


@pytest.mark.asyncio
async def test_others_may_commit_to_the_table_meanwhile(tmp_path: Path) -> None:
    url = url_of(tmp_path)
    async with stage(url) as at:
        await at.commit(create_update("a", 1))
        foreign = DeltaTable(f"{url}/changes")
        await at.commit(create_update("b", 2))
        foreign.optimize.compact()
        await at.commit(create_update("c", 3))
        write_deltalake(f"{url}/changes", foreign.to_pyarrow_table().slice(0, 0), mode="append")
        await at.commit(create_update("d", 4))
    assert [row["key"] for row in rows(url)[1:]] == list("abcd")


@pytest.mark.asyncio
async def test_small_files_are_joined(tmp_path: Path) -> None:
    url = url_of(tmp_path)
    async with stage(url, compact_every_commits=10) as at:
        for turn in range(1, 31):
            await at.commit(create_update("a", turn))
        assert len(DeltaTable(f"{url}/changes").file_uris()) == 1
    async with stage(url) as at:
        assert at.position.ordinal == 30
    assert [row["ordinal"] for row in rows(url)] == list(range(1, 32))


@pytest.mark.asyncio
async def test_the_event_loop_goes_on_while_a_commit_is_made(tmp_path: Path) -> None:
    url = url_of(tmp_path)
    async with stage(url) as at:
        turns = 0
        body = b'"' + b"x" * 1_000 + b'"'
        task = asyncio.create_task(
            at.commit(*[create_update(f"k{n}", n, body) for n in range(1, 50_000)])
        )
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        await task
    assert turns > 100


@pytest.mark.asyncio
async def test_the_event_loop_goes_on_while_the_lake_is_asked(tmp_path: Path) -> None:
    async with stage(url_of(tmp_path)) as at:
        for turn in range(4):
            first = turn * 50_000 + 1
            await at.commit(*[create_update(f"k{n}", n) for n in range(first, first + 50_000)])
        turns = 0
        task = asyncio.create_task(at.sink.estimate_sweep("s1", 2))
        while not task.done():
            await asyncio.sleep(0.001)
            turns += 1
        assert (await task).total == 200_000
    assert turns > 10


@pytest.mark.asyncio
async def test_cancelling_a_commit_leaves_it_whole_or_not_there(tmp_path: Path) -> None:
    url = url_of(tmp_path)
    async with stage(url) as at:
        for turn in range(12):
            batch = at.batch(*[create_update(f"k{n}", turn * 50 + n) for n in range(1, 50)])
            task = asyncio.create_task(at.sink.commit(batch))
            until = time.perf_counter() + turn / 2_000
            while time.perf_counter() < until:
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            at.position = await at.sink.position(at.stream)
            count = len(rows(url))
            assert count == (49 * at.position.ordinal + 1 if at.position.ordinal else 0)


@pytest.mark.asyncio
async def test_closing_answers_every_commit_with_what_became_of_it(tmp_path: Path) -> None:
    for number, turns in enumerate((0, 1, 5, 500, 20_000)):
        url = f"{url_of(tmp_path)}/{number}"
        async with stage(url) as at:
            task = asyncio.create_task(at.commit(create_update("a", 1)))
            for _ in range(turns):
                await asyncio.sleep(0)
            await at.sink.close()
            [result] = await asyncio.gather(task, return_exceptions=True)
            if isinstance(result, Exception):
                assert "closed" in str(result)
                assert not [row for row in rows(url) if row["key"]]
            else:
                assert [row["key"] for row in rows(url) if row["key"]] == ["a"]
            with pytest.raises(SinkError, match="closed"):
                await at.commit(create_update("b", 2))


@pytest.mark.asyncio
async def test_a_commit_that_waits_for_others_is_not_made_when_the_sink_is_closed(
    tmp_path: Path,
) -> None:
    url = url_of(tmp_path)
    async with stage(url, commit_interval_s=600) as at:
        await at.commit(create_update("a", 1))
        task = asyncio.create_task(at.commit(create_update("b", 2)))
        await asyncio.sleep(0.05)
        await at.sink.close()
        with pytest.raises(SinkError, match="closed meanwhile"):
            await task
    assert [row["key"] for row in rows(url) if row["key"]] == ["a"]


@pytest.mark.asyncio
async def test_a_look_at_the_table_does_not_hide_the_other_process(tmp_path: Path) -> None:
    url = url_of(tmp_path)
    async with stage(url) as one, stage(url) as two:
        await one.commit(create_update("a", 1))
        await two.sink.estimate_sweep("s1", 1)
        with pytest.raises(FencedError):
            await two.commit(create_update("a", 1))
        assert await two.sink.position(two.stream) == one.position


def test_3_10_event_times_in_all_their_spellings() -> None:
    stated = [
        b'{"event-time-stamp":"2026-01-01T00:00:00Z"}',
        b'{"event-time-stamp":{"approx-date-and-time":{"primary-time-stamp":"20260101000000.5Z"}}}',
        b'{"event-time-stamp":{"primary-time-stamp":"2026-01-01T00:00:00Z","spread":"SPREAD_AT"}}',
        b'{"event-time-stamp":"20251231190000.0-0500","parent-address":[]}',
        b'{"event-time-stamp":{"odd":1}}',
        b'{"event-time-stamp":"yesterday"}',
        b'{"event-time-stamp":7}',
        b"",
        b"[]",
    ]
    records = [create_update(f"k{n}", n + 1, envelope=text) for n, text in enumerate(stated)]
    batch = Batch("s1", Position(ordinal=1), 0, records)
    rows = change_rows(
        "c", batch, batch.position, records, first=1, attempt_opened=False, now_us=1
    ).to_pylist()
    first = datetime(2026, 1, 1, tzinfo=UTC)
    assert [row["event_at"] for row in rows] == [
        first,
        first.replace(microsecond=500_000),
        first,
        first,
        *[None] * 5,
    ]
    assert [row["parent_address"] for row in rows] == [*[None] * 3, "[]", *[None] * 5]
