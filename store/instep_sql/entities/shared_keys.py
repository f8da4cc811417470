"""Keeps entities of two classes apart that a stream states under one entity-key (A13).

The key is unique in a stream (TR-548 3.10), so this is a deviation, and it is counted. But a mixed
stream that names its entities by their uuids, where a device and a node have one, states two
entities. The class that was met first has the key; the rows of any other have `KEY#CLASS`.

Streams whose keys are unique pay nothing: an upsert leaves a row of another class as it is, and
only a commit that has written fewer rows than it stated looks for the reason. Where that is a
shared key, the transaction is run again, and from then on each commit of the stream looks first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import compress
from typing import Final

from msgspec.structs import replace
from sqlalchemy import text

from instep.model.columns import RecordColumns
from instep.model.records import Record, RecordType
from instep_sql.engine.dialect import json_array
from instep_sql.entities.streams import StreamTransaction
from instep_sql.entities.tombstones import Tombstone, add_tombstones, find_tombstones

__all__ = ["KEY_SHARED", "SharedKeyError", "are_met", "separate", "shared_key"]

KEY_SHARED: Final = "key-shared"
_FOUND: Final = "SELECT key, class FROM instep_entity WHERE stream_no = :no AND key IN {members}"
_ANSWERED: Final = "DELETE FROM instep_tombstone WHERE stream_no = :no AND key = :key"


class SharedKeyError(Exception):
    """Two classes were met under one key."""


def shared_key(key: str, entity_class: str) -> str:
    """The key of an entity whose own key is that of an entity of another class (A13)."""
    return f"{key}#{entity_class}"


def _are_within(records: Sequence[Record]) -> bool:
    """Whether records of one batch state two classes under one key."""
    if isinstance(records, RecordColumns):
        keys, classes = records.keys, records.classes
        if len(set(classes)) < 2:
            return False
    else:
        keys = [one.key for one in records]
        if len(set(keys)) == len(keys):
            return False
        classes = [one.entity_class for one in records]
    last = dict(zip(keys, classes, strict=True))
    if list(map(last.__getitem__, keys)) == list(classes):
        return False
    # An end may state no class.
    of: dict[str, str] = {}
    return any(
        of.setdefault(key, entity_class) != entity_class
        for key, entity_class in zip(keys, classes, strict=True)
        if entity_class
    )


def are_met(tx: StreamTransaction, records: Sequence[Record]) -> bool:
    """Whether a record states another class than the row that has its key."""
    stored = _classes(tx, {one.key for one in records})
    return any(_is_of_another_class(one, stored) for one in records if not one.ends)


def _end_another(tx: StreamTransaction, records: Sequence[Record]) -> bool:
    """Whether a key that ends with these records is that of a row of another class than they state.
    The row would be gone before `are_met` could see it.
    """
    if isinstance(records, RecordColumns):
        ended = set(compress(records.keys, records.ends))
    else:
        ended = {one.key for one in records if one.ends}
    if not ended:
        return False
    stored = _classes(tx, ended)
    return bool(stored) and any(_is_of_another_class(one, stored) for one in records)


def _is_of_another_class(record: Record, stored: Mapping[str, str]) -> bool:
    """Whether it states another class than the row that has its key (`stored`: key → class)."""
    known = stored.get(record.key, "")
    return bool(record.entity_class and known) and known != record.entity_class


def separate(
    tx: StreamTransaction, records: Sequence[Record], *, first: bool
) -> tuple[Sequence[Record], int] | None:
    """The records under the keys of the rows of their classes, and how many have another key than
    the stream states. None: unless they are to be separated `first`, neither the stream nor the
    records are known to have a key of two classes.

    An end that states a class ends the entity of that class. A header alone is the second half of
    such an end, where one came before it (A4); else it ends the entity that has the key, or the
    only one that is left.
    """
    connection, stream = tx.connection, tx.stream
    apart = first or stream.shared_classes or _are_within(records) or _end_another(tx, records)
    if not apart:
        return None
    stream.shared_classes |= {one.entity_class for one in records if one.entity_class}
    keys = {one.key for one in records}
    names = keys | {shared_key(key, of) for key in keys for of in stream.shared_classes}
    rows = _classes(tx, names)
    found = find_tombstones(connection, tx.dialect, stream.no, names)
    ended = {one.key: one.appended_at_us for one in found}
    separated: list[Record] = []
    moved = 0
    for record in records:
        key = _key_of(record, rows, ended, stream.shared_classes)
        if record.ends:
            rows.pop(key, None)
            if record.entity_class or record.kind is RecordType.DELETE:
                ended[key] = record.appended_at_us
                end = Tombstone(key, "", 0, stream.position.attempt, record.appended_at_us)
                add_tombstones(tx, [end])
            elif ended.pop(key, None) is not None:
                connection.execute(text(_ANSWERED), {"no": stream.no, "key": key})
        else:
            rows[key] = record.entity_class
            if ended.pop(key, None) is not None:
                # It was made anew: what ends it next is no second half.
                connection.execute(text(_ANSWERED), {"no": stream.no, "key": key})
        moved += key != record.key
        separated.append(record if key == record.key else replace(record, key=key))
    return separated, moved


def _key_of(
    record: Record,
    rows: Mapping[str, str],
    ended: Mapping[str, int],
    classes: Collection[str],
) -> str:
    key, entity_class = record.key, record.entity_class
    if not entity_class:
        halves = [shared_key(key, of) for of in sorted(classes) if shared_key(key, of) in ended]
        if record.kind is RecordType.TOMBSTONE and (halves or key in ended):
            return halves[0] if halves else key
        others = [shared_key(key, of) for of in sorted(classes) if shared_key(key, of) in rows]
        repeated = record.appended_at_us == ended.get(key)
        return key if key in rows or repeated or len(others) != 1 else others[0]
    own = shared_key(key, entity_class)
    if own in rows:
        return own
    return key if rows.get(key, entity_class) in ("", entity_class) else own


def _classes(tx: StreamTransaction, keys: Collection[str]) -> dict[str, str]:
    query = text(_FOUND.format(members=tx.dialect.members("keys")))
    rows = tx.connection.execute(query, {"no": tx.no, "keys": json_array(keys)})
    return {row[0]: row[1] for row in rows}
