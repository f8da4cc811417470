"""Which statements of a stream that is joined with a baseline are about one entity (A13). Pure.

There is one entity for each class and uuid; where a provider states one uuid in several places,
one for each place. A stream names its entities by keys: what it has stated under a key is one
entity. What a baseline states is joined with it by class, uuid and place, the direct parent.

The rows of a stream are read in the order of their ordinals. What is known of an entity outlives
it, and its id never changes: so ids do not depend on how the rows were cut into batches (L1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

__all__ = [
    "DEFAULT_ID",
    "FURTHER",
    "STATED",
    "Entity",
    "Identities",
    "Resolved",
    "default_id",
    "is_address",
    "names_in",
    "resolve",
    "uuid_in",
]

Row = Mapping[str, Any]
"""A row of `changes` by column: those of `STATED`."""
FURTHER: Final = "CASE WHEN envelope LIKE '%\"further-parent-addresses\"%' THEN envelope END"
"""SQL: the envelope, where a baseline has stated one entity in several places."""
STATED: Final = ("ordinal", "key", "uuid", "class", "token", "ends", "parent_address", "envelope")
"""The columns of `changes` that the identity of a row depends on; `envelope` may be `FURTHER`."""


DEFAULT_ID: Final = "CASE WHEN uuid <> '' THEN uuid ELSE key END"
"""SQL: the id of a row of `changes` of which nothing else is known."""


class _Envelope(msgspec.Struct, rename="kebab"):
    further_parent_addresses: list[list[str]] = []


_address: Final = msgspec.json.Decoder(list[str]).decode
_further: Final = msgspec.json.Decoder(_Envelope).decode


def default_id(row: Row) -> str:
    """`DEFAULT_ID` of a row."""
    name: str = row["uuid"] or row["key"]
    return name


def names_in(rows: Iterable[Row]) -> set[str]:
    """The keys, uuids and ids under which the entities of these rows may be known."""
    names: set[str] = set()
    for row in rows:
        names.update((row["key"], row["uuid"], uuid_in(row["key"])))
    return names - {""}


def uuid_in(key: str) -> str:
    """The uuid at the end of a key that is a whole address; empty for any other key."""
    above, _, own = key.rpartition("+")
    return own.rpartition(":")[2] if above else ""


class Resolved(NamedTuple):
    """What a row is about, where the row alone does not tell it."""

    ordinal: int
    id: str
    parent_address: str | None
    """JSON, where the row is about several entities: that of this one."""


def resolve(known: Identities, rows: Iterable[Row]) -> tuple[list[Resolved], list[Entity]]:
    """Read these rows. Returns what those rows are about of which `default_id` does not tell it,
    and what the rows tell anew of entities.
    """
    resolved: list[Resolved] = []
    told: list[Entity] = []
    for row in rows:
        ids, news = known.apply(row)
        if len(ids) > 1:
            resolved += [Resolved(row["ordinal"], one, known.parent_address(one)) for one in ids]
        elif ids != [default_id(row)]:
            resolved.append(Resolved(row["ordinal"], ids[0], None))
        told += news
    return resolved, told


class Entity(msgspec.Struct):
    """What is known of an entity since a row of `changes`, of which it has the ordinal."""

    id: str
    ordinal: int
    key: str
    """The last key of the stream; that of the baseline where only a baseline has stated it."""
    entity_class: str
    uuid: str
    above: str
    """The parent-address, joined by `+`; empty where none was stated."""
    places: tuple[str, ...]
    """The direct parents, sorted; a baseline may state several."""
    claimed: bool
    """Whether the stream has stated it: its key is that of the stream."""

    @classmethod
    def stored(cls, row: Row) -> Entity:
        """An entity by its last statement, with its `id`."""
        key, uuid = row["key"], row["uuid"]
        by_uuid = key == uuid or key.endswith(f":{uuid}")
        return cls(
            *(row["id"], row["ordinal"], key, row["class"], uuid, *_places_of(row)),
            bool(row["token"]) or not by_uuid,
        )

    @property
    def is_addressed(self) -> bool:
        """Whether its key is its whole address, which tells the place."""
        return _begins(self.above, self.key)

    def is_at(self, places: tuple[str, ...]) -> bool:
        """Whether it may be in one of these places: where none is known, it may."""
        return not places or not self.places or not set(places).isdisjoint(self.places)


def is_address(key: str, parent_address: str | None) -> bool:
    """Whether a key is the whole address of an entity below this parent-address, which is JSON."""
    return _begins(_places_of({"parent_address": parent_address, "envelope": None})[0], key)


def _begins(above: str, key: str) -> bool:
    return bool(above) and key.rpartition("+")[0] == above


class Identities:
    """The entities of one stream, or those of them that some rows may be about."""

    def __init__(self) -> None:
        self._by_id: dict[str, Entity] = {}
        self._by_key: dict[str, Entity] = {}
        self._by_uuid: dict[str, list[Entity]] = {}

    def load(self, entity: Entity) -> None:
        """Take what is known of an entity; the last one of an id holds."""
        old = self._by_id.get(entity.id)
        if old is not None:
            self._unname(old)
            self._by_uuid[old.uuid].remove(old)
        self._by_id[entity.id] = self._by_key[entity.key] = entity
        self._by_uuid.setdefault(entity.uuid, []).append(entity)

    def parent_address(self, entity_id: str) -> str | None:
        """The parent-address of an entity as JSON; None: it is not known."""
        above = self._by_id[entity_id].above
        return msgspec.json.encode(above.split("+")).decode() if above else None

    def _unname(self, entity: Entity) -> None:
        if self._by_key.get(entity.key) is entity:
            del self._by_key[entity.key]

    def apply(self, row: Row) -> tuple[list[str], list[Entity]]:
        """Return the ids of the entities that the row is about, and what it has told anew of them.

        Only a row of a baseline may be about several: entities in the places that it names.
        """
        if not row["uuid"]:
            return [self._named(row)], []
        above, places = _places_of(row)
        found = self._of(row, above, places)
        if row["ends"]:
            return ([one.id for one in found] or [self._free_id(row)]), []
        if not found:
            made = Entity(
                self._free_id(row),
                *(row["ordinal"], row["key"], row["class"], row["uuid"], above, places),
                bool(row["token"]),
            )
            self.load(made)
            return [made.id], [made]
        ids = [one.id for one in found]
        return ids, [] if len(found) > 1 else self._told(found[0], row, above, places)

    def _told(self, entity: Entity, row: Row, above: str, places: tuple[str, ...]) -> list[Entity]:
        """Take what a statement tells anew of the entity that it is about, for the rows behind any
        cut, too (L1).
        """
        key = row["key"] if row["token"] else entity.key
        if not places:
            above, places = entity.above, entity.places
        claimed = entity.claimed or bool(row["token"])
        told = (key, row["class"], above, places, claimed)
        if told == (entity.key, entity.entity_class, entity.above, entity.places, entity.claimed):
            return []
        made = Entity(
            *(entity.id, row["ordinal"], key, row["class"], entity.uuid, above, places, claimed)
        )
        self.load(made)
        return [made]

    def _named(self, row: Row) -> str:
        """The id for a row without uuid: most ends have a key only. It may be the entity's uuid or
        whole address, too.
        """
        key = row["key"]
        found = self._by_key.get(key)
        if found is not None:
            return found.id
        others = self._by_uuid.get(key) or [
            one for one in self._by_uuid.get(uuid_in(key), ()) if _begins(one.above, key)
        ]
        # The last element of an address names the class, too.
        own = key.rpartition("+")[2].rpartition("-uuid:")[0].replace("-", "_").upper()
        others = sorted(others, key=lambda one: one.entity_class != own)
        # The end of a key that its entity no longer has means nothing.
        return others[0].id if others else self._free_id(row)

    def _free_id(self, row: Row) -> str:
        """An id that no entity has: the first one of a uuid has that, others have their keys."""
        for name in (default_id(row), row["key"]):
            if name not in self._by_id:
                return name
        return f"{row['key']}@{row['ordinal']}"

    def _of(self, row: Row, above: str, places: tuple[str, ...]) -> list[Entity]:
        """The known entities that a row is about, by key, class, uuid and place (A13)."""
        key, entity_class, token = row["key"], row["class"], row["token"]
        of_uuid = self._by_uuid.get(row["uuid"], [])
        named = [one for one in of_uuid if one.key == key]
        if named and token:
            return sorted(named, key=lambda one: one.entity_class != entity_class)[:1]
        rows = [one for one in of_uuid if one.entity_class == entity_class or not entity_class]
        named = [one for one in named if one in rows]
        # What is alike in several places is stated for all of them, whatever key it has.
        if named and (len(rows) == 1 or (len(places) == 1 and _begins(above, key))):
            return named
        here = [one for one in rows if one.is_at(places)]
        # The only statement of the only entity: it has moved, where no key names a place.
        moved = [one for one in rows if not one.is_addressed] if len(rows) == 1 else []
        if not token:
            return here or named or (moved if key == row["uuid"] else [])
        if not here and not _begins(above, key):
            here = [one for one in moved if not one.claimed]
        # First what no key of the stream has named.
        return sorted(here, key=lambda one: one.claimed)[:1]


def _places_of(row: Row) -> tuple[str, tuple[str, ...]]:
    """The parent-address, joined, and the direct parents that a statement names (TR-548 3.10)."""
    try:
        own = _address(row["parent_address"] or "[]")
        further = _further(row["envelope"]).further_parent_addresses if row["envelope"] else []
    except msgspec.MsgspecError:
        return "", ()
    return "+".join(own), tuple(sorted({one[-1] for one in (own, *further) if one}))
