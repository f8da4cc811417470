"""What the driver reads of a table itself."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from instep.errors import SinkError, StoreUnavailableError
from instep_spark.lake.batches.progress import (
    CommitMetadata,
    StreamProgress,
    TableProgress,
    content_of,
)
from instep_spark.lake.merge import Merge, MergeOutcome
from instep_spark.lake.tables.delta_rs_table import DeltaRsTable
from instep_spark.lake.tables.schema import FEED_PROPERTY
from tests.instep_spark.lake.deletion_vectors.vector_kit import marking_table
from tests.instep_spark.sink_kit import fill


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
    assert table.described() == ({}, ["id", "open"])
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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(tmp_path)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small disk needs rights that this process has not")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


@pytest.mark.parametrize("marks", [False, True])
def test_a_disk_that_is_full_during_a_merge_is_named_and_nothing_is_torn(
    small_disk: Path, marks: bool
) -> None:
    # They are not compressed to nothing.
    bodies = [f"{one * 0x9E3779B97F4A7C15 % 2**64:016x}" * 10 for one in range(2_000)]
    whose = {name: [name] * len(bodies) for name in ("consumer", "stream")}
    before = pa.table({**whose, "id": list(map(str, range(len(bodies)))), "body": bodies})
    if marks:
        marking_table(small_disk, before)
    else:
        write_deltalake(small_disk, before)
    table = DeltaRsTable(small_disk.as_uri())
    taken = {name: f"s.`{name}`" for name in before.column_names}
    merge = Merge(("id",), (("consumer", "stream"),), taken, taken)
    metadata = CommitMetadata(TableProgress({("c", "s"): StreamProgress(7)}), 1)
    ballast = small_disk / "ballast"
    with pytest.raises(OSError, match="No space"):
        fill(ballast)
    files = sorted(small_disk.rglob("*"))
    with pytest.raises(StoreUnavailableError, match="the disk is full") as caught:
        table.merge(merge, before, metadata)
    assert "make room" in caught.value.hint
    assert sorted(small_disk.rglob("*")) == files
    ballast.unlink()
    assert table.merge(merge, before, metadata) is MergeOutcome.MERGED
    found = table.query("SELECT * FROM t")
    assert found is not None
    assert found.sort_by("id").equals(before.sort_by("id").cast(found.schema))
