"""The rows that a commit writes of its records, and the keys that it ends."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import compress
from operator import not_
from typing import Final

import msgspec

from instep.model.columns import RecordColumns
from instep.model.ordering import rounds_per_key
from instep.model.records import Record
from instep.model.storable import LONGEST_UUID_CHARS
from instep_sql.engine.dialect import ColumnRows, EndRow, EntityRow

__all__ = ["write_rounds"]

WriteRound = tuple[Sequence[EntityRow], list[EndRow]]
"""Rows of entities to write, and rows of keys that end. No key is in a round twice."""


def write_rounds(
    records: Sequence[Record], no: int, lineage: int, *, composed: bool
) -> list[WriteRound]:
    """The rows that a commit writes, in rounds, so that each record is applied by rule A3.

    `composed`: rule A3 was already applied part by part (CHANGE_ONLY), and the last record of each
    entity counts.
    """
    if not isinstance(records, RecordColumns):
        rounds = [{one.key: one for one in records}] if composed else rounds_per_key(records)
        return [_of_records(one.values(), no, lineage, composed=composed) for one in rounds]
    # Without a loop over single records where no entity ends (the usual case).
    last = records.latest_records()
    rows: Sequence[EntityRow] = ColumnRows(
        last.keys,
        last.classes,
        last.tokens,
        [last.partition] * len(last.keys),
        last.offsets,
        last.appended_at_us,
        stated_uuids(last.classes, last.bodies, last.uuids),
        last.envelopes,
        last.bodies,
    )
    if True not in last.ends:
        return [(rows, [])]
    ended = last.picked([index for index, ends in enumerate(last.ends) if ends])
    living = list(compress(rows, map(not_, last.ends)))
    return [(living, [_end(r, no, lineage) for r in ended])]


def stated_uuids(
    classes: Sequence[str], bodies: Sequence[bytes | bytearray], uuids: Sequence[str]
) -> Sequence[str]:
    """The uuid that each body states, where the source has not read it.

    Entities of one class have a uuid or have none, so only the first body of each class is looked
    into: alarms, which have none, cost nothing.
    """
    if any(uuids):
        return uuids

    def of_class(name: str) -> Iterator[bytes | bytearray]:
        return (body for of, body in zip(classes, bodies, strict=True) if of == name and body)

    named = {name for name in set(classes) if _uuid_of(next(of_class(name), b""))}
    if not named:
        return uuids
    return [
        _uuid_of(body) if name in named else "" for name, body in zip(classes, bodies, strict=True)
    ]


def _uuid_of(body: bytes | bytearray) -> str:
    found = _AT_THE_BEGINNING(body)
    if found is not None:
        return found[1].decode()
    try:
        uuid = _stated(body).uuid
    except msgspec.MsgspecError:
        return ""
    return "" if "\0" in uuid or len(uuid) > LONGEST_UUID_CHARS else uuid


class _Stated(msgspec.Struct):
    uuid: str = ""


_stated: Final = msgspec.json.Decoder(_Stated).decode
_AT_THE_BEGINNING: Final = re.compile(rb'\{"uuid":"([\w-]{1,255})"', re.ASCII).match


def _of_records(
    records: Collection[Record], no: int, lineage: int, *, composed: bool
) -> WriteRound:
    living = [r for r in records if not r.ends]
    uuids: Sequence[str] = [r.uuid for r in living]
    # Where there are some, all have been read; and so they are where parts were composed.
    if not (composed or any(uuids)):
        uuids = stated_uuids([r.entity_class for r in living], [r.body for r in living], uuids)
    upserts: list[EntityRow] = [
        (
            r.key,
            r.entity_class,
            r.token,
            r.partition,
            r.offset,
            r.appended_at_us,
            uuid,
            r.envelope,
            r.body,
        )
        for r, uuid in zip(living, uuids, strict=True)
    ]
    return upserts, [_end(r, no, lineage) for r in records if r.ends]


def _end(r: Record, no: int, lineage: int) -> EndRow:
    return no, r.key, lineage, r.offset, r.partition, r.offset, r.appended_at_us
