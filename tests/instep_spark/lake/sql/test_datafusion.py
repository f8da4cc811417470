"""Queries that the driver runs itself."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from instep_spark.lake.sql import datafusion
from instep_spark.lake.sql.datafusion import query, rows_among
from instep_spark.lake.sql.dialect import DATAFUSION

NAMES = ["plain", "it's", "back\\slash", "$" + "{x}", "é\n", ""]


def _table(path: Path) -> DeltaTable:
    rows = pa.table(
        {
            "id": NAMES,
            "names": [[name] for name in NAMES],
            "number": pa.array(range(len(NAMES)), pa.int64()),
            "at": pa.array([datetime.fromtimestamp(n, UTC) for n in range(len(NAMES))]),
        }
    )
    rows = rows.set_column(3, "at", rows["at"].cast(pa.timestamp("us", "UTC")))
    write_deltalake(path, rows)
    return DeltaTable(path)


@pytest.mark.parametrize("listed", [2_000, 1])
@pytest.mark.parametrize("chosen", [[], *([name] for name in NAMES), NAMES[1:], ["other"]])
def test_rows_are_found_by_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: list[str], listed: int
) -> None:
    monkeypatch.setattr(datafusion, "_LISTED", listed)
    among = rows_among("id", chosen)
    assert among is not None
    found = query(_table(tmp_path), f"SELECT id FROM {among('t')}")
    assert sorted(found["id"].to_pylist()) == sorted(set(chosen) & set(NAMES))


def test_many_names_with_the_character_between_them_are_left_to_spark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(datafusion, "_LISTED", 0)
    assert rows_among("id", ["a\x1fb"]) is None
    assert rows_among("id", ["a", "b\x1f"]) is None


@pytest.mark.parametrize("relation", ["t", "(SELECT * FROM t WHERE id >= '0')"])
def test_the_names_are_held_in_memory_and_not_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relation: str
) -> None:
    monkeypatch.setattr(datafusion, "_LISTED", 0)
    names = [sha256(b"%d" % number).hexdigest() for number in range(200_000)]
    write_deltalake(tmp_path, pa.table({"id": names}))
    among = rows_among("id", names[:5_000])
    assert among is not None
    table = DeltaTable(tmp_path)
    assert query(table, f"SELECT id FROM {among(relation)}").num_rows == 5_000
    _, steps = query(table, f"EXPLAIN SELECT * FROM {among(relation)}")["plan"].to_pylist()
    _, join, sides = steps.partition("HashJoinExec")
    assert join
    # The side that is held is stated first.
    assert sides.index("UnnestExec") < sides.index("DataSourceExec")


def test_types_are_those_that_spark_knows(tmp_path: Path) -> None:
    found = query(_table(tmp_path), "SELECT * FROM t")
    assert [str(kind) for kind in found.schema.types] == [
        "string",
        f"list<{found.schema.field('names').type.value_field.name}: string>",
        "int64",
        "timestamp[us, tz=UTC]",
    ]


def test_the_last_row_and_a_time_are_spelled_for_datafusion(tmp_path: Path) -> None:
    last = DATAFUSION.last_of("id", "number")
    since = DATAFUSION.time_of(1_000_000)
    sql = f"SELECT {last} AS last, min(number) AS first FROM t WHERE at >= {since}"
    found = query(_table(tmp_path), sql)
    assert found.to_pylist() == [{"last": NAMES[-1], "first": 1}]
