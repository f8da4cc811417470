"""One CHANGE_ONLY stream (TR-548 3.8.2.2): rows of `changes` in, whole statements out. Pure.

It decides as the SQL store does, by `instep.alignment.change_only`. A composed row is final: its
place is the newest of its entity in the lineage, so that no later comparison by rule A3 ignores it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from instep.alignment.change_only import (
    EntityPart,
    PartialEntity,
    PartialUpdates,
    UnresolvedError,
    decode_object,
    is_placed,
    names_of,
    with_place,
)
from instep.model.json_merge import is_same, prefixes
from instep.model.position import Position
from instep.model.records import Record, RecordType

__all__ = ["UNRESOLVED", "Composer", "Row", "names_in"]

UNRESOLVED: Final = "UNRESOLVED"
"""`kind` of a change that could not be joined to anything; `body` says why."""

Row = dict[str, Any]
"""A row of `changes` or `composed` by column, times in microseconds since 1970; and `name`, by
which its entity is known to the composing.
"""


_ENDED: Final = msgspec.Raw(b"null")
"""In place of the body of a part that has ended."""


class _Part(msgspec.Struct, array_like=True):
    key: str
    token: str
    partition: str
    offset: int
    appended_at_us: int
    lineage: int
    attempt: int
    body: msgspec.Raw


class _State(msgspec.Struct):
    """The state of an entity that is kept between two segments."""

    name: str
    aliases: list[str]
    uuids: list[str]
    parts: list[_Part]


_decode: Final = msgspec.json.Decoder(_State).decode


def names_in(rows: Iterable[Row]) -> set[str]:
    """The names under which the entities of these rows of `changes` may be known."""
    return names_of([_record(row) for row in rows])


class _Names(msgspec.Struct):
    """The keys and uuids by which an entity is known, beside its name."""

    aliases: set[str] = msgspec.field(default_factory=set)
    """Keys that mean all of it."""
    uuids: set[str] = msgspec.field(default_factory=set)
    parts: set[str] = msgspec.field(default_factory=set)


class Composer:
    """The entities of one stream, or those of them that some rows state.

    What comes out does not depend on how often it was kept and loaded between.
    """

    def __init__(self) -> None:
        self._composing = PartialUpdates()
        self._last: dict[str, Row] = {}
        self._names: dict[str, _Names] = {}
        self._alias: dict[str, str] = {}

    @property
    def rows(self) -> Iterable[Row]:
        """The entities that exist, as their last statements."""
        return self._last.values()

    def load(self, row: Row) -> None:
        """Load an entity from its last row in `composed`."""
        state = _decode(row["state"])
        name, known = state.name, self._composing
        parts = [_loaded(part) for part in state.parts]
        known.touched[name] = PartialEntity(name, parts)
        row["name"] = name
        known.entities.add(name)
        known.owner.update((part.record.key, name) for part in parts if not part.record.ends)
        for uuid in state.uuids:
            known.add(name, row["class"], uuid)
        self._alias.update(dict.fromkeys(state.aliases, name))
        self._names[name] = _Names(set(state.aliases), set(state.uuids))
        self._settle(name, row)

    def _settle(self, name: str, row: Row) -> None:
        """Store this row as the last one of an entity that exists."""
        known, names = self._composing, self._names.setdefault(name, _Names())
        known.class_of[name] = row["class"]
        self._last[name] = row
        parts = set(known.touched[name].parts)
        for gone in names.parts - parts:
            known.owner.pop(gone, None)
        names.parts = parts

    def apply(self, row: Row) -> Row | None:
        """Apply the row of a record. Returns the row for `composed`; None: it changes nothing."""
        position = Position(lineage=row["lineage"], attempt=row["attempt"])
        record = self._named(_record(row))
        target = self._composing.target(record)
        try:
            whole = self._composing.apply(record, position)
        except (UnresolvedError, RecursionError) as error:
            unresolved = {"kind": UNRESOLVED, "body": str(error), "ends": False}
            return {**row, **unresolved, "id": row["key"], "name": ""}
        if whole is None:
            if record.token or record.ends or target is None:
                return None
            # A baseline shows that it exists, and keeps the content.
            whole = self._composing.touched[target].composed(record, position)
        return self._stated(row, record, whole)

    def _stated(self, row: Row, record: Record, whole: Record) -> Row | None:
        name = whole.key
        before = self._last.get(name)
        if before is None and whole.ends:
            return None
        if before is None:
            key = row["key"] if record.key == name else name
            own = {"id": record.uuid or name, "uuid": record.uuid, "key": key}
        else:
            own = {"id": before["id"], "uuid": before["uuid"], "key": before["key"]}
            if record.key == name and record.token:
                own["key"] = row["key"]
        at_us = max(row["appended_at"], whole.appended_at_us)
        if before is not None and before["lineage"] == row["lineage"]:
            at_us = max(at_us, before["appended_at"])
        stated: Row = {
            **row,
            **own,
            "name": name,
            "kind": whole.kind.name,
            "partition": "",
            "record_offset": -1,
            "appended_at": at_us,
            "class": record.entity_class or ("" if before is None else before["class"]),
            "ends": whole.ends,
            "body": whole.body.decode() if whole.body else None,
        }
        if row["kind"] == RecordType.CHANGE.name:
            stated |= _place_of(before, row)
        if before is not None and _repeats(before, stated):
            stated["body"] = before["body"]
        if whole.ends:
            self._forget(name)
            return stated
        self._settle(name, stated)
        names = self._names[name]
        if record.uuid and self._composing.named(record.uuid, record.entity_class) == name:
            names.uuids.add(record.uuid)
        return stated

    def _named(self, record: Record) -> Record:
        """The record under the name of its entity, where the stream has another key for what a
        baseline has shown by its uuid.
        """
        known = self._composing
        for key in (record.key, *prefixes(record.key)) if self._alias else ():
            if key in self._alias:
                return replace(record, key=self._alias[key] + record.key[len(key) :])
        if not record.uuid or record.key in known.owner:
            return record
        name = known.named(record.uuid, record.entity_class)
        if name is None or name == record.key or name not in known.entities:
            return record
        base = known.touched[name].parts.get(name)
        if base is None or base.record.token:
            return record  # a part: the log has stated the entity under another key
        above = prefixes(record.key)
        if any(prefix in known.entities or prefix == record.uuid for prefix in above):
            return record
        self._alias[record.key] = name
        self._names[name].aliases.add(record.key)
        return replace(record, key=name)

    def _forget(self, name: str) -> None:
        known, names = self._composing, self._names.pop(name)
        del self._last[name], known.touched[name]
        known.forget(name, names.uuids)
        for keys, of in ((names.parts, known.owner), (names.aliases, self._alias)):
            for key in keys:
                if of.get(key) == name:
                    del of[key]

    def remove(self, attempt: int, readable: Iterable[str] | None) -> None:
        """Remove the entities that no attempt from `attempt` on has stated; those of classes that
        are not readable stay.
        """
        unmarked = [name for name, row in self._last.items() if row["attempt"] < attempt]
        for name in unmarked:
            if readable is None or self._last[name]["class"] in readable:
                self._forget(name)
            else:
                self._last[name]["attempt"] = attempt

    def prune(self, attempt: int, ordinal: int, began_us: int) -> list[Row]:
        """Drop the changes that attempts from `attempt` on have not stated, of entities that they
        have; the rows of these as of `ordinal`, and of the time when the attempt began: what it
        does not state was not in the log then.
        """
        pruned: list[Row] = []
        for name, row in list(self._last.items()):
            entity = self._composing.touched[name]
            if row["attempt"] < attempt or (oldest := _oldest(entity)) is None:
                continue
            if oldest < attempt:
                entity.prune(attempt)
                stated = {**row, "ordinal": ordinal, "body": entity.body().decode()}
                if _repeats(row, stated):
                    stated["body"] = row["body"]
                else:
                    stated["appended_at"] = max(row["appended_at"], began_us)
                self._settle(name, stated)
                pruned.append(stated)
        return pruned

    def finish(self, rows: Iterable[Row]) -> None:
        """Add the state of each entity to its last row among these, so that a later segment can
        load it.
        """
        for row in rows:
            name = row["name"]
            if self._last.get(name) is not row:
                row |= {"last": False, "names": None, "oldest_attempt": None, "state": None}
                continue
            entity, names = self._composing.touched[name], self._names[name]
            state = _State(
                name,
                sorted(names.aliases),
                sorted(names.uuids),
                [_kept(part) for part in entity.parts.values()],
            )
            row |= {
                "last": True,
                "names": sorted({name, *names.aliases, *names.uuids, *entity.parts}),
                "oldest_attempt": _oldest(entity),
                "state": msgspec.json.encode(state).decode(),
            }


def _place_of(before: Row | None, row: Row) -> Row:
    """The place of the entity, where a CHANGE of it states none."""
    stated = (row["envelope"] or "").encode()
    if before is None or not before["envelope"] or is_placed(stated):
        return {}
    envelope = with_place(stated, before["envelope"].encode())
    return {"envelope": envelope.decode(), "parent_address": before["parent_address"]}


def _repeats(before: Row, row: Row) -> bool:
    """Whether a row states again what the one before it has stated, though perhaps with other
    spaces and elements in another order, as a merge has them: rows without offsets are compared by
    what they state.
    """
    places = [(one["lineage"], one["appended_at"], one["ends"]) for one in (before, row)]
    if places[0] != places[1] or before["body"] is None or row["body"] is None:
        return False
    one, other = (decode_object(text["body"].encode()) for text in (before, row))
    try:
        return is_same(one, other)
    except RecursionError:
        return bool(before["body"] == row["body"])


def _oldest(entity: PartialEntity) -> int | None:
    """Return the first attempt that stated one of the changes. None: there are no changes."""
    return min((p.attempt for key, p in entity.parts.items() if key != entity.key), default=None)


def _loaded(part: _Part) -> EntityPart:
    ends = part.body == _ENDED
    record = Record(
        "",
        part.key,
        RecordType.DELETE if ends else RecordType.CREATE_UPDATE,
        part.token,
        part.appended_at_us,
        part.partition,
        part.offset,
        body=b"" if ends else bytes(part.body),
    )
    return EntityPart(record, part.lineage, part.attempt)


def _kept(part: EntityPart) -> _Part:
    r = part.record
    return _Part(
        *(r.key, r.token, r.partition, r.offset, r.appended_at_us, part.lineage, part.attempt),
        body=_ENDED if r.ends else msgspec.Raw(r.body),
    )


def _record(row: Row) -> Record:
    return Record(
        "",
        row["key"],
        RecordType[row["kind"]],
        row["token"],
        row["appended_at"],
        row["partition"],
        row["record_offset"],
        row["class"],
        (row["body"] or "").encode(),
        ends=row["ends"],
        uuid=row["uuid"],
        whole=row["whole"],
    )
