"""A MERGE that marks the rows which it replaces in deletion vectors, and writes only what is new.

delta-rs can merge, but only by writing anew each file that has a matched row: of a large table
nearly all, however few the changes. So the matched rows are copied into a small table, delta-rs
merges there, and what that has written becomes part of the large table, in one commit that marks
the matched rows as deleted. Conditions, values, statistics and checks are delta-rs' own.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError, DeltaProtocolError
from pyroaring import BitMap64

from instep_spark.lake.batches.progress import APPLICATION, CommitMetadata
from instep_spark.lake.deletion_vectors.delta_log import (
    FILE_SIZE_PROPERTY,
    VECTORS_PROPERTY,
    Action,
    DeltaLog,
)
from instep_spark.lake.deletion_vectors.vector_file import (
    descriptor_of,
    read_vector,
    write_vectors,
)
from instep_spark.lake.merge import Merge, MergeOutcome
from instep_spark.lake.sql.datafusion import query, rows_among
from instep_spark.lake.sql.literals import of_streams
from instep_spark.place import folder_of

__all__ = ["MergeOnReadTable"]

_FEATURES: Final = {
    *("deletionVectors", "appendOnly", "invariants", "checkConstraints", "changeDataFeed"),
    *("domainMetadata", "timestampNtz", "variantType"),
}
"""Table features whose rules these commits obey. (They write no change data feed: a table that has
one switched on does not come here.)"""
_CONSTRAINT: Final = "delta.constraints."
_INVARIANT: Final = "delta.invariants"
_CHECKPOINT_INTERVAL: Final = 10
_READ_ROWS: Final = 131_072


class _MatchedFile(msgspec.Struct, frozen=True):
    """A data file with rows that are matched."""

    file: Action
    positions: BitMap64
    """Of these rows."""
    deleted: BitMap64
    """Positions of rows that are deleted already."""


class MergeOnReadTable:
    """Merges into one table in a folder of this machine."""

    def __init__(self, url: str) -> None:
        """`url`: of the table, `file:…`."""
        self._folder = folder_of(url)
        self._log = DeltaLog(self._folder)
        self._has_links: bool | None = None

    def merge(
        self, table: DeltaTable, merge: Merge, rows: pa.Table, metadata: CommitMetadata
    ) -> MergeOutcome:
        """Merge the rows in one commit. Nothing of a merge that does not end with it can be seen,
        and VACUUM deletes what it has written.
        """
        if not self._understands(table):
            return MergeOutcome.UNFIT
        matched = list(self._matched_files(merge, rows))
        fields = table.schema().fields
        columns = [field.name for field in fields]
        needed = {
            *merge.target_columns(columns),
            *(field.name for field in fields if not field.nullable),
        }
        checked = any(_CONSTRAINT in name for name in self._log.metadata["configuration"])
        if checked or any(_INVARIANT in field.metadata for field in fields):
            needed = {*columns}
        actions = self._merged(table, merge, rows, matched, needed)
        if actions is None and len(needed) < len(columns):
            # Some rows stay as they are, with all that they have.
            actions = self._merged(table, merge, rows, matched, {*columns})
        if not actions:
            return MergeOutcome.UNFIT if actions is None else MergeOutcome.UNCHANGED
        version = table.version() + 1
        if not self._log.commit(version, [*_stamps(table, metadata), *actions]):
            return MergeOutcome.OVERTAKEN
        if version % _CHECKPOINT_INTERVAL == 0:
            with suppress(DeltaError, OSError):  # the commit stands; another one tries again
                table.update_incremental()
                table.create_checkpoint()
                table.cleanup_metadata()
        return MergeOutcome.MERGED

    def was_replaced(self) -> bool:
        """Whether another writer has replaced the last commit; told once."""
        if not self._log.was_replaced():
            return False
        self._log = DeltaLog(self._folder)  # what it holds is no longer what is there
        return True

    def _understands(self, table: DeltaTable) -> bool:
        """Whether a commit to the table may be made here."""
        if self._has_links is None:
            self._has_links = self._log.has_links()
        known = self._has_links and self._log.read_to(table.version())
        return known and _features(self._log.protocol) <= _FEATURES

    def _merged(
        self,
        table: DeltaTable,
        merge: Merge,
        rows: pa.Table,
        files: list[_MatchedFile],
        columns: set[str],
    ) -> list[Mapping[str, Any]] | None:
        """Return the actions of the merge, none where it changes no row. None: it cannot be done
        so, with these columns of the matched rows or at all.
        """
        matched = _matched_rows(table, merge, rows, columns)
        if matched is None or matched.num_rows != sum(len(one.positions) for one in files):
            return None
        with TemporaryDirectory(prefix="instep-merge-") as name:
            folder = Path(name)
            part = _table_of(matched, self._log, folder)
            version, before = part.version(), set(part.file_uris())
            copied = merge.run(part, rows)
            if part.version() == version:
                return []
            some_stayed = copied > 0 or bool(before.intersection(part.file_uris()))
            if some_stayed and len(columns) < matched.num_columns:
                return None
            log = DeltaLog(folder)
            log.read_to(part.version())
            for file in log.files:
                to = self._folder / unquote(file["path"])
                to.parent.mkdir(exist_ok=True)
                try:
                    shutil.copyfile(folder / unquote(file["path"]), to)
                except OSError:
                    to.unlink(missing_ok=True)  # a part of it would fill a full disk for good
                    raise
            return [*self._deletions(files), *({"add": file} for file in log.files)]

    def _matched_files(self, merge: Merge, rows: pa.Table) -> Iterator[_MatchedFile]:
        """Find where the rows are that are matched."""
        keys = list(merge.keys)
        wanted = merge.matching(rows).select(keys)
        for file in self._log.files:
            values = file["partitionValues"]
            if any(values.get(name) != value for name, value in merge.within.items()):
                continue
            positions = BitMap64()
            first = 0
            source = pq.ParquetFile(self._folder / unquote(file["path"]))
            for batch in source.iter_batches(_READ_ROWS, columns=keys):
                positions |= _positions(batch, wanted, first)
                first += batch.num_rows
            if not positions:
                continue
            if "numRecords" not in file.get("stats", ""):
                raise DeltaProtocolError("a file with a deletion vector must state its rows")
            vector = file.get("deletionVector")
            deleted = BitMap64()
            if vector is not None:
                deleted = read_vector(self._folder, descriptor_of(vector))
            positions -= deleted
            if positions:
                yield _MatchedFile(file, positions, deleted)

    def _deletions(self, files: list[_MatchedFile]) -> Iterator[Mapping[str, Any]]:
        """The actions that delete these rows."""
        now_ms = int(time.time() * 1000)
        names = ("path", "partitionValues", "size", "deletionVector")
        kept = []
        for one in files:
            gone = {name: one.file[name] for name in names if name in one.file}
            gone |= {"deletionTimestamp": now_ms, "dataChange": True, "extendedFileMetadata": True}
            yield {"remove": gone}
            stats = msgspec.json.decode(one.file["stats"])
            deleted = one.deleted | one.positions
            if len(deleted) < stats["numRecords"]:
                # The bounds are those of all rows that the file had.
                stats = msgspec.json.encode({**stats, "tightBounds": False}).decode()
                kept.append(({**one.file, "dataChange": True, "stats": stats}, deleted))
        if kept:
            vectors = write_vectors(self._folder, [deleted for _, deleted in kept])
            for (file, _), vector in zip(kept, vectors, strict=True):
                yield {"add": {**file, "deletionVector": msgspec.to_builtins(vector)}}


def _positions(batch: pa.RecordBatch, wanted: pa.Table, first: int) -> BitMap64:
    """Where rows have the keys of wanted ones; the batch begins at position `first`."""
    read = pa.table(batch).cast(wanted.schema)  # delta-rs writes strings as views
    # Few have the last key, so the others are compared of few.
    last = wanted.schema.names[-1]
    at = pc.indices_nonzero(pc.is_in(read[last], value_set=wanted[last]))
    if not len(at):
        return BitMap64()
    return BitMap64(pc.add(_wanted_at(read.take(at), at, wanted), first).to_pylist())


def _wanted_at(keys: pa.Table, at: pa.Array, wanted: pa.Table) -> pa.ChunkedArray:
    """Of the places `at` of rows with these keys, those of wanted ones."""
    placed = keys.append_column("at", at)
    return placed.join(wanted, wanted.schema.names, join_type="left semi")["at"]


def _features(protocol: Action) -> set[str]:
    return {*protocol.get("readerFeatures", ()), *protocol.get("writerFeatures", ())}


def _matched_rows(
    table: DeltaTable, merge: Merge, rows: pa.Table, columns: set[str]
) -> pa.Table | None:
    """What `rows` match in the table; other columns are null. None: the rows have keys that no
    condition can name.
    """
    keys = list(merge.keys)
    wanted = merge.matching(rows).select(keys)
    within = [f"`{name}` = {value}" for name, value in merge.within.items()]
    near = " AND ".join([of_streams(merge.streams), *within])
    source = f"(SELECT * FROM t WHERE {near})"
    last = wanted[keys[-1]]
    if pa.types.is_string(last.type):
        among = rows_among(keys[-1], last.to_pylist())
        if among is None:
            return None
        source = among(source)
    listed = ", ".join(f"`{name}`" for name in sorted(columns))
    found = query(table, f"SELECT {listed} FROM {source}")
    # Of an entity of another stream, the last key may be the same.
    at = pa.array(range(found.num_rows), pa.int64())
    found = found.take(_wanted_at(found.select(keys), at, wanted))
    schema = pa.schema(table.schema().to_arrow())
    return pa.table(
        [
            found[field.name] if field.name in columns else pa.nulls(found.num_rows, field.type)
            for field in schema
        ],
        schema.names,
    )


def _table_of(rows: pa.Table, like: DeltaLog, folder: Path) -> DeltaTable:
    """A table in `folder` of these rows, which is otherwise as `like`, but marks none."""
    protocol = dict(like.protocol)
    for name in ("readerFeatures", "writerFeatures"):
        protocol[name] = [one for one in protocol[name] if one != "deletionVectors"]
    configuration = dict(like.metadata["configuration"])
    del configuration[VECTORS_PROPERTY]
    configuration.pop(FILE_SIZE_PROPERTY, None)  # no file is written anew: few are better
    metadata = {**like.metadata, "configuration": configuration}
    DeltaLog(folder).commit(0, [{"protocol": protocol}, {"metaData": metadata}])
    table = DeltaTable(folder)
    if rows.num_rows:
        write_deltalake(table, rows, mode="append")
    return table


def _stamps(table: DeltaTable, metadata: CommitMetadata) -> Iterator[Mapping[str, Any]]:
    """The actions that tell what the commit is, and that it is the pipeline's next one."""
    now_ms = int(time.time() * 1000)
    yield {
        "commitInfo": {
            "timestamp": now_ms,
            "operation": "MERGE",
            "operationParameters": {},
            "readVersion": table.version(),
            "isBlindAppend": False,
            "engineInfo": "instep",
            "userMetadata": metadata.encode(),
        }
    }
    yield {"txn": {"appId": APPLICATION, "version": metadata.number, "lastUpdated": now_ms}}
