"""What the driver reads of a table itself."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from instep.errors import SinkError
from instep_spark.lake.batches.progress import (
    CommitMetadata,
    StreamProgress,
    TableProgress,
    content_of,
)
from instep_spark.lake.merge import MergeOutcome
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


def test_l2_progress_is_committed_without_a_row(tmp_path: Path) -> None:
    rows = pa.table({"id": ["a", "b"], "open": [True, False]})
    write_deltalake(tmp_path, rows, partition_by=["open"])
    table = DeltaRsTable(tmp_path.as_uri())
    assert table.described() == {}
    progress = TableProgress({("c", "s"): StreamProgress(7)})
    assert table.commit_metadata(CommitMetadata(progress, 1)) is MergeOutcome.MERGED
    # Of two commits of one number, one happens.
    assert table.commit_metadata(CommitMetadata(progress, 1)) is MergeOutcome.OVERTAKEN
    assert DeltaTable(tmp_path).version() == 1
    found = content_of(table.commits(2)).metadata
    assert found is not None
    assert (found.progress.by_stream, found.number) == (progress.by_stream, 1)
    asked = table.query("SELECT id FROM t ORDER BY id")
    assert asked is not None
    assert asked["id"].to_pylist() == ["a", "b"]
    shutil.rmtree(tmp_path)
    assert table.described() is None
