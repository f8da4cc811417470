"""`references`: where entities stand and what they refer to (TR-548 3.10.1, ST-2.1, ST-4.1)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec

from instep.model.entities import (
    Ancestor,
    Reference,
    Skeleton,
    StoredEntity,
    folded_uuid,
)
from instep.ports.derivation import (
    Column,
    ColumnType,
    EntityColumns,
    EntityDerivation,
    EntityTable,
    Index,
    Query,
    Row,
    View,
    ViewColumn,
)
from instep.ports.reader import StoreReader
from instep_tapi.facts.places import read_places

__all__ = [
    "ReferenceOptions",
    "References",
    "children",
    "dangling",
    "derivation",
    "path",
    "references",
    "referrers",
    "skeletons",
]

_PLACES: Final = EntityTable(
    name="instep_place",
    columns=(
        # 0: the parent-address; further ones, if the entity stands in several places.
        Column("place", ColumnType.INTEGER),
        # 0: the entity itself, 1: its parent, and so on upwards.
        Column("distance", ColumnType.INTEGER),
        Column("name"),
        Column("uuid"),
    ),
    key=("place", "distance"),
    indexes=(Index("instep_place_uuid", ("uuid", "distance", "stream_no")),),
    target="uuid",
)
_REFERENCES_TABLE: Final = EntityTable(
    name="instep_reference",
    columns=(Column("role"), Column("name"), Column("uuid")),
    key=("role", "name", "uuid"),
    indexes=(Index("instep_reference_uuid", ("uuid", "stream_no")),),
    target="uuid",
)

_KNOWN: Final = """
    EXISTS (SELECT 1 FROM instep_place AS a JOIN instep_stream AS t ON t.id = a.stream_no
            WHERE a.uuid = {0}.uuid AND a.distance = 0 AND t.consumer = s.consumer)
"""
_OWN: Final = (
    "LEFT JOIN instep_place AS o ON o.entity_id = r.entity_id AND o.place = 0 AND o.distance = 0"
)
_ENTITY: Final = (
    ViewColumn("key", "e.key"),
    ViewColumn("class", "e.class"),
    ViewColumn("uuid", "o.uuid"),
)
_SINCE: Final = (
    ViewColumn("known", _KNOWN.format("r")),
    ViewColumn("since", "r.since_us", "time"),
)
_VIEWS: Final = (
    View(
        "instep_places",
        "instep_place",
        (
            *_ENTITY,
            ViewColumn("place", "r.place"),
            ViewColumn("distance", "r.distance"),
            ViewColumn("name", "r.name"),
            ViewColumn("ancestor", "r.uuid"),
            *_SINCE,
        ),
        _OWN,
        "r.distance > 0",
    ),
    View(
        "instep_references",
        "instep_reference",
        (
            *_ENTITY,
            ViewColumn("role", "r.role"),
            ViewColumn("name", "r.name"),
            ViewColumn("target", "r.uuid"),
            *_SINCE,
        ),
        _OWN,
    ),
)

_ANY_DEPTH: Final = 1_000_000
_OF_CONSUMER: Final = {"consumer": "s.consumer = :consumer"}
_CHILDREN: Final = Query(
    """
    SELECT e.*, s.consumer, s.stream FROM instep_entity AS e
    JOIN instep_stream AS s ON s.id = e.stream_no
    WHERE e.id IN (SELECT entity_id FROM instep_place
                   WHERE uuid = :uuid AND distance BETWEEN 1 AND :depth) AND {more}
    """,
    {**_OF_CONSUMER, "uuid": "", "depth": "", "entity_class": "e.class = :entity_class"},
    {"id": ("e.id", -1)},
)
# Of what is not stored, the place is known from what is below it.
_PATH: Final = Query(
    f"""
    SELECT p.name, p.uuid, CASE WHEN {_KNOWN.format("p")} THEN 1 ELSE 0 END AS known
    FROM (SELECT n.entity_id, n.place, n.distance, n.stream_no FROM instep_place AS n
          JOIN instep_stream AS s ON s.id = n.stream_no WHERE n.uuid = :uuid AND {{more}}
          ORDER BY n.distance, n.entity_id, n.place LIMIT 1) AS found
    JOIN instep_place AS p ON p.entity_id = found.entity_id AND p.place = found.place
         AND p.distance > found.distance
    JOIN instep_stream AS s ON s.id = found.stream_no
    ORDER BY p.distance DESC
    """,
    {**_OF_CONSUMER, "uuid": ""},
)
_STATED: Final = f"""
    SELECT r.entity_id, r.role, r.name, r.uuid AS target, r.since_us, s.consumer, s.stream,
           e.key, e.class, coalesce(o.uuid, '') AS uuid,
           CASE WHEN {_KNOWN.format("r")} THEN 1 ELSE 0 END AS known
    FROM instep_reference AS r JOIN instep_stream AS s ON s.id = r.stream_no
    JOIN instep_entity AS e ON e.id = r.entity_id {_OWN} WHERE {{more}}
"""
_IN_ORDER: Final = {
    "entity_id": ("r.entity_id", -1),
    "role": ("r.role", ""),
    "name": ("r.name", ""),
    "target": ("r.uuid", ""),
}
_OF_ONE: Final = """
    r.entity_id IN (SELECT entity_id FROM instep_place WHERE uuid = :uuid AND distance = 0)
