"""The log of a Delta table in a folder of this machine: which data files make up the table, and
commits that replace none of another writer.

delta-rs reads tables with deletion vectors. But it does not tell where the vector of a file stands,
and it commits none. Delta's PROTOCOL.md, "Delta Log Entries", "Checkpoints" and "Action
Reconciliation".
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow.parquet as pq

from instep_spark.lake.deletion_vectors.vector_file import descriptor_of

__all__ = ["FILE_SIZE_PROPERTY", "VECTORS_PROPERTY", "Action", "DeltaLog"]

VECTORS_PROPERTY: Final = "delta.enableDeletionVectors"
"""Of a table whose changes mark rows, and do not write files anew."""
FILE_SIZE_PROPERTY: Final = "delta.targetFileSize"
"""Bytes of a file of a table that the driver writes, or `instep lake optimize`."""
Action = dict[str, Any]
"""What stands behind `add`, `remove` … in a line of a commit."""
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
_ADD_FIELDS: Final = {
    *("path", "partitionValues", "size", "modificationTime", "dataChange", "stats", "tags"),
    *("deletionVector", "baseRowId", "defaultRowCommitVersion", "clusteringProvider"),
}
"""What the protocol names: a checkpoint may have more columns, which only its readers need."""
_MAPS: Final = {"partitionValues", "tags", "configuration", "options"}


class DeltaLog:
    """The active data files of a table, up to a version."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = folder / "_delta_log"
        self._files: dict[tuple[str, str], Action] = {}
        self.version = -1
        """The version that was read last."""
        self.protocol: Action = {}
        self.metadata: Action = {}
        self._committed: tuple[int, int] | None = None
        """The version that was committed last, and the inode of its file."""

    @property
    def files(self) -> Iterable[Action]:
        """The `add` actions of the active files."""
        return self._files.values()

    def read_to(self, version: int) -> bool:
        """Read on to this version. False: the log is written in a way that is not understood."""
        if 0 <= self.version <= version and self._read_commits(version):
            return True
        self._files.clear()
        self.version = -1
        return self._read_checkpoint(version) and self._read_commits(version)

    def _read_commits(self, upto: int) -> bool:
        """False: a commit on the way has expired."""
        for version in range(self.version + 1, upto + 1):
            try:
                lines = self._path(version).read_bytes().splitlines()
            except FileNotFoundError:
                return False
            actions = [msgspec.json.decode(line) for line in lines]
            for one in actions:
                if "remove" in one:
                    self._files.pop(_key(one["remove"]), None)
            for one in actions:
                if "add" in one:
                    self._files[_key(one["add"])] = one["add"]
                self.protocol = one.get("protocol", self.protocol)
                self.metadata = one.get("metaData", self.metadata)
            self.version = version
        return True

    def _read_checkpoint(self, upto: int) -> bool:
        """Read the last checkpoint up to a version. False: it is of a kind that is not known."""
        parts: dict[tuple[int, int], list[Path]] = {}
        for path in self._log.iterdir():
            match = _CHECKPOINT.fullmatch(path.name)
            if match is not None and int(match[1]) <= upto:
                parts.setdefault((int(match[1]), int(match[3] or 1)), []).append(path)
        whole = [of for of, paths in parts.items() if len(paths) == of[1]]
        if not whole:
            return True
        last = max(whole)
        for path in parts[last]:
            if "sidecar" in pq.read_schema(path).names and _rows(path, "sidecar"):
                return False
            for row in _rows(path, "add"):
                file = {name: value for name, value in row.items() if name in _ADD_FIELDS}
                self._files[_key(file)] = file
            for row in _rows(path, "protocol"):
                self.protocol = row
            for row in _rows(path, "metaData"):
                self.metadata = row
        self.version = last[0]
        return True

    def commit(self, version: int, actions: Iterable[Mapping[str, Any]]) -> bool:
        """Make these actions a version of the table. False: there is one already."""
        self._log.mkdir(exist_ok=True)
        written = self._log / f".{uuid.uuid4()}.json.tmp"
        written.write_bytes(b"\n".join(map(msgspec.json.encode, actions)) + b"\n")
        try:
            os.link(written, self._path(version))  # unlike a rename, it replaces no file
            self._committed = version, written.stat().st_ino
        except FileExistsError:
            return False
        finally:
            written.unlink()
        return True

    def was_replaced(self) -> bool:
        """Whether another writer has replaced the last commit. Spark may, within a moment: in a
        folder it looks whether a version is there, and then renames its own to it.
        """
        if self._committed is None:
            return False
        version, inode = self._committed
        try:
            return self._path(version).stat().st_ino != inode
        except FileNotFoundError:
            return False  # it has expired

    def has_links(self) -> bool:
        """Whether the file system has hard links, without which no commit is safe."""
        first = self._log / f".{uuid.uuid4()}.json.tmp"
        second = first.with_suffix(".link")
        try:
            first.touch()
            os.link(first, second)
        except OSError:
            return False
        finally:
            first.unlink(missing_ok=True)
            second.unlink(missing_ok=True)
        return True

    def _path(self, version: int) -> Path:
        return self._log / f"{version:020}.json"


def _key(action: Action) -> tuple[str, str]:
    vector = action.get("deletionVector")
    if vector is None:
        return action["path"], ""
    at = descriptor_of(vector)
    return action["path"], f"{at.storage_type}{at.path_or_inline_dv}@{at.offset}"


def _rows(checkpoint: Path, name: str) -> list[Action]:
    """The actions of this name in a checkpoint, as commits would have them."""
    rows = pq.ParquetFile(checkpoint).read(columns=[name])[name].drop_null().to_pylist()
    return [_plain(row) for row in rows]


def _plain(row: Action) -> Action:
    plain = {name: value for name, value in row.items() if value is not None}
    for name, value in plain.items():
        if name in _MAPS:
            plain[name] = dict(value)
        elif isinstance(value, dict):
            plain[name] = _plain(value)
    return plain
