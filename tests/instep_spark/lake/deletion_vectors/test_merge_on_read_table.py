"""Merges that mark rows, beside a plain model of MERGE; read by delta-rs and by Polars."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from instep.errors import SinkError
from instep_spark.lake.batches.progress import CommitMetadata, TableProgress
from instep_spark.lake.deletion_vectors.delta_log import DeltaLog
from instep_spark.lake.merge import Merge, MergeOutcome
from instep_spark.lake.sql.datafusion import query
from instep_spark.lake.tables.delta_rs_table import DeltaRsTable
from tests.instep_spark.lake.deletion_vectors.vector_kit import marking_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]
STREAMS = (("c", "one"), ("c", "two"))
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("consumer", "stream", "id", "body")),
        ("n", pa.int64()),
        ("open", pa.bool_()),
    ]
)
SOURCE = pa.schema([*SCHEMA, ("ends", pa.bool_()), ("known", pa.bool_())])
TAKEN = {name: f"s.`{name}`" for name in SCHEMA.names}
KEYS = ("consumer", "stream", "id")
CURRENT = Merge(KEYS, STREAMS, TAKEN, TAKEN, counts="t.n < s.n", ends="s.ends")
"""As of `entities`."""
INTERVALS = Merge(
    KEYS,
    STREAMS,
    {"open": "s.`open`", "n": "s.`n`"},
    TAKEN,
    within={"open": "true"},
    matching_if="known",
)
"""As of `entity_history`: the body of a row that is closed stays."""


def _row(stream: str, number: int, n: int, **others: Any) -> Row:
    row = {"consumer": "c", "stream": stream, "id": f"id {number:05}", "n": n, "open": True}
    return {**row, "body": f"{stream} {number} {n}", "ends": False, "known": True, **others}


def _table(rows: list[Row], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.table([[row[name] for row in rows] for name in schema.names], schema)


def _made(path: Path, rows: list[Row], row_group: int = 100_000) -> DeltaRsTable:
    marking_table(path, _table(rows), partition_by=["open"], row_group=row_group)
    return DeltaRsTable(path.as_uri())


def _merge(made: DeltaRsTable, merge: Merge, rows: list[Row], number: int = 1) -> MergeOutcome:
    return made.merge(merge, _table(rows, SOURCE), CommitMetadata(TableProgress(), number))


def _expected(merge: Merge, before: list[Row], rows: list[Row]) -> list[Row]:
    """What MERGE makes of a table, row by row."""
    after = list(before)
    for row in rows:
        found = [
            one
            for one in before
            if all(one[name] == row[name] for name in KEYS)
            and (merge is CURRENT or (one["open"] and row["known"]))
        ]
        for one in found:
            if merge is INTERVALS:
                after.remove(one)
                after.append({**one, "open": row["open"], "n": row["n"]})
            elif one["n"] < row["n"]:
                after.remove(one)
                after += [] if row["ends"] else [row]
        if not found and not (merge is CURRENT and row["ends"]):
            after.append(row)
    return after


def _texts(rows: list[Row]) -> list[str]:
    return sorted(str([row[name] for name in SCHEMA.names]) for row in rows)


def _check(path: Path, rows: list[Row]) -> None:
    expected = _texts(rows)
    assert _texts(query(DeltaTable(path), "SELECT * FROM t").to_pylist()) == expected
    assert _texts(pl.scan_delta(str(path)).collect().to_dicts()) == expected
    # Filters leave out row groups, and must not shift what is marked.
    for condition in ("n > 20", "id > 'id 00150'", "id IN ('id 00007', 'id 00190')", "NOT open"):
        found = query(DeltaTable(path), f"SELECT id, n FROM t WHERE {condition}").num_rows
        by_model = {
            "n > 20": sum(row["n"] > 20 for row in rows),
            "id > 'id 00150'": sum(row["id"] > "id 00150" for row in rows),
            "NOT open": sum(not row["open"] for row in rows),
        }.get(condition, sum(row["id"] in ("id 00007", "id 00190") for row in rows))
        assert found == by_model, condition


def _vectors(path: Path) -> int:
    return len(list(path.glob("deletion_vector_*.bin")))


@pytest.mark.parametrize("row_group", [16, 100_000])
@pytest.mark.parametrize("seed", range(3))
def test_current_rows_are_those_of_a_plain_merge(tmp_path: Path, seed: int, row_group: int) -> None:
    rng = random.Random(seed)
    rows = [_row(stream, number, 0) for number in range(200) for _, stream in STREAMS]
    made = _made(tmp_path, rows, row_group)
    for number in range(1, 13):
        # Also entities that are new, rows that do not count, and one stream alone.
        chosen = rng.sample(range(230), rng.choice([1, 5, 60]))
        stated = [
            _row(rng.choice(("one", "two")), each, rng.randrange(40), ends=rng.random() < 0.2)
            for each in chosen
        ]
        after = _expected(CURRENT, rows, stated)
        outcome = _merge(made, CURRENT, stated, number)
        changed = _texts(after) != _texts(rows)
        assert outcome is (MergeOutcome.MERGED if changed else MergeOutcome.UNCHANGED)
        rows = after
        _check(tmp_path, rows)
    assert _vectors(tmp_path) > 3


@pytest.mark.parametrize("seed", range(3))
def test_intervals_are_those_of_a_plain_merge(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    rows = [_row(stream, number, 0) for number in range(200) for _, stream in STREAMS]
    made = _made(tmp_path, rows, row_group=16)
    for number in range(1, 11):
        stated = []
        for each in rng.sample(range(230), rng.choice([1, 5, 60])):
            stream = rng.choice(("one", "two"))
            opened = any(
                row["id"] == f"id {each:05}" and row["stream"] == stream and row["open"]
                for row in rows
            )
            if opened:
                stated.append(_row(stream, each, number, open=False))
            stated.append(_row(stream, each, number, known=False))
        rows = _expected(INTERVALS, rows, stated)
        assert _merge(made, INTERVALS, stated, number) is MergeOutcome.MERGED
        _check(tmp_path, rows)
    assert _vectors(tmp_path) > 3


@pytest.mark.parametrize("apart", [True, False])
def test_rows_that_do_not_count_keep_what_they_have(tmp_path: Path, apart: bool) -> None:
    rows = [_row("one", number, 5, open=number < 10 or not apart) for number in range(20)]
    made = _made(tmp_path, rows)
    stated = [_row("one", 1, 9), _row("one", 15, 1)]
    assert _merge(made, CURRENT, stated) is MergeOutcome.MERGED
    _check(tmp_path, _expected(CURRENT, rows, stated))


def test_only_rows_that_change_are_written(tmp_path: Path) -> None:
    made = _made(tmp_path, [_row("one", number, 0) for number in range(1_000)])
    first = set(pa.table(DeltaTable(tmp_path).get_add_actions())["path"].to_pylist())
    assert _merge(made, CURRENT, [_row("one", 5, 1), _row("one", 5_000, 1)]) is MergeOutcome.MERGED
    files = pa.table(DeltaTable(tmp_path).get_add_actions())
    added = {
        path: records
        for path, records in zip(
            files["path"].to_pylist(), files["num_records"].to_pylist(), strict=True
        )
        if path not in first
    }
    assert first <= set(files["path"].to_pylist())
    assert sum(added.values()) == 2


def test_a_file_without_a_row_is_removed(tmp_path: Path) -> None:
    made = _made(tmp_path, [_row("one", number, 0) for number in range(3)])
    (before,) = DeltaTable(tmp_path).file_uris()
    ended = [_row("one", number, 1, ends=True) for number in range(3)]
    assert _merge(made, CURRENT, ended) is MergeOutcome.MERGED
    assert DeltaTable(tmp_path).file_uris() == []
    _check(tmp_path, [])
    assert Path(before.removeprefix("file://")).exists()  # until VACUUM


def test_a_commit_tells_what_it_is(tmp_path: Path) -> None:
    made = _made(tmp_path, [_row("one", 1, 0)])
    assert _merge(made, CURRENT, [_row("one", 1, 1)], number=7) is MergeOutcome.MERGED
    table = DeltaTable(tmp_path)
    (last,) = table.history(1)
    assert last["operation"] == "MERGE"
    assert last["userMetadata"] == CommitMetadata(TableProgress(), 7).encode()
    assert table.transaction_version("instep lake") == 7
    assert _merge(made, CURRENT, [_row("one", 1, 2)], number=7) is MergeOutcome.OVERTAKEN


def test_a_commit_of_another_writer_is_not_merged_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [_row("one", number, 0) for number in range(10)]
    made = _made(tmp_path, rows)
    run = Merge.run

    def slow(*args: Any) -> int:
        write_deltalake(tmp_path, _table([_row("one", 77, 3)]), mode="append")
        monkeypatch.undo()
        return run(*args)

    monkeypatch.setattr(Merge, "run", slow)
    assert _merge(made, CURRENT, [_row("one", 1, 1)]) is MergeOutcome.OVERTAKEN
    _check(tmp_path, [*rows, _row("one", 77, 3)])
    assert _merge(made, CURRENT, [_row("one", 1, 1)]) is MergeOutcome.MERGED
    _check(
        tmp_path,
        [row for row in rows if row["id"] != "id 00001"] + [_row("one", 77, 3), _row("one", 1, 1)],
    )


def test_checkpoints_have_the_vectors(tmp_path: Path) -> None:
    rows = [_row("one", number, 0) for number in range(100)]
    made = _made(tmp_path, rows)
    for number in range(1, 25):
        stated = [_row("one", number, 1)]
        rows = _expected(CURRENT, rows, stated)
        assert _merge(made, CURRENT, stated, number) is MergeOutcome.MERGED
    (last,) = sorted((tmp_path / "_delta_log").glob("*.checkpoint.parquet"))[-1:]
    for path in (tmp_path / "_delta_log").glob("*.json"):
        if path.name < last.name:
            path.unlink()
    _check(tmp_path, rows)
    assert _merge(DeltaRsTable(tmp_path.as_uri()), CURRENT, [_row("one", 50, 9)], 99) is (
        MergeOutcome.MERGED
    )
    _check(tmp_path, _expected(CURRENT, rows, [_row("one", 50, 9)]))


@pytest.mark.parametrize("asked", [True, False])
def test_a_commit_that_was_replaced_is_not_built_upon(tmp_path: Path, asked: bool) -> None:
    rows = [_row("one", number, 0) for number in range(10)]
    made = _made(tmp_path, rows)
    assert _merge(made, CURRENT, [_row("one", 1, 1)]) is MergeOutcome.MERGED
    # As Spark does that looked for the version a moment before.
    path = tmp_path / "_delta_log" / f"{DeltaTable(tmp_path).version():020}.json"
    other = tmp_path / "other.json"
    other.write_text('{"commitInfo":{"timestamp":1,"operation":"OPTIMIZE"}}\n')
    other.rename(path)
    if asked:  # as before a statement of Spark
        assert made.was_replaced()
        assert not made.was_replaced()
    else:
        assert _merge(made, CURRENT, [_row("one", 2, 1)], 2) is MergeOutcome.OVERTAKEN
    _check(tmp_path, rows)
    stated = [_row("one", 1, 1), _row("one", 2, 1)]
    assert _merge(made, CURRENT, stated, 2) is MergeOutcome.MERGED
    _check(tmp_path, _expected(CURRENT, rows, stated))


def test_without_a_checkpoint_the_commit_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = _made(tmp_path, [_row("one", 1, 0)])

    def fail(_self: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(DeltaTable, "create_checkpoint", fail)
    for number in range(1, 12):
        assert _merge(made, CURRENT, [_row("one", 1, number)], number) is MergeOutcome.MERGED


def test_a_column_that_must_have_a_value_keeps_it(tmp_path: Path) -> None:
    schema = SCHEMA.set(3, pa.field("body", pa.string(), nullable=False))
    rows = [_row("one", number, 0) for number in range(5)]
    marking_table(tmp_path, _table(rows, schema), partition_by=["open"])
    made = DeltaRsTable(tmp_path.as_uri())
    assert _merge(made, CURRENT, [_row("one", 1, 1)]) is MergeOutcome.MERGED
    _check(tmp_path, _expected(CURRENT, rows, [_row("one", 1, 1)]))


def test_without_hard_links_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = _made(tmp_path, [_row("one", 1, 0)])
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(DeltaLog, "has_links", lambda _: False)
    assert _merge(made, CURRENT, [_row("one", 1, 1)]) is MergeOutcome.UNFIT
    assert sorted(tmp_path.rglob("*")) == before


def test_a_check_of_the_table_is_kept(tmp_path: Path) -> None:
    rows = [_row("one", number, 1) for number in range(5)]
    table = marking_table(tmp_path, _table(rows), partition_by=["open"])
    table.alter.add_constraint({"positive": "n > 0"})
    made = DeltaRsTable(tmp_path.as_uri())
    with pytest.raises(SinkError, match="failed validation check"):
        _merge(made, CURRENT, [_row("one", 1, 2), _row("two", 9, -4)])
    assert _merge(made, CURRENT, [_row("one", 1, 2), _row("one", 2, 0)]) is MergeOutcome.MERGED
    _check(tmp_path, [row for row in rows if row["id"] != "id 00001"] + [_row("one", 1, 2)])


def test_a_table_that_is_written_in_another_way_is_left_to_spark(tmp_path: Path) -> None:
    made = _made(tmp_path, [_row("one", 1, 0)])
    for path in (tmp_path / "_delta_log").glob("*.json"):
        text = path.read_text()
        path.write_text(text.replace('"writerFeatures":[', '"writerFeatures":["rowTracking",'))
    assert "rowTracking" in (DeltaTable(tmp_path).protocol().writer_features or ())
    assert _merge(made, CURRENT, [_row("one", 1, 1)]) is MergeOutcome.UNFIT


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_spark_and_the_driver_mark_rows_of_one_table(spark: SparkSession, tmp_path: Path) -> None:
    rows = [_row("one", number, 0) for number in range(50)]
    made = _made(tmp_path, rows)
    for number in range(1, 7):
        gone = f"id {number * 2:05}"
        spark.sql(f"DELETE FROM delta.`{tmp_path}` WHERE id = '{gone}'")
        rows = [row for row in rows if row["id"] != gone]
        stated = [_row("one", number * 3, number), _row("one", number * 4, number, ends=True)]
        rows = _expected(CURRENT, rows, stated)
        assert _merge(made, CURRENT, stated, number) is MergeOutcome.MERGED
        _check(tmp_path, rows)
    by_spark = spark.sql(f"SELECT * FROM delta.`{tmp_path}`").collect()
    assert _texts([row.asDict() for row in by_spark]) == _texts(rows)
    spark.sql(f"OPTIMIZE delta.`{tmp_path}`").collect()
    _check(tmp_path, rows)
