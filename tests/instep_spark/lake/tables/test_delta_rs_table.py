"""What the driver reads of a table itself."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from instep.errors import SinkError
from instep_spark.lake.sql.dialect import DATAFUSION
from instep_spark.lake.tables.delta_rs_table import DeltaRsTable, one_of
from instep_spark.lake.tables.schema import VECTORS_PROPERTY

NAMES = ["plain", "it's", "back\\slash", "$" + "{x}", "é\n", ""]


def _table(path: Path, **properties: str) -> DeltaRsTable:
    rows = pa.table(
        {
            "id": NAMES,
            "names": [[name] for name in NAMES],
            "number": pa.array(range(len(NAMES)), pa.int64()),
            "at": pa.array([datetime.fromtimestamp(n, UTC) for n in range(len(NAMES))]),
        }
    )
    rows = rows.set_column(3, "at", rows["at"].cast(pa.timestamp("us", "UTC")))
    write_deltalake(path, rows, configuration=dict(properties))
    return DeltaRsTable(path.as_uri())


@pytest.mark.parametrize("chosen", [[], *([name] for name in NAMES), NAMES[1:], ["other"]])
def test_rows_are_found_by_any_name(tmp_path: Path, chosen: list[str]) -> None:
    found = _table(tmp_path).query(f"SELECT * FROM t WHERE {one_of('id', chosen)}")
    assert found is not None
    assert sorted(found["id"].to_pylist()) == sorted(set(chosen) & set(NAMES))


def test_names_with_the_character_between_them_are_left_to_spark() -> None:
    assert one_of("id", ["a\x1fb"]) is None
    assert one_of("id", ["a", "b\x1f"]) is None


def test_types_are_those_that_spark_knows(tmp_path: Path) -> None:
    found = _table(tmp_path).query("SELECT * FROM t")
    assert found is not None
    assert [str(kind) for kind in found.schema.types] == [
        "string",
        f"list<{found.schema.field('names').type.value_field.name}: string>",
        "int64",
        "timestamp[us, tz=UTC]",
    ]


def test_the_last_row_and_a_time_are_spelled_for_datafusion(tmp_path: Path) -> None:
    last = DATAFUSION.last_of("id", "number")
    since = DATAFUSION.time_of(1_000_000)
    table = _table(tmp_path)
    found = table.query(f"SELECT {last} AS last, min(number) AS first FROM t WHERE at >= {since}")
    assert found is not None
    assert found.to_pylist() == [{"last": NAMES[-1], "first": 1}]


def test_a_table_that_delta_rs_may_misread_is_left_to_spark(tmp_path: Path) -> None:
    assert _table(tmp_path, **{VECTORS_PROPERTY: "true"}).query("SELECT * FROM t") is None


def test_a_table_that_is_gone_is_an_error_with_its_place(tmp_path: Path) -> None:
    missing = DeltaRsTable((tmp_path / "missing").as_uri())
    with pytest.raises(SinkError, match="can neither read nor write") as caught:
        missing.query("SELECT * FROM t")
    assert caught.value.retriable
    assert "missing" in str(caught.value)
