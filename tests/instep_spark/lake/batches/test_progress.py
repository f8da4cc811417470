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
    content_of,
)
from instep_spark.landing.writers.delta_rs import DeltaRsWriter
from instep_spark.options import DeltaOptions


def stamp(number: int, ordinal: int | None = None, known: int | None = None) -> str:
    ordinal = 10 * number if ordinal is None else ordinal
    progress = TableProgress({("c", "s"): StreamProgress(ordinal)})
    return CommitMetadata(progress, number, known).encode()


def commit(at: int, metadata: str = "", operation: str = "MERGE", **parameters: object) -> Commit:
    return Commit(at, operation, parameters, metadata)


def told(*commits: Commit) -> tuple[int, int] | None:
    found = content_of(commits).metadata
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


@pytest.mark.parametrize(
    ("operation", "parameters"),
    [
        ("CLONE", {}),
        ("CREATE OR REPLACE TABLE AS SELECT", {}),
        ("REPLACE TABLE", {}),
        ("WRITE", {"mode": "Overwrite"}),
    ],
)
def test_l2_what_another_writer_has_put_in_its_place_has_no_progress(
    operation: str, parameters: dict[str, str]
) -> None:
    made = [commit(1, stamp(1)), commit(2, stamp(2))]
    replaced = commit(3, operation=operation, **parameters)
    assert told(*made, replaced, commit(4, operation="OPTIMIZE")) is None
    assert told(*made, replaced, commit(4, operation="RESTORE", version="2")) == (20, 2)
    # The pipeline itself has made it again.
    assert told(*made, replaced, commit(4, stamp(3), "WRITE", mode="Overwrite")) == (30, 3)
    assert told(*made, commit(3, operation="WRITE", mode="Append")) == (20, 2)


def test_l2_what_was_decided_before_a_restore_and_written_after_it_is_no_progress() -> None:
    made = [commit(1, stamp(1, known=0)), commit(2, stamp(2, known=1))]
    back = commit(3, operation="RESTORE", version="1")
    written = [commit(4, stamp(3, known=2)), commit(5, stamp(4, known=2))]
    found = content_of([*made, back, *written])
    assert (found.metadata, found.replaced_at) == (None, 3)
    # What it was undone to tells again; and what is written on that.
    undone = commit(6, operation="RESTORE", version="3")
    assert told(*made, back, *written, undone) == (10, 4)
    assert told(*made, back, *written, undone, commit(7, stamp(5, 20, known=6))) == (20, 5)
    # A commit of maintenance, which has looked behind the RESTORE.
    assert told(*made, back, commit(4, stamp(1, known=3), "OPTIMIZE")) == (10, 2)
    # Where the commits that were read do not reach so far back, more have to be read.
    assert not content_of(written).is_whole
    assert content_of([back, *written]).replaced_at == 3


@pytest.mark.parametrize("operation", ["DELETE", "TRUNCATE", "UPDATE", "MERGE", "WRITE"])
def test_that_another_writer_has_altered_rows_is_told_until_the_table_is_made_again(
    operation: str,
) -> None:
    made = [commit(1, stamp(1)), commit(2, operation=operation), commit(3, stamp(2))]
    found = content_of(made)
    assert found.altered
    assert not content_of([*made, commit(4, operation="RESTORE", version="1")]).altered
    again = commit(4, stamp(3), "WRITE", mode="Overwrite")
    assert not content_of([*made, again]).altered
    assert not content_of([commit(1, stamp(1)), commit(2, stamp(2), operation)]).altered
    assert not content_of([commit(1, stamp(1)), commit(2, operation="OPTIMIZE")]).altered
    # The next commit of the pipeline tells it, when that of the other writer has left the log.
    assert found.metadata is not None
    carried = found.metadata._replace(number=3, known_version=3).encode()
    assert content_of([commit(4, carried)]).altered
    again = commit(5, stamp(4), "WRITE", mode="Overwrite")
    assert not content_of([commit(4, carried), again]).altered


def test_two_pipelines_that_begin_a_table_number_their_commits_alike() -> None:
    made = [commit(0, operation="CREATE TABLE")]
    assert content_of(made).commits == 0
    assert content_of([*made, commit(1, operation="SET TBLPROPERTIES")]).commits == 0
    # To a time: none tells how far it has come, but how many there were.
    back = commit(3, operation="RESTORE", timestamp="then")
    assert content_of([*made, commit(1, stamp(1)), commit(2, stamp(2)), back]).commits == 2
    # Where the first ones have left the log, and of a clone, there are no more than of all.
    assert content_of([commit(7, operation="SET TBLPROPERTIES")]).commits == 7
    assert content_of([commit(0, operation="CLONE"), commit(1, operation="OPTIMIZE")]).commits == 1


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
