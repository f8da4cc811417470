"""What the driver reads of a table itself."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from instep.errors import SinkError
from instep_spark.lake.tables.delta_rs_table import DeltaRsTable
from instep_spark.lake.tables.schema import FEED_PROPERTY


def _table(path: Path, **properties: str) -> DeltaRsTable:
    write_deltalake(path, pa.table({"id": ["a"]}), configuration=dict(properties))
    return DeltaRsTable(path.as_uri())


def test_a_table_with_a_feed_is_left_to_spark(tmp_path: Path) -> None:
    # Of the changes in files with deletion vectors, delta-rs would tell none.
    assert _table(tmp_path, **{FEED_PROPERTY: "true"}).query("SELECT * FROM t") is None


def test_a_table_that_is_gone_is_an_error_with_its_place(tmp_path: Path) -> None:
    missing = DeltaRsTable((tmp_path / "missing").as_uri())
    with pytest.raises(SinkError, match="can neither read nor write") as caught:
        missing.query("SELECT * FROM t")
    assert caught.value.retriable
    assert "missing" in str(caught.value)
