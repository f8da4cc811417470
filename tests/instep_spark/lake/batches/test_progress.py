"""How far a table has come, by the commits that its content is made of (L2)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from instep_spark.lake.batches.progress import (
    Commit,
    CommitMetadata,
    StreamProgress,
    TableProgress,
    metadata_of_content,
)
from instep_spark.landing.writers.delta_rs import DeltaRsWriter
from instep_spark.options import DeltaOptions


def stamp(number: int, ordinal: int | None = None) -> str:
    ordinal = 10 * number if ordinal is None else ordinal
    return CommitMetadata(TableProgress({("c", "s"): StreamProgress(ordinal)}), number).encode()


def commit(at: int, metadata: str = "", operation: str = "MERGE", **parameters: object) -> Commit:
    return Commit(at, operation, parameters, metadata)


def told(*commits: Commit) -> tuple[int, int] | None:
    found = metadata_of_content(commits)
    return None if found is None else (found.progress["c", "s"].ordinal, found.number)


def test_l2_what_a_restore_has_undone_is_no_progress() -> None:
    made = [commit(1, stamp(1)), commit(2, stamp(2)), commit(3, stamp(3))]
    assert told(*made) == (30, 3)
    back = commit(4, operation="RESTORE", version="1", timestamp=None)
    # Delta takes each number once, so the next one is still 4.
    assert told(*made, back) == (10, 3)
    assert told(*made, back, commit(5, stamp(4, 20))) == (20, 4)
    # Back to before the first restore, and on from there; a copy by maintenance is no progress.
    again = commit(6, operation="RESTORE", version="3")
    assert told(*made, back, commit(5, stamp(4, 20)), again) == (30, 4)
    twice = commit(7, operation="RESTORE", version="4")
    assert told(*made, back, commit(5, stamp(4, 20)), again, twice) == (10, 4)
    assert told(*made, back, commit(5, stamp(3, 10), "OPTIMIZE")) == (10, 3)


def test_l2_content_of_which_no_commit_tells_has_no_progress() -> None:
    assert told() is None
    assert told(commit(0, operation="CLONE")) is None
    assert told(commit(8), commit(9, operation="OPTIMIZE")) is None
    made = commit(1, stamp(1))
    assert told(made, commit(2, operation="RESTORE", version=None, timestamp="2026-11-22")) is None
    assert told(made, commit(2, operation="RESTORE", version="0")) is None


def test_maintenance_that_began_earlier_takes_no_progress_back() -> None:
    assert told(commit(1, stamp(1)), commit(2, stamp(2)), commit(3, stamp(1), "OPTIMIZE")) == (
        20,
        2,
    )


@pytest.mark.parametrize("others", [0, 25])
def test_l2_a_writer_without_java_sees_what_was_restored(tmp_path: Path, others: int) -> None:
    rows = pa.table({"id": ["k"]})
    for number in (1, 2, 3):
        write_deltalake(
            tmp_path / "entities",
            rows,
            mode="append",
            commit_properties=CommitProperties(custom_metadata={"userMetadata": stamp(number)}),
        )
    table = DeltaTable(tmp_path / "entities")
    table.restore(0)
    for _ in range(others):
        write_deltalake(tmp_path / "entities", rows, mode="append")
    writer = DeltaRsWriter(DeltaOptions(url=tmp_path.as_uri()))
    assert writer.pipeline_progress("c", "s").ordinal == 10
