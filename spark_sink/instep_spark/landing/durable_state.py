"""Reads where a stream stands in the table: its last rows, and the position that the last one
carries.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pyarrow as pa

from instep.errors import SinkError
from instep.model.position import Position, decode_position
from instep.model.records import Record, RecordType
from instep_spark.landing.dedup_window import REMEMBERED_RECORDS, DedupWindow, identity_of
from instep_spark.landing.writers.base import Writer

__all__ = ["DurableState", "read_durable_state"]

_LAST: Final = """
    SELECT max(ordinal) AS ordinal FROM {{changes}}
    WHERE consumer = {consumer} AND stream = {stream}
"""
_TAIL: Final = """
    SELECT ordinal, key, kind, token, partition, record_offset, appended_at, attempt, body,
        position, committed_at
    FROM {{changes}}
    WHERE consumer = {consumer} AND stream = {stream} AND ordinal > {after} ORDER BY ordinal
"""


class DurableState(msgspec.Struct):
    """Where a stream stands in the table."""

    ordinal: int = 0
    """The ordinal of its last row; 0: it has no rows."""
    version: int | None = None
    """The version of its last transaction; None: there is none, or the writer cannot read it."""
    committed_at_us: int = 0
    position: Position = Position()
    window: DedupWindow = msgspec.field(default_factory=DedupWindow)


def read_durable_state(
    writer: Writer, consumer: str, stream: str, application: str, where: str
) -> DurableState:
    """Read from its rows where a stream stands. Raises `SinkError` where some of them are gone."""
    names = {"consumer": writer.text(consumer), "stream": writer.text(stream)}
    version = writer.committed(application)
    near = version
    if near is None:
        near = writer.query(_LAST.format_map(names))["ordinal"][0].as_py()
    if near is None:
        return DurableState()
    after = max(0, near - REMEMBERED_RECORDS)
    tail = _with_us(writer.query(_TAIL.format_map({**names, "after": after}))).to_pylist()
    ordinals = [row["ordinal"] for row in tail]
    whole = ordinals == list(range(after + 1, after + 1 + len(tail)))
    if not whole or len(tail) < near - after or tail[-1]["position"] is None:
        raise SinkError(
            f"the last rows of stream {stream!r} are not there",
            where=where,
            hint="somebody removed rows of the table: restore it, or use another lake",
            ordinal=near,
        )
    position = decode_position(tail[-1]["position"])
    newest = (
        identity_of(_record(row))
        for row in tail
        if row["token"] and row["attempt"] == position.attempt
    )
    return DurableState(
        ordinals[-1],
        version,
        tail[-1]["committed_at"],
        position,
        DedupWindow(position.attempt, newest),
    )


def _with_us(rows: pa.Table) -> pa.Table:
    """The rows with moments as microseconds."""
    for name in ("appended_at", "committed_at"):
        microseconds = rows[name].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        rows = rows.set_column(rows.schema.get_field_index(name), name, microseconds)
    return rows


def _record(row: dict[str, Any]) -> Record:
    return Record(
        "",
        row["key"],
        RecordType[row["kind"]],
        row["token"],
        row["appended_at"],
        row["partition"],
        row["record_offset"],
        body=(row["body"] or "").encode(),
    )
