"""CHANGE_ONLY streams (TR-548 3.8.2.2): which entity each change belongs to, and the whole
statements that the changes amount to. Pure: a store loads what is known, and keeps what is touched.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from msgspec.structs import replace

from instep.composition import Composition, UnresolvedError, decode_object
from instep.merge import prefixes
from instep.position import Position
from instep.records import Kind, Record

__all__ = ["Composing", "Ended", "names_of", "stated_uuid"]


class Ended(msgspec.Struct, frozen=True, gc=False):
    """One ended key; `uuid` is empty where the entity's is not known."""

    key: str
    uuid: str
    lineage: int
    attempt: int
    appended_at_us: int


class Composing:
    """The entities that some records touch; empty until what is known of them is put in."""

    def __init__(self) -> None:
        self.entities: set[str] = set()
        """Keys of the entities that exist."""
        self.owner: dict[str, str] = {}
        """Key of a part → key of its entity."""
        self.key_of: dict[str, str] = {}
        """uuid → key of the entity."""
        self.class_of: dict[str, str] = {}
        """Key of an entity → its class."""
        self.ended: dict[str, Ended] = {}
        self.new_ends: dict[str, Ended] = {}
        """What ended since; to be remembered."""
        self.touched: dict[str, Composition] = {}
        """The entities with their parts, by key: all that a record's `target` may be."""

    def target(self, record: Record) -> str | None:
        """The key of the entity a record speaks of; None for one that is not known yet."""
        key = record.key
        if key in self.entities:
            return key
        if key in self.owner:
            return self.owner[key]
        uuid = stated_uuid(record)
        if uuid:
            known = self.key_of.get(uuid, uuid)
            return known if known in self.entities else None
        return next((prefix for prefix in prefixes(key) if prefix in self.entities), None)

    def apply(self, record: Record, position: Position) -> Record | None:
        """The whole record that a statement amounts to, under the position's lineage and attempt;
        None where it changes nothing (A3).

        Raises `UnresolvedError` for a change that cannot be joined to anything, and
        `RecursionError` for a body too deep to merge; what is known is then as before.
        """
        whole = self._applied(record, position)
        if whole is not None and not whole.entity_class:
            # The end of a part may be a header alone.
            return replace(whole, entity_class=self.class_of.get(whole.key, ""))
        return whole

    def _applied(self, record: Record, position: Position) -> Record | None:
        target = self.target(record)
        if record.ends:
            return self._end(record, position, target)
        if target is None:
            target = record.key
        entity = self.touched.get(target)
        if entity is None:
            entity = self.touched[target] = Composition(target, [])
        whole = entity.state(record, position)
        self.entities.add(target)
        self.owner[record.key] = target
        # What only a body says is not kept: it must not matter where a batch ends.
        if record.uuid and self.key_of.get(record.uuid) not in self.entities:
            self.key_of[record.uuid] = target
        return whole

    def _end(self, record: Record, position: Position, target: str | None) -> Record | None:
        entity = None if target is None else self.touched.get(target)
        if target is None or entity is None or not entity.parts:
            return record
        if record.key == target or record.kind is Kind.CREATE_UPDATE:
            whole = entity.end(record, position)
            if whole is not None:
                self.entities.discard(target)
        else:
            before = self.ended.get(record.key)
            whole = entity.end_part(record, position, ended_before=_still(before, entity, position))
        if whole is not None:
            self.owner.pop(record.key, None)
            end = Ended(record.key, "", position.lineage, position.attempt, record.appended_at_us)
            self.ended[record.key] = self.new_ends[record.key] = end
        return whole


def _still(before: Ended | None, entity: Composition, position: Position) -> bool:
    """Whether an end seen before still holds: the base was not stated again after it."""
    if before is None or before.attempt < position.attempt:
        return False
    base = entity.parts.get(entity.key)
    return base is None or base.record.appended_at_us <= before.appended_at_us


def names_of(records: Collection[Record]) -> set[str]:
    """The keys and uuids of whatever entities and parts these records may speak of."""
    names = {record.key for record in records}
    uuids = {uuid for record in records if (uuid := stated_uuid(record))}
    return names.union(uuids, *map(prefixes, names))


def stated_uuid(record: Record) -> str:
    """The uuid a statement names its entity by, from the body where the record was not given it."""
    if record.uuid or not record.body:
        return record.uuid
    try:
        uuid = decode_object(record.body).get("uuid")
    except UnresolvedError:
        return ""
    return uuid if isinstance(uuid, str) else ""
