"""Partial updates of CHANGE_ONLY streams (TR-548 3.8.2.2): which entity each change belongs to, and
the whole records that the changes compose. Pure: a store loads the entities, and keeps those that
were touched.

The specification has not developed CHANGE_ONLY fully. What is assumed here:

- the first statement of a key in an alignment attempt is whole for that key, later ones are merged;
  where the first one is older than what is stored, the log is not compacted, and all are merged;
  where a baseline has stated every entity, a change may have the key of its entity (3.8.2.2 asks
  for another one in compacted logs only), and all are merged;
- a part's key begins with the entity's key, or its body names the entity's uuid;
- a part may come before its base: a log from which all but the last record of each key is compacted
  has it there, where the base was stated again; where a baseline has stated every entity, a change
  of one that is not known makes none: it has ended since (3.8.1.2);
- another instance may use other keys (3.10, ST-4.2): what its log states first of an entity, under
  a key of its own, is the entity there, and the end of that key is its end;
- the composed body is the base with all parts merged into it in log order;
- a CHANGE (v3.2, 5.2) is about the entity as a whole, under whatever key: it is merged into what is
  known of it, whichever attempt or log stated that, and each list in it is entire; of an entity
  that is not known it makes none (`unknown_entities`), and behind the end of its key it is nothing;
- the end of a part's key takes the part and all under it; a statement from before it changes
  nothing, when a log is read again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from instep.model.entities import folded_uuid
from instep.model.json_merge import is_under, merge, prefixes, without
from instep.model.ordering import is_later, supersedes
from instep.model.position import Position
from instep.model.records import Record, RecordType

__all__ = [
    "ENDED_PARTS",
    "EntityPart",
    "PartialEntity",
    "PartialUpdates",
    "UnresolvedError",
    "decode_object",
    "is_placed",
    "names_of",
    "stated_uuid",
    "with_place",
]


ENDED_PARTS: Final = 100
"""So many ends of parts of one entity are remembered, until a sweep of which the attempt has not
read them. Of older ones, what was stated before may come back until the end is read again."""
_objects: Final = msgspec.json.Decoder(
    dict[str, Any],
    # A float has 17 digits, and nothing beyond 1e308.
    float_hook=lambda number: msgspec.Raw(number.encode()),
)


_PLACE_MEMBER: Final = "parent-address"
_PLACE: Final = f'"{_PLACE_MEMBER}"'.encode()
_Members = dict[str, msgspec.Raw]
_members: Final = msgspec.json.Decoder(_Members).decode


class UnresolvedError(Exception):
    """A change names nothing in the entity, or is no JSON object."""


class EntityPart(msgspec.Struct, frozen=True):
    """The changes of one log key to an entity; `record.body` has all of them merged. Where the key
    has ended, `record.ends`, and there is no body.
    """

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
        is_change = record.kind is RecordType.CHANGE
        if record.whole or is_change:
            record = replace(record, key=self.key)
        stored = self.parts.get(record.key)
        if self._is_outdated(record, position):
            return self._read_again(record, position)
        decode_object(record.body)
        with self._undone_on_error():
            for part in self.parts.values():
                if part.record.ends and _is_newer(part, record, position):
                    record = self._cut(record, part.record.key) or record
            if record.whole or is_change:
                # It states the whole entity, or becomes it: so it contains the changes before it.
                newer = {k: p for k, p in self.parts.items() if _is_newer(p, record, position)}
                if is_change:
                    older = [part for key, part in self.parts.items() if key not in newer]
                    record = _changed(PartialEntity(self.key, older), record)
                self.parts = newer
            elif (
                stored is not None
                and not stored.record.ends
                and _is_of_this_reading(stored, position)
            ):
                merged = merge(decode_object(stored.record.body), decode_object(record.body))
                record = replace(record, body=msgspec.json.encode(merged))
            self._put(EntityPart(record, position.lineage, position.attempt))
            return self.composed(record, position)

    def _read_again(self, record: Record, position: Position) -> Record | None:
        """Mark what is stored of a key as read in the attempt, though the statement is older: so
        the next one is merged.
        """
        stored = self.parts.get(record.key)
        if stored is None or stored.record.ends or stored.attempt == position.attempt:
            return None
        if not _is_newer(stored, record, position):
            return None
        self.parts[record.key] = replace(stored, attempt=position.attempt)
        return self.composed(record, position)

    def is_named(self, key: str, position: Position) -> bool:
        """Whether a key of the log is that of the entity, and not of a part of it."""
        base = self.parts.get(self.key)
        if key == self.key or (base is not None and base.lineage == position.lineage):
            return key == self.key
        ours = [name for name, part in self.parts.items() if part.lineage == position.lineage]
        return bool(ours) and ours[0] == key and not self.parts[key].record.ends

    def end(self, record: Record, position: Position) -> Record | None:
        """Apply the end of the entity. It leaves what was stated after it: an entity that has its
        key now. None where it changes nothing.
        """
        left = {k: part for k, part in self.parts.items() if _is_newer(part, record, position)}
        if _states_nothing(left.values()):
            self.parts = {}
            return replace(record, key=self.key, whole=True)
        if len(left) == len(self.parts):
            return None
        self.parts = left
        return self.composed(_statement(record), position)

    def end_part(self, record: Record, position: Position) -> Record | None:
        """Apply the end of a part or sub-tree. None where it has ended already, and where a newer
        statement is known. Raises `UnresolvedError` where the key names neither.
        """
        if self._is_outdated(record, position):
            return None
        ended = self.parts.get(record.key)
        if ended is not None and not ended.record.ends:
            ended = None
        left: dict[str, EntityPart] = {}
        is_known = False
        for key, part in self.parts.items():
            if part is ended:
                continue
            if _is_newer(part, record, position):
                left[key] = part
            elif key != self.key and (key == record.key or is_under(key, record.key)):
                is_known = True
            elif not part.record.ends and (cut := self._cut(part.record, record.key)):
                is_known = True
                left[key] = replace(part, record=cut)
            else:
                left[key] = part
        if not is_known and ended is None:
            raise UnresolvedError(f"the end of {record.key!r} names nothing in entity {self.key!r}")
        if _states_nothing(left.values()):
            # It was known by this part alone: an entity that was there before.
            self.parts = {}
            return replace(record, key=self.key, whole=True)
        whole = _statement(record)
        if not is_known and ended is not None and ended.lineage == position.lineage:
            # The same end once more, such as the TOMBSTONE after the DELETE.
            if ended.attempt == position.attempt:
                return None
            record = ended.record
        with self._undone_on_error():
            self.parts = left
            record = replace(record, body=b"")
            self._put(EntityPart(record, position.lineage, position.attempt))
            return self.composed(whole, position)

    def _cut(self, record: Record, key: str) -> Record | None:
        """The record without the sub-tree that the key of its end names; None where it has none."""
        path = key[len(self.key) :] if is_under(key, self.key) else key
        left = without(decode_object(record.body), path)
        return None if left is None else replace(record, body=msgspec.json.encode(left))

    @contextmanager
    def _undone_on_error(self) -> Iterator[None]:
        before = self.parts
        try:
            yield
        except (RecursionError, UnresolvedError):
            self.parts = before
            raise

    def _is_outdated(self, record: Record, position: Position) -> bool:
        """Whether a newer statement of the key is known, or a newer end of what it is under."""
        return any(
            _is_newer(part, record, position)
            for key, part in self.parts.items()
            if key == record.key or (part.record.ends and is_under(record.key, key))
        )

    def _put(self, part: EntityPart) -> None:
        # At the end: it has come last.
        others = [one for key, one in self.parts.items() if key != part.record.key]
        ended = [one.record.key for one in others if one.record.ends]
        if part.record.ends and len(ended) >= ENDED_PARTS:
            others = [one for one in others if one.record.key != ended[0]]
        self.parts = _in_log_order([*others, part])

    def prune(self, attempt: int) -> None:
        """Drop the changes that attempts from `attempt` on have not stated; the base stays, unless
        it is of another log, and this one states the entity under a key of its own.
        """
        stated = [part for part in self.parts.values() if part.attempt >= attempt]
        base = self.parts.get(self.key)
        if base is not None and base not in stated:
            living = [part for part in stated if not part.record.ends]
            if not any(part.lineage != base.lineage for part in living):
                stated.insert(0, base)
        self.parts = _in_log_order(stated)

    def body(self) -> bytes:
        """The base with all parts merged into it, in log order; verbatim where there is but one."""
        rest = [
            part.record
            for key, part in self.parts.items()
            if key != self.key and not part.record.ends
        ]
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
            kind=RecordType.CREATE_UPDATE,
            token=newest.token,
            partition=newest.partition,
            offset=newest.offset,
            appended_at_us=newest.appended_at_us,
            entity_class=record.entity_class or first.entity_class,
            uuid=record.uuid or first.uuid,
            body=self.body(),
            whole=True,
        )


def _changed(entity: PartialEntity, change: Record) -> Record:
    """The CHANGE, with the entity as it stands after it."""
    body = change.body
    if not _states_nothing(entity.parts.values()):
        before = decode_object(entity.body())
        body = msgspec.json.encode(merge(before, decode_object(body), entire_lists=True))
    return replace(change, kind=RecordType.CREATE_UPDATE, body=body)


def _is_of_this_reading(part: EntityPart, position: Position) -> bool:
    """Whether the attempt has stated the part, or a baseline has. A lineage below 0 is that of one
    delivery, which came in order on the connection of the attempt (A21).
    """
    same_log = part.lineage == position.lineage or min(part.lineage, position.lineage) < 0
    return not part.record.token or (same_log and part.attempt == position.attempt)


def _states_nothing(parts: Iterable[EntityPart]) -> bool:
    return all(part.record.ends for part in parts)


def _statement(record: Record, *, ends: bool = False) -> Record:
    """The end of something in an entity, or a CHANGE, as a statement about the entity."""
    return replace(record, kind=RecordType.CREATE_UPDATE, ends=ends)


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


class PartialUpdates:
    """The entities that some records touch. The caller fills in what the store knows of them."""

    def __init__(self) -> None:
        self.entities: set[str] = set()
        """Keys of the entities that exist."""
        self.owner: dict[str, str] = {}
        """Key of a part → key of its entity."""
        self._key_of: dict[str, dict[str, str]] = {}
        """uuid, as uuids compare → class → key of the entity (A13)."""
        self.class_of: dict[str, str] = {}
        """Key of an entity → its class."""
        self.touched: dict[str, PartialEntity] = {}
        """The entities with their parts, by key: all that a record may be about."""
        self.changed: set[str] = set()
        """Keys of the entities whose parts have changed."""
        self.knows_all = False
        """Whether a baseline has stated every entity that the log does not state."""
        self.unknown: dict[str, list[Record]] = {}
        """By key, CHANGEs of entities that are neither known nor have ended since."""
        self._ended: set[str] = set()

    def target(self, record: Record) -> str | None:
        """The key of the entity that a record is about; None for one that is not known yet."""
        key = record.key
        if key in self.entities:
            return key
        if key in self.owner:
            return self.owner[key]
        uuid = stated_uuid(record)
        if uuid:
            return self.named(uuid, record.entity_class)
        return next((prefix for prefix in prefixes(key) if prefix in self.entities), None)

    def add(self, key: str, entity_class: str, uuid: str) -> None:
        """Note an entity that exists, by its key and, where it has one, its uuid."""
        self.entities.add(key)
        self.class_of[key] = entity_class
        if uuid:
            self._key_of.setdefault(folded_uuid(uuid), {})[entity_class] = key

    def forget(self, key: str, uuids: Iterable[str]) -> None:
        """An entity that had these uuids does not exist any more."""
        self.entities.discard(key)
        self.class_of.pop(key, None)
        for uuid in map(folded_uuid, uuids):
            left = {of: one for of, one in self._key_of.pop(uuid, {}).items() if one != key}
            if left:
                self._key_of[uuid] = left

    def named(self, uuid: str, entity_class: str) -> str | None:
        """The key of the entity of this class and uuid. A statement without a class is about the
        only one that has the uuid.
        """
        keys = self._key_of.get(folded_uuid(uuid), {})
        living = {of: key for of, key in keys.items() if key in self.entities}
        if not living and uuid in self.entities:
            living = {self.class_of.get(uuid, ""): uuid}
        if entity_class in living:
            return living[entity_class]
        if entity_class:
            return living.get("")
        return next(iter(living.values())) if len(living) == 1 else None

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
            if record.kind is RecordType.CHANGE:
                record = _statement(record, ends=True)
            return self._end(record, position, target)
        if target is None:
            if record.kind is RecordType.CHANGE:
                if record.key not in self._ended:
                    self.unknown.setdefault(record.key, []).append(record)
                return None
            if self.knows_all and _states_part(record):
                return None
            target = _new_key(record)
        entity = self.touched.get(target)
        if entity is None:
            entity = self.touched[target] = PartialEntity(target, [])
        whole = entity.state(record, position)
        self.changed.add(target)
        if target not in self.entities or not self.class_of.get(target):
            self.class_of[target] = record.entity_class
        self.entities.add(target)
        self.unknown.pop(record.key, None)
        self._ended.discard(record.key)
        self.owner[record.key] = target
        # A uuid that only a body states is not kept: it must not matter where a batch ends.
        if record.uuid and self.named(record.uuid, record.entity_class) is None:
            self.add(target, record.entity_class, record.uuid)
        return whole

    def _end(self, record: Record, position: Position, target: str | None) -> Record | None:
        self.unknown.pop(record.key, None)
        self._ended.add(record.key)
        entity = None if target is None else self.touched.get(target)
        if target is None or entity is None or not entity.parts:
            return record
        own = list(entity.parts)
        if entity.is_named(record.key, position) or not record.kind.ends_entity:
            whole = entity.end(record, position)
        else:
            whole = entity.end_part(record, position)
        self.changed.add(target)
        if whole is not None and whole.ends:
            self.entities.discard(target)
        for key in own:
            # A key whose part has ended may be that of another entity's next.
            part = entity.parts.get(key)
            if (part is None or part.record.ends) and self.owner.get(key) == target:
                del self.owner[key]
        return whole


def _states_part(record: Record) -> bool:
    """Whether a statement is about a part of its entity: the key goes on, after that of the entity,
    with the path of what the body states (3.8.2.2).
    """
    if record.whole or not record.token:
        return False
    try:
        stated = decode_object(record.body)
    except UnresolvedError:
        return False
    return any(without(stated, record.key[len(entity) :]) for entity in prefixes(record.key))


def _new_key(record: Record) -> str:
    """The key of the entity that does not exist yet, and that a record is about."""
    uuid = stated_uuid(record)
    return uuid if uuid and is_under(record.key, uuid) else record.key


def is_placed(envelope: bytes | bytearray) -> bool:
    """Whether an envelope states where in the tree its entity is (TR-548 3.10)."""
    return _PLACE in envelope


def with_place(envelope: bytes, before: bytes) -> bytes:
    """The envelope of a CHANGE that states no place, with the one that was stated before: the
    entity has not moved.
    """
    try:
        kept = _members(before or b"{}").get(_PLACE_MEMBER)
        stated = _members(envelope or b"{}")
    except msgspec.DecodeError:
        return envelope
    return envelope if kept is None else msgspec.json.encode(stated | {_PLACE_MEMBER: kept})


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
