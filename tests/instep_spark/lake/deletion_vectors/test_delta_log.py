"""Which files make up a Delta table, beside what delta-rs reads in the same log."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from instep_spark.lake.deletion_vectors.delta_log import DeltaLog


def _rows(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64()), "odd": [n % 2 == 1 for n in numbers]})


def _table(path: Path) -> DeltaTable:
    for number in range(12):
        write_deltalake(path, _rows(number, number + 1), mode="append", partition_by=["odd"])
        if number == 5:
            DeltaTable(path).delete("n = 3")
            DeltaTable(path).create_checkpoint()
    return DeltaTable(path)


def _paths(log: DeltaLog) -> list[str]:
    return sorted(file["path"] for file in log.files)


def _paths_by_delta_rs(table: DeltaTable) -> list[str]:
    return sorted(pa.table(table.get_add_actions())["path"].to_pylist())


@pytest.mark.parametrize("expired", [False, True])
def test_the_active_files_are_those_that_delta_rs_reads(tmp_path: Path, expired: bool) -> None:
    table = _table(tmp_path)
    if expired:
        for version in range(7):
            (tmp_path / "_delta_log" / f"{version:020}.json").unlink()
    log = DeltaLog(tmp_path)
    assert log.read_to(table.version())
    assert log.version == table.version()
    assert _paths(log) == _paths_by_delta_rs(table)
    assert {file["partitionValues"]["odd"] for file in log.files} == {"true", "false"}
    assert log.metadata["partitionColumns"] == ["odd"]
    assert log.protocol["minReaderVersion"] == 1
    # From there on, only what has come since is read.
    write_deltalake(tmp_path, _rows(50), mode="append")
    table.update_incremental()
    assert log.read_to(table.version())
    assert _paths(log) == _paths_by_delta_rs(table)


def test_an_older_version_is_read_anew(tmp_path: Path) -> None:
    table = _table(tmp_path)
    log = DeltaLog(tmp_path)
    assert log.read_to(table.version())
    assert log.read_to(3)
    table.load_as_version(3)
    assert _paths(log) == _paths_by_delta_rs(table)


def test_a_log_whose_begin_is_gone_is_not_understood(tmp_path: Path) -> None:
    table = _table(tmp_path)
    for path in (tmp_path / "_delta_log").glob("*.checkpoint.parquet"):
        path.unlink()
    (tmp_path / "_delta_log" / f"{0:020}.json").unlink()
    assert not DeltaLog(tmp_path).read_to(table.version())


def test_a_file_system_without_hard_links_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _table(tmp_path)
    names = {path.name for path in (tmp_path / "_delta_log").iterdir()}
    assert DeltaLog(tmp_path).has_links()

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSYS, "no")

    monkeypatch.setattr(os, "link", fail)
    assert not DeltaLog(tmp_path).has_links()
    assert {path.name for path in (tmp_path / "_delta_log").iterdir()} == names


def test_a_commit_that_another_writer_replaces_is_noticed(tmp_path: Path) -> None:
    table = _table(tmp_path)
    log = DeltaLog(tmp_path)
    assert not log.was_replaced()
    version = table.version() + 1
    assert log.commit(version, [{"commitInfo": {"timestamp": 1, "operation": "X"}}])
    assert not log.was_replaced()
    other = tmp_path / "other.json"
    other.write_text("{}")
    path = tmp_path / "_delta_log" / f"{version:020}.json"
    other.rename(path)
    assert log.was_replaced()
    path.unlink()
    assert not log.was_replaced()  # it has expired


def test_a_checkpoint_is_read_before_what_lies_behind_it(tmp_path: Path) -> None:
    table = _table(tmp_path)
    (tmp_path / "_delta_log" / f"{2:020}.json").write_text("not read")
    log = DeltaLog(tmp_path)
    assert log.read_to(table.version())
    assert _paths(log) == _paths_by_delta_rs(table)


def test_columns_that_only_a_checkpoint_has_are_left_out(tmp_path: Path) -> None:
    table = _table(tmp_path)
    table.create_checkpoint()
    (last,) = sorted((tmp_path / "_delta_log").glob("*.checkpoint.parquet"))[-1:]
    read = pq.read_table(last)
    files = [
        None if row is None else {**row, "partitionValues_parsed": {"odd": True}}
        for row in read["add"].to_pylist()
    ]
    kind = pa.struct(
        [
            *read.schema.field("add").type,
            ("partitionValues_parsed", pa.struct([("odd", pa.bool_())])),
        ]
    )
    at = read.schema.get_field_index("add")
    pq.write_table(read.set_column(at, pa.field("add", kind), pa.array(files, kind)), last)
    log = DeltaLog(tmp_path)
    assert log.read_to(table.version())
    assert _paths(log) == _paths_by_delta_rs(table)
    assert not any("partitionValues_parsed" in file for file in log.files)


def test_a_version_is_committed_once(tmp_path: Path) -> None:
    table = _table(tmp_path)
    log = DeltaLog(tmp_path)
    assert log.read_to(table.version())
    before = _paths(log)
    files = list(log.files)
    assert log.commit(table.version() + 1, [{"commitInfo": {"timestamp": 1, "operation": "X"}}])
    removed = {"path": files[0]["path"], "dataChange": True}
    assert not log.commit(table.version() + 1, [{"remove": removed}])
    assert not list((tmp_path / "_delta_log").glob(".*.tmp"))
    table.update_incremental()
    assert _paths_by_delta_rs(table) == before
