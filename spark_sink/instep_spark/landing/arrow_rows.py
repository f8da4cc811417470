"""A batch as rows of the landing tables, column by column: no row is ever built in Python."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import msgspec
import pyarrow as pa

from instep.model.batches import Batch, SweepStep
from instep.model.position import Position
from instep.model.records import Record, RecordType, Unreadable
from instep_spark.derivations import read_envelopes
from instep_spark.landing.timestamps import parse_timestamps
from instep_spark.landing_schema import (
    CHANGES,
    FACTS,
    QUARANTINE,
    ControlKind,
    FactKind,
    arrow_schema,
)

__all__ = ["change_rows", "fact_rows", "quarantine_rows", "split_storable"]

_MOMENT: Final = pa.timestamp("us", tz="UTC")
_CHANGES: Final = arrow_schema(CHANGES)
_KINDS: Final = {kind: kind.name for kind in RecordType}


def change_rows(
    consumer: str,
    batch: Batch,
    position: Position,
    records: Sequence[Record],
    *,
    first: int,
    attempt_opened: bool,
    now_us: int,
) -> pa.Table:
    """Rows of `changes` for a batch that leads to a position, numbered from `first`: the attempt it
    opens, these of its records, the sweep that is due; one with none of them moves the position
    alone.

    Raises `UnicodeError` or `pa.ArrowInvalid` for texts that no table can hold.
    """
    parts = []
    if attempt_opened:
        parts.append(_control(ControlKind.ATTEMPT, position))
    if records:
        lineage = pa.repeat(pa.scalar(batch.lineage, pa.int64()), len(records))
        parts.append({**_records(records), "lineage": lineage})
    if batch.sweep is not None:
        swept = _swept_classes(batch.sweep)
        stated = None if swept is None else {"readable": sorted(swept)}
        parts.append(_control(ControlKind.SWEEP, position, stated))
    if not parts:
        parts.append(_control(ControlKind.POSITION, position))
    rows: dict[str, Any] = {
        name: pa.chunked_array([part[name] for part in parts]) for name in parts[0]
    }
    count = len(rows["key"])
    rows |= {
        "consumer": pa.repeat(pa.scalar(consumer), count),
        "stream": pa.repeat(pa.scalar(batch.stream), count),
        "ordinal": pa.array(range(first, first + count), pa.int64()),
        "attempt": pa.repeat(pa.scalar(position.attempt, pa.int64()), count),
        "position": pa.concat_arrays([pa.nulls(count - 1, pa.string()), _dumped(position)]),
        "committed_at": pa.repeat(pa.scalar(now_us, _MOMENT), count),
    }
    return pa.table([rows[name] for name in _CHANGES.names], schema=_CHANGES)


def _swept_classes(step: SweepStep) -> frozenset[str] | None:
    """The classes that the sweep may remove; None: all. None at all where the attempt could not
    read something that no list of classes states (A17).
    """
    if any(not hold.entity_class or step.readable is None for hold in step.holds):
        return frozenset()
    if step.readable is None:
        return None
    return step.readable - {hold.entity_class for hold in step.holds}


def _dumped(position: Position) -> pa.Array:
    return pa.array([msgspec.json.encode(position)], pa.string())


def _records(records: Sequence[Record]) -> dict[str, pa.Array]:
    text, envelopes = pa.string(), [record.envelope for record in records]
    stated = read_envelopes(envelopes)
    return {
        "key": pa.array([record.key for record in records], text),
        "kind": pa.array([_KINDS[record.kind] for record in records], text),
        "token": pa.array([record.token for record in records], text),
        "partition": pa.array([record.partition for record in records], text),
        "record_offset": pa.array([record.offset for record in records], pa.int64()),
        "appended_at": pa.array([r.appended_at_us for r in records], pa.int64()).cast(_MOMENT),
        "event_at": parse_timestamps(stated.event_times),
        "class": pa.array([record.entity_class for record in records], text),
        "parent_address": pa.array(stated.parent_addresses, text),
        "whole": pa.array([record.whole for record in records], pa.bool_()),
        "ends": pa.array([record.ends for record in records], pa.bool_()),
        "uuid": pa.array([record.uuid for record in records], text),
        "body": _bodies([record.body for record in records]),
        "envelope": pa.array([envelope or None for envelope in envelopes], text),
    }


def _bodies(bodies: list[bytes]) -> pa.Array:
    """Return the bodies as texts. Where none is missing they are copied in one piece: they are most
    of the bytes of a row.
    """
    if not all(bodies):
        return pa.array([body or None for body in bodies], pa.string())
    ends = array("i", accumulate(map(len, bodies), initial=0))
    made = pa.StringArray.from_buffers(
        len(bodies), pa.py_buffer(ends), pa.py_buffer(b"".join(bodies))
    )
    made.validate(full=True)
    return made


def _control(
    kind: ControlKind, position: Position, stated: Mapping[str, Any] | None = None
) -> dict[str, pa.Array]:
    body = None if stated is None else msgspec.json.encode(stated)
    text, empty = pa.string(), pa.array([""], pa.string())
    return {
        "key": empty,
        "kind": pa.array([kind.value], text),
        "lineage": pa.array([position.lineage], pa.int64()),
        "token": empty,
        "partition": empty,
        "record_offset": pa.array([-1], pa.int64()),
        "appended_at": pa.nulls(1, _MOMENT),
        "event_at": pa.nulls(1, _MOMENT),
        "class": empty,
        "parent_address": pa.nulls(1, text),
        "whole": pa.array([True]),
        "ends": pa.array([False]),
        "uuid": empty,
        "body": pa.array([body], text),
        "envelope": pa.nulls(1, text),
    }


def quarantine_rows(consumer: str, unreadable: Sequence[Unreadable], now_us: int) -> pa.Table:
    """Return rows of `quarantine`. Their texts are for reading, not for comparing."""
    rows = [
        {
            "consumer": consumer,
            "stream": one.stream,
            "reason": _shown(one.reason),
            "token": None if one.token is None else _shown(one.token),
            "received_at": now_us,
            "digest": one.digest,
            "raw": one.raw,
        }
        for one in unreadable
    ]
    return pa.Table.from_pylist(rows, arrow_schema(QUARANTINE))


def fact_rows(
    consumer: str,
    stream: str,
    facts: Sequence[tuple[FactKind, str, int, msgspec.Struct | str | None]],
    now_us: int,
) -> pa.Table:
    """Rows of `stream_facts`: what, name, count, and what is stated or a reason."""
    rows = [
        {
            "consumer": consumer,
            "stream": stream,
            "fact": fact.value,
            "name": name,
            "count": count,
            "body": msgspec.json.encode(body).decode()
            if isinstance(body, msgspec.Struct)
            else body,
            "at": now_us,
        }
        for fact, name, count, body in facts
    ]
    return pa.Table.from_pylist(rows, arrow_schema(FACTS))


def split_storable(records: Sequence[Record]) -> tuple[list[Record], list[Unreadable]]:
    """Split into the records that a table can hold, and the others as entries of the quarantine."""
    fine: list[Record] = []
    others: list[Unreadable] = []
    for record in records:
        try:
            _records([record])
        except (UnicodeError, pa.ArrowException) as error:
            raw = msgspec.json.encode(
                {
                    "entity-key": _shown(record.key),
                    "kind": record.kind.name,
                    "body": record.body.decode(errors="replace"),
                }
            )
            reason = f"a text that no table can hold: {error}"
            others.append(Unreadable(record.stream, raw, reason, record.token))
        else:
            fine.append(record)
    return fine, others


def _shown(text: str) -> str:
    return text.encode(errors="replace").decode()