"""
_SKELETONS: Final = Query(
    f"""
    SELECT s.consumer, p.uuid, min(p.name) AS name, min(up.uuid) AS parent,
           count(DISTINCT p.entity_id) AS entities, min(p.since_us) AS since_us
    FROM instep_place AS p JOIN instep_stream AS s ON s.id = p.stream_no
    LEFT JOIN instep_place AS up ON up.entity_id = p.entity_id AND up.place = p.place
         AND up.distance = p.distance + 1
    WHERE p.distance > 0 AND NOT {_KNOWN.format("p")} AND {{more}}
    GROUP BY p.uuid, s.consumer
    """,
    _OF_CONSUMER,
    {"uuid": ("p.uuid", ""), "consumer": ("s.consumer", "")},
)


class ReferenceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The key of a sink that keeps places and references."""

    references: bool | None = None
    """Whether the store keeps where each entity stands and what it refers to (`instep_place`,
    `instep_reference`), for all its consumers; None: as it does already, and a new store does not.
    """


class References(EntityDerivation):
    """One row for each ancestor of an entity, and for each `*-uuid` leaf of its body."""

    name = "references"
    version = "3"
    words = "references"
    options = ReferenceOptions
    tables = (_PLACES, _REFERENCES_TABLE)
    views = _VIEWS
    queries: ClassVar[Mapping[str, Query]] = {
        "": Query(_STATED, {**_OF_CONSUMER, "uuid": _OF_ONE}, _IN_ORDER),
        "referrers": Query(
            _STATED,
            {**_OF_CONSUMER, "uuid": "r.uuid = :uuid", "entity_class": "e.class = :entity_class"},
            _IN_ORDER,
        ),
        "dangling": Query(
            _STATED.replace("WHERE {more}", f"WHERE NOT {_KNOWN.format('r')} AND {{more}}"),
            _OF_CONSUMER,
            _IN_ORDER,
        ),
        "children": _CHILDREN,
        "path": _PATH,
        "skeletons": _SKELETONS,
    }

    def derive(self, entities: EntityColumns) -> Iterable[Sequence[Sequence[Row]]]:
        """Places and references of each entity."""
        return map(read_places, entities.uuids, entities.envelopes, entities.bodies)


derivation: Final = References()


async def children(
    reader: StoreReader,
    uuid: str,
    *,
    depth: int | None = 1,
    entity_class: str | None = None,
    consumer: str | None = None,
) -> AsyncIterator[StoredEntity]:
    """Entities below the one with this uuid, stored or not, by their parent-address: its children,
    or with `depth` as many levels (None: all).

    This and the functions below raise `DerivationOffError` where they are not kept and
    `ConfigurationError` for a store that cannot keep them. Several consumers of one store may know
    one uuid: `consumer` selects one of them.
    """
    given = {"uuid": folded_uuid(uuid), "depth": _ANY_DEPTH if depth is None else depth}
    rows = reader.derived(
        derivation.name, "children", **given, entity_class=entity_class, consumer=consumer
    )
    async for row in rows:
        yield StoredEntity(
            stream=row["stream"],
            key=row["key"],
            entity_class=row["class"],
            token=row["token"],
            appended_at_us=row["appended_at_us"],
            attempt=row["attempt"],
            body=row["body"],
            envelope=row["envelope"],
            uuid=row["uuid"],
            proven=bool(row["proven"]),
            consumer=row["consumer"],
        )


async def path(reader: StoreReader, uuid: str, *, consumer: str | None = None) -> list[Ancestor]:
    """What contains the entity with this uuid, stored or not: highest first, without itself."""
    rows = reader.derived(derivation.name, "path", uuid=folded_uuid(uuid), consumer=consumer)
    return [
        Ancestor(name=row["name"], uuid=row["uuid"], known=bool(row["known"])) async for row in rows
    ]


async def references(
    reader: StoreReader, uuid: str, *, consumer: str | None = None
) -> AsyncIterator[Reference]:
    """What the entity with this uuid refers to."""
    async for row in reader.derived(derivation.name, uuid=folded_uuid(uuid), consumer=consumer):
        yield _reference(row)


async def referrers(
    reader: StoreReader,
    uuid: str,
    *,
    entity_class: str | None = None,
    consumer: str | None = None,
) -> AsyncIterator[Reference]:
    """What refers to the entity with this uuid, stored or not."""
    given = {"uuid": folded_uuid(uuid), "entity_class": entity_class, "consumer": consumer}
    async for row in reader.derived(derivation.name, "referrers", **given):
        yield _reference(row)


async def dangling(reader: StoreReader, *, consumer: str | None = None) -> AsyncIterator[Reference]:
    """The references whose target is not stored."""
    async for row in reader.derived(derivation.name, "dangling", consumer=consumer):
        yield _reference(row)


async def skeletons(reader: StoreReader, *, consumer: str | None = None) -> AsyncIterator[Skeleton]:
    """The entities that parent-addresses name and that are not stored."""
    async for row in reader.derived(derivation.name, "skeletons", consumer=consumer):
        yield Skeleton(
            name=row["name"],
            uuid=row["uuid"],
            parent=row["parent"] or "",
            entities=row["entities"],
            since_us=row["since_us"],
            consumer=row["consumer"],
        )


def _reference(row: Mapping[str, Any]) -> Reference:
    return Reference(
        stream=row["stream"],
        key=row["key"],
        entity_class=row["class"],
        uuid=row["uuid"],
        role=row["role"],
        name=row["name"],
        target=row["target"],
        known=bool(row["known"]),
        since_us=row["since_us"],
        consumer=row["consumer"],
    )
