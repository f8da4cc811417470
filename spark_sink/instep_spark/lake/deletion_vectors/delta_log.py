"""The log of a Delta table in a folder of this machine: which data files make up the table, and a
commit that no other writer's can replace.

delta-rs reads tables with deletion vectors, and writes none: what it tells of a table names neither
the vectors of its files, nor may it commit them. Delta's PROTOCOL.md, "Delta Log Entries",
"Checkpoints" and "Action Reconciliation".
"""

from __future__ import annotations

import errno
import os
import re
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaProtocolError

from instep_spark.lake.deletion_vectors.vector_file import VectorDescriptor

__all__ = ["Action", "DeltaLog"]

Action = dict[str, Any]
"""What stands behind `add`, `remove` … in a line of a commit."""
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
_NO_LINKS: Final = {errno.EPERM, errno.ENOTSUP}
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

    @property
    def files(self) -> Iterable[Action]:
        """The `add` actions of the active files."""
        return self._files.values()

    def read_to(self, version: int) -> bool:
        """Read on to this version. False: the log is written in a way that is not understood."""
        if version < self.version or not self._read_commits(version):
            self._files.clear()
            self.version = -1
            return self._read_checkpoint(version) and self._read_commits(version)
        return True

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
                self._files[_key(row)] = row
            for row in _rows(path, "protocol"):
                self.protocol = row
            for row in _rows(path, "metaData"):
                self.metadata = row
        self.version = last[0]
        return True

    def commit(self, version: int, actions: Iterable[Mapping[str, Any]]) -> bool:
        """Make these actions a version of the table. False: there is one already. Raises
        `DeltaProtocolError` where the file system cannot tell that for certain.
        """
        path = self._path(version)
        self._log.mkdir(exist_ok=True)
        written = self._log / f".{uuid.uuid4()}.json.tmp"
        written.write_bytes(b"\n".join(map(msgspec.json.encode, actions)) + b"\n")
        try:
            os.link(written, path)  # unlike a rename, it replaces no file
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise DeltaProtocolError(f"no hard links in {self._log}") from error
            raise
        finally:
            written.unlink()
        return True

    def _path(self, version: int) -> Path:
        return self._log / f"{version:020}.json"


def _key(action: Action) -> tuple[str, str]:
    vector = action.get("deletionVector")
    if vector is None:
        return action["path"], ""
    at = msgspec.convert(vector, VectorDescriptor)
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
