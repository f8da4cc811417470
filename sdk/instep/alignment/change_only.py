"""Partial updates of CHANGE_ONLY streams (TR-548 3.8.2.2): which entity each change belongs to, and
the whole records that the changes compose. Pure: a store loads the entities, and keeps those that
were touched.

The specification has not developed CHANGE_ONLY fully. What is assumed here:

- the first statement of a key in an alignment attempt is whole for that key, later ones are merged;
- a part's key begins with the entity's key, or its body names the entity's uuid;
- the composed body is the base with all parts merged into it in log order;
- the end of a part's key takes the part and all under it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from instep.model.json_merge import is_under, merge, prefixes, without
from instep.model.ordering import is_later, supersedes
from instep.model.position import Position
from instep.model.records import Record, RecordType

__all__ = [
    "EntityPart",
    "PartialEntity",
    "PartialUpdates",
    "Tombstone",
    "UnresolvedError",
    "decode_object",
    "names_of",
    "stated_uuid",
]


_objects: Final = msgspec.json.Decoder(
    dict[str, Any],
    # A float has 17 digits, and nothing beyond 1e308.
    float_hook=lambda number: msgspec.Raw(number.encode()),
)


class UnresolvedError(Exception):
    """A change names nothing in the entity, or is no JSON object."""


class EntityPart(msgspec.Struct, frozen=True):
    """The changes of one log key to an entity; `record.body` has all of them merged."""

    record: Record
    lineage: int
    attempt: int


class PartialEntity:
    """One entity: its parts by log key, in the order in which they count. The part under the
    entity's own key is the base.
    """

    def __init__(self, key: str, parts: list[EntityPart]) -> None:
        self.key = key
        self.parts = _in_log_order(parts)

    def state(self, record: Record, position: Position) -> Record | None:
        """Apply a statement and return the whole record of the entity.

        None where a newer one is known (A3). Raises `UnresolvedError`; `RecursionError` for a
        body too deep to merge; the entity is then as before.
        """
        if record.whole:
            record = replace(record, key=self.key)
        stored = self.parts.get(record.key)
        if stored is not None and _is_newer(stored, record, position):
            return None
        decode_object(record.body)
        before = dict(self.parts)
        if record.whole:
            # It states the whole entity, so it contains the changes before it.
            self.parts = {
                key: part for key, part in self.parts.items() if _is_newer(part, record, position)
            }
        elif (
            stored is not None
            and stored.lineage == position.lineage
            and stored.attempt == position.attempt
        ):
            merged = merge(decode_object(stored.record.body), decode_object(record.body))
            record = replace(record, body=msgspec.json.encode(merged))
        # At the end: it has come last.
        self.parts.pop(record.key, None)
        stated = EntityPart(record, position.lineage, position.attempt)
        self.parts = _in_log_order([*self.parts.values(), stated])
        try:
            return self.composed(record, position)
        except RecursionError:
            self.parts = before
            raise

    def end(self, record: Record, position: Position) -> Record | None:
        """Apply the end of the entity."""
        if any(_is_newer(part, record, position) for part in self.parts.values()):
            return None
        self.parts.clear()
        return replace(record, key=self.key, whole=True)

    def end_part(self, record: Record, position: Position, *, ended_before: bool) -> Record | None:
        """Apply the end of a part or sub-tree. Raises `UnresolvedError` where the key names
        neither.
        """
        stored = self.parts.get(record.key)
        if stored is not None and _is_newer(stored, record, position):
            return None
        if stored is None:
            if ended_before:
                return None
            self._cut(record.key)
        self.parts = _in_log_order(
            part
            for key, part in self.parts.items()
            if key == self.key or not (key == record.key or is_under(key, record.key))
        )
        return self.composed(replace(record, kind=RecordType.CREATE_UPDATE, ends=False), position)

    def _cut(self, key: str) -> None:
        base = self.parts.get(self.key)
        path = key[len(self.key) :] if is_under(key, self.key) else key
        left = None if base is None else without(decode_object(base.record.body), path)
        if base is None or left is None:
            raise UnresolvedError(f"the end of {key!r} names nothing in entity {self.key!r}")
        body = msgspec.json.encode(left)
        self.parts[self.key] = EntityPart(
            replace(base.record, body=body), base.lineage, base.attempt
        )

    def prune(self, attempt: int) -> None:
        """Drop the changes that attempts from `attempt` on have not stated; the base stays."""
        self.parts = _in_log_order(
            part for key, part in self.parts.items() if key == self.key or part.attempt >= attempt
        )

    def body(self) -> bytes:
        """The base with all parts merged into it, in log order; verbatim where there is but one."""
        rest = [part.record for key, part in self.parts.items() if key != self.key]
        base = self.parts.get(self.key)
        ordered = rest if base is None else [base.record, *rest]
        if len(ordered) == 1:
            return ordered[0].body
        value: Any = {}
        for record in ordered:
            value = merge(value, decode_object(record.body))
        return msgspec.json.encode(value)

    def composed(self, record: Record, position: Position) -> Record:
        """The whole record that stands for the entity: placed where its newest part is."""
        places = [part.record for part in self.parts.values() if part.lineage == position.lineage]
        newest = places[-1] if places else record
        base = self.parts.get(self.key)
        first = record if base is None else base.record
        return replace(
            record,
            key=self.key,
            token=newest.token,
            partition=newest.partition,
            offset=newest.offset,
            appended_at_us=newest.appended_at_us,
            entity_class=record.entity_class or first.entity_class,
            uuid=record.uuid or first.uuid,
            body=self.body(),
            whole=True,
        )


def _is_newer(part: EntityPart, record: Record, position: Position) -> bool:
    return part.lineage == position.lineage and supersedes(part.record, record)


def _in_log_order(parts: Iterable[EntityPart]) -> dict[str, EntityPart]:
    """Parts that are given in the order of arrival: each after the last one that is not later.

    A fold and no sort, which would need an order: the comparison (A3) can go round in a circle.
    """
    ordered: list[EntityPart] = []
    for part in parts:
        index = len(ordered)
        while index and is_later(ordered[index - 1], part):
            index -= 1
        ordered.insert(index, part)
    return {part.record.key: part for part in ordered}


def decode_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a statement, with fractions and exponents as the provider wrote them: a
    merge adds none and loses no digit. Raises `UnresolvedError` for anything else.
    """
    try:
        return _objects.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnresolvedError(f"the change is no JSON object: {error}") from None


