"""Which files make up a Delta table, beside what delta-rs reads in the same log."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaProtocolError

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


@pytest.mark.parametrize(
    ("number", "raised"), [(errno.ENOTSUP, DeltaProtocolError), (errno.ENOSPC, OSError)]
)
def test_without_hard_links_nothing_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, raised: type[Exception]
) -> None:
    table = _table(tmp_path)

    def fail(*_: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(raised):
        DeltaLog(tmp_path).commit(table.version() + 1, [])
    assert not list((tmp_path / "_delta_log").glob(".*.tmp"))


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
