"""ChangeReader of the entities of a lake, for `format("instep")`: aligned, whole, in their order.

First come the entities that exist, then what happens to them. Both are read from `entity_history`:
the first from a version of it, the second from its change data feed, commit by commit. An offset is
`{"version": v}`: all that this version has was read; or, while the first are read,
`{"version": v, "ordinal": n}`: those of this version up to row `n` of `changes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from instep.errors import ConfigurationError, SinkError
from instep.model.entities import ChangeKind
from instep_spark.lake.tables.schema import FEED_PROPERTY
from instep_spark.reading.change_filter import CHANGE_SCHEMA, ChangeFilter
from instep_spark.reading.journal_change_reader import even_ranges

__all__ = ["LakeChangeReader"]

_NOTHING: Final = -1
"""The version before all: nothing was read."""
_MOMENT: Final = pa.timestamp("us", tz="UTC")
_IDENTITY: Final = ("consumer", "stream", "id")
_ROW: Final = (*_IDENTITY, "ordinal")
"""What tells rows of `entity_history` apart."""
_COLUMNS: Final = pa.schema(
    [
        *((name, pa.string()) for name in (*_IDENTITY, "key", "class", "token", "body")),
        ("ordinal", pa.int64()),
        ("appended_at", _MOMENT),
        ("valid_to", _MOMENT),
        ("ended_by", pa.string()),
        ("end_ordinal", pa.int64()),
        ("end_appended_at", _MOMENT),
        ("open", pa.bool_()),
    ]
)
_EXISTING: Final = """
    SELECT ordinal AS cursor, consumer, stream, key, class, token, appended_at, body
    FROM history WHERE open AND ordinal > {after} AND ordinal <= {upto} {chosen} ORDER BY ordinal
"""
_NEXT: Final = """
    SELECT coalesce(max(ordinal), 0) AS last, count(*) AS entities FROM (
        SELECT ordinal FROM history WHERE open AND ordinal > {after} {chosen}
        ORDER BY ordinal LIMIT {limit})