class Tombstone(msgspec.Struct, frozen=True, gc=False):
    """One ended key; `uuid` is empty where the entity's is not known."""

    key: str
    uuid: str
    lineage: int
    attempt: int
    appended_at_us: int


class PartialUpdates:
    """The entities that some records touch. The caller fills in what the store knows of them."""

    def __init__(self) -> None:
        self.entities: set[str] = set()
        """Keys of the entities that exist."""
        self.owner: dict[str, str] = {}
        """Key of a part → key of its entity."""
        self.key_of: dict[str, str] = {}
        """uuid → key of the entity."""
        self.class_of: dict[str, str] = {}
        """Key of an entity → its class."""
        self.ended: dict[str, Tombstone] = {}
        self.new_ends: dict[str, Tombstone] = {}
        """Keys that ended since; the store must keep them."""
        self.touched: dict[str, PartialEntity] = {}
        """The entities with their parts, by key: every possible `target` of a record."""

    def target(self, record: Record) -> str | None:
        """The key of the entity that a record is about; None for one that is not known yet."""
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
        """The whole record after a statement, under the position's lineage and attempt; None where
        the statement changes nothing (A3).

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
            entity = self.touched[target] = PartialEntity(target, [])
        whole = entity.state(record, position)
        self.entities.add(target)
        self.owner[record.key] = target
        # A uuid that only a body states is not kept: it must not matter where a batch ends.
        if record.uuid and self.key_of.get(record.uuid) not in self.entities:
            self.key_of[record.uuid] = target
        return whole

    def _end(self, record: Record, position: Position, target: str | None) -> Record | None:
        entity = None if target is None else self.touched.get(target)
        if target is None or entity is None or not entity.parts:
            return record
        if record.key == target or record.kind is RecordType.CREATE_UPDATE:
            whole = entity.end(record, position)
            if whole is not None:
                self.entities.discard(target)
        else:
            before = self.ended.get(record.key)
            whole = entity.end_part(record, position, ended_before=_still(before, entity, position))
        if whole is not None:
            self.owner.pop(record.key, None)
            end = Tombstone(
                record.key, "", position.lineage, position.attempt, record.appended_at_us
            )
            self.ended[record.key] = self.new_ends[record.key] = end
        return whole


def _still(before: Tombstone | None, entity: PartialEntity, position: Position) -> bool:
    """Whether an end seen before still holds: the base was not stated again after it."""
    if before is None or before.attempt < position.attempt:
        return False
    base = entity.parts.get(entity.key)
    return base is None or base.record.appended_at_us <= before.appended_at_us


def names_of(records: Collection[Record]) -> set[str]:
    """The keys and uuids of all entities and parts that these records may be about."""
    names = {record.key for record in records}
    uuids = {uuid for record in records if (uuid := stated_uuid(record))}
    return names.union(uuids, *map(prefixes, names))


def stated_uuid(record: Record) -> str:
    """The uuid of the entity: of the record, else of its body; empty where neither states one."""
    if record.uuid or not record.body:
        return record.uuid
    try:
        uuid = decode_object(record.body).get("uuid")
    except UnresolvedError:
        return ""
    return uuid if isinstance(uuid, str) else ""