"""
_LAST: Final = "SELECT coalesce(max(ordinal), 0) AS last FROM history WHERE open"


class _Part(NamedTuple):
    """Commits after one and up to another; or, of `version`, the entities of these ordinals."""

    after: int
    upto: int
    version: int | None = None


class LakeChangeReader:
    """Reads ranges of changes of a lake, wherever Spark runs it. Raises `SinkError`."""

    def __init__(
        self, url: str, change_filter: ChangeFilter, *, version: int | None = None
    ) -> None:
        """`version`: the commit of `entity_history` to begin with, instead of what exists."""
        self._where = f"{url.rstrip('/')}/entity_history"
        self._first = _NOTHING if version is None else version - 1
        self.change_filter = change_filter

    def first(self) -> dict[str, int]:
        """Where to begin. Raises `ConfigurationError` where the lake keeps no feed."""
        if self._table().metadata().configuration.get(FEED_PROPERTY) != "true":
            raise ConfigurationError(
                "the table keeps no change data feed",
                where=self._where,
                hint="switch it on: instep lake feed CONFIG --tables entity_history",
            )
        return {"version": self._first}

    def newest(self, after: dict[str, int], limit: int | None) -> dict[str, int]:
        """How far there is something to read, at most `limit` changes or a whole commit."""
        with self._errors():
            if after["version"] == _NOTHING or "ordinal" in after:
                return self._next_existing(after, limit)
            return self._next_commits(after["version"], limit)

    def _next_existing(self, after: dict[str, int], limit: int | None) -> dict[str, int]:
        begun = after["version"] != _NOTHING
        table = self._table(after["version"] if begun else None)
        version = {"version": table.version()}
        if limit is None:
            return version
        query = _NEXT.format(after=after.get("ordinal", 0), limit=limit, chosen=self._chosen())
        (row,) = _query(table, query).to_pylist()
        return version if row["entities"] < limit else {**version, "ordinal": row["last"]}

    def _next_commits(self, after: int, limit: int | None) -> dict[str, int]:
        table = self._table()
        newest = table.version()
        if limit is None or newest <= after:
            return {"version": max(after, newest)}
        changed = 0
        for commit in reversed(table.history(newest - after)):
            changed += _changed_rows(commit.get("operationMetrics") or {})
            if changed >= limit:
                return {"version": int(commit["version"])}
        return {"version": newest}

    def cut(self, after: dict[str, int], upto: dict[str, int], parts: int) -> list[_Part]:
        """The range in `parts` parts at most."""
        version = upto["version"]
        if after["version"] != _NOTHING and "ordinal" not in after:
            return [_Part(*part) for part in even_ranges(after["version"], version, parts)]
        with self._errors():
            last = upto.get("ordinal")
            if last is None:
                last = _query(self._table(version), _LAST)["last"][0].as_py()
        ranges = even_ranges(after.get("ordinal", 0), last, parts)
        return [_Part(*part, version) for part in ranges]

    def read(self, part: _Part) -> Iterator[pa.RecordBatch]:
        """The chosen changes of a part. One commit at a time is in memory."""
        with self._errors():
            if part.version is not None:
                yield from self._existing(part, part.version)
                return
            table = self._table()
            for version in range(part.after + 1, part.upto + 1):
                yield from self.change_filter.apply(self._commit(table, version)).to_batches()

    def _existing(self, part: _Part, version: int) -> Iterator[pa.RecordBatch]:
        table = self._table(version)
        at = pa.scalar(table.history(1)[0]["timestamp"], pa.timestamp("ms", tz="UTC"))
        query = _EXISTING.format(after=part.after, upto=part.upto, chosen=self._chosen())
        for batch in QueryBuilder().register("history", table).execute(query):
            rows = pa.table(batch)
            same = {"change": ChangeKind.CREATED.value, "kind": "CREATE_UPDATE", "previous": None}
            yield from self.change_filter.apply(
                _changes(rows, {**same, "committed_at": at})
            ).to_batches()

    def _commit(self, table: DeltaTable, version: int) -> pa.Table:
        """The changes that a commit has made, by its rows before and after it."""
        feed = pa.table(
            table.load_cdf(version, version, predicate=self.change_filter.predicate() or None)
        )
        if not feed.num_rows:
            return CHANGE_SCHEMA.empty_table()
        at = feed["_commit_timestamp"][0].cast(pa.timestamp("us"))
        at = pc.assume_timezone(at, "UTC")
        kind = feed["_change_type"].cast(pa.string())
        rows = feed.select(_COLUMNS.names).cast(_COLUMNS)
        is_old = pc.is_in(kind, pa.array(["delete", "update_preimage"]))
        old = rows.filter(is_old).select(_ROW).append_column("was", rows.filter(is_old)["open"])
        new = rows.filter(pc.invert(is_old))
        was = _looked_up(new, _ROW, old, _ROW, "was")
        begun = new.filter(pc.is_null(was))
        replaced = new.filter(pc.equal(new["ended_by"], "UPDATE"))
        previous = _looked_up(begun, _ROW, replaced, (*_IDENTITY, "end_ordinal"), "body")
        is_update = _looked_up(begun, _ROW, replaced, (*_IDENTITY, "end_ordinal"), "ended_by")
        begins = _changes(
            begun.rename_columns({"ordinal": "cursor"}),
            {
                "change": pc.if_else(
                    pc.is_valid(is_update), ChangeKind.UPDATED.value, ChangeKind.CREATED.value
                ),
                "kind": "CREATE_UPDATE",
                "previous": previous,
                "committed_at": at,
            },
        )
        is_end = pc.and_(
            pc.and_not(pc.fill_null(was, True), new["open"]),
            pc.not_equal(new["ended_by"], "UPDATE"),
        )
        ended = new.filter(is_end)
        by = ended["ended_by"]
        is_sweep = pc.equal(by, "SWEEP")
        ends = _changes(
            ended.select(["consumer", "stream", "key", "class"]),
            {
                "cursor": ended["end_ordinal"],
                "change": pc.if_else(is_sweep, ChangeKind.SWEPT.value, ChangeKind.DELETED.value),
                "kind": pc.if_else(
                    is_sweep,
                    pa.scalar(None, pa.string()),
                    pc.if_else(pc.equal(by, "CLEAR"), "CREATE_UPDATE", by),
                ),
                "token": "",
                "appended_at": pc.coalesce(ended["end_appended_at"], ended["valid_to"]),
                "body": None,
                "previous": ended["body"],
                "committed_at": at,
            },
        )
        return pa.concat_tables([begins, ends]).sort_by(
            [("consumer", "ascending"), ("stream", "ascending"), ("cursor", "ascending")]
        )

    def _chosen(self) -> str:
        predicate = self.change_filter.predicate()
        return f"AND {predicate}" if predicate else ""

    def _table(self, version: int | None = None) -> DeltaTable:
        with self._errors():
            return DeltaTable(self._where, version=version)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (DeltaError, OSError) as error:
            raise SinkError(
                f"the lake cannot be read: {error}",
                where=self._where,
                hint="does `instep lake run` make it? If files are missing, they were vacuumed "
                "before they were read: begin with a new checkpoint",
            ) from error


def _query(table: DeltaTable, query: str) -> pa.Table:
    return pa.table(QueryBuilder().register("history", table).execute(query))


def _changed_rows(metrics: dict[str, Any]) -> int:
    names = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
    return sum(int(metrics.get(name, 0)) for name in names)


def _looked_up(
    rows: pa.Table,
    keys: tuple[str, ...],
    others: pa.Table,
    their_keys: tuple[str, ...],
    column: str,
) -> pa.ChunkedArray:
    """For each row the value of `column` in the one of `others` with its keys, or null."""
    at = pa.array(range(rows.num_rows), pa.int64())
    left = rows.select(keys).append_column("at", at)
    right = others.select(their_keys).rename_columns(list(keys))
    right = right.append_column("found", pa.array(range(others.num_rows), pa.int64()))
    joined = left.join(right, list(keys), join_type="left outer").sort_by("at")
    return others[column].combine_chunks().take(joined["found"])


def _changes(rows: pa.Table, values: dict[str, Any]) -> pa.Table:
    """Rows of `CHANGE_SCHEMA`: columns of `rows`, else one of `values`, or that value for all."""
    columns = []
    for field in CHANGE_SCHEMA:
        value = rows[field.name] if field.name in rows.column_names else values[field.name]
        if not isinstance(value, (pa.ChunkedArray, pa.Array)):
            scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value, field.type)
            value = pa.repeat(scalar, rows.num_rows)
        columns.append(value.cast(field.type))
    return pa.table(columns, schema=CHANGE_SCHEMA)
