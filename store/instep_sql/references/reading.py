"""Reads where entities stand and what they refer to (TR-548 3.10.1, ST-2.1 note 4, ST-4.1)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Row, text

from instep.errors import ReferencesOffError
from instep.model.entities import Ancestor, Reference, Skeleton, StoredEntity
from instep_sql.engine.definitions import REFERENCES, is_kept
from instep_sql.engine.dialect import Dialect
from instep_sql.stored_entities import stored_entity

__all__ = ["ReferenceReading"]

T = TypeVar("T")

_PAGE_RECORDS: Final = 500
_ANY_DEPTH: Final = 1_000_000
_KNOWN: Final = """
    EXISTS (SELECT 1 FROM instep_place AS a JOIN instep_stream AS t ON t.id = a.stream_no
            WHERE a.uuid = {0}.uuid AND a.distance = 0 AND t.consumer = s.consumer)
"""
_BEHIND: Final = text("""
    SELECT s.consumer FROM instep_stale AS c JOIN instep_stream AS s ON s.id = c.stream_no LIMIT 1
""")
_OF_CONSUMER: Final = "(:consumer = '' OR s.consumer = :consumer)"
_CHILDREN: Final = f"""
    SELECT e.*, s.consumer, s.stream FROM instep_entity AS e
    JOIN instep_stream AS s ON s.id = e.stream_no
    WHERE e.id IN (SELECT entity_id FROM instep_place
                   WHERE uuid = :uuid AND distance BETWEEN 1 AND :depth)
      AND e.id > :id AND (:class = '' OR e.class = :class) AND {_OF_CONSUMER}
    ORDER BY e.id LIMIT :size
"""
# Of what is not stored, the place is known from what is below it.
_PATH: Final = text(f"""
    SELECT p.name, p.uuid, CASE WHEN {_KNOWN.format("p")} THEN 1 ELSE 0 END AS known
    FROM (SELECT n.entity_id, n.place, n.distance, n.stream_no FROM instep_place AS n
          JOIN instep_stream AS s ON s.id = n.stream_no
          WHERE n.uuid = :uuid AND {_OF_CONSUMER}
          ORDER BY n.distance, n.entity_id, n.place LIMIT 1) AS found
    JOIN instep_place AS p ON p.entity_id = found.entity_id AND p.place = found.place
         AND p.distance > found.distance
    JOIN instep_stream AS s ON s.id = found.stream_no
    ORDER BY p.distance DESC
""")
_REFERENCES: Final = f"""
    SELECT r.entity_id, r.role, r.name, r.uuid AS target, r.since_us, s.consumer, s.stream,
           e.key, e.class, coalesce(own.uuid, '') AS uuid,
           CASE WHEN {_KNOWN.format("r")} THEN 1 ELSE 0 END AS known
    FROM instep_reference AS r JOIN instep_stream AS s ON s.id = r.stream_no
    JOIN instep_entity AS e ON e.id = r.entity_id
    LEFT JOIN instep_place AS own
      ON own.entity_id = r.entity_id AND own.place = 0 AND own.distance = 0
    WHERE (r.entity_id, r.role, r.name, r.uuid) > (:entity_id, :role, :name, :target)
      AND {{wanted}} AND {_OF_CONSUMER}
    ORDER BY r.entity_id, r.role, r.name, r.uuid LIMIT :size
"""
_STATED: Final = _REFERENCES.format(
    wanted="r.entity_id IN (SELECT entity_id FROM instep_place WHERE uuid = :uuid AND distance = 0)"
)
_REFERRERS: Final = _REFERENCES.format(
    wanted="r.uuid = :uuid AND (:class = '' OR e.class = :class)"
)
_DANGLING: Final = _REFERENCES.format(wanted=f"NOT {_KNOWN.format('r')}")
_SKELETONS: Final = f"""
    SELECT s.consumer, p.uuid, min(p.name) AS name, min(up.uuid) AS parent,
           count(DISTINCT p.entity_id) AS entities, min(p.since_us) AS since_us
    FROM instep_place AS p JOIN instep_stream AS s ON s.id = p.stream_no
    LEFT JOIN instep_place AS up ON up.entity_id = p.entity_id AND up.place = p.place
         AND up.distance = p.distance + 1
    WHERE p.distance > 0 AND NOT {_KNOWN.format("p")}
      AND p.uuid >= :uuid AND (p.uuid, s.consumer) > (:uuid, :after_consumer) AND {_OF_CONSUMER}
    GROUP BY p.uuid, s.consumer ORDER BY p.uuid, s.consumer LIMIT :size
"""


class ReferenceReading(ABC):
    """The methods of a reader for places and references; see `StoreReader`."""

    _dialect: Dialect

    @abstractmethod
    async def _fetch(self, work: Callable[[Connection], T]) -> T: ...

    async def children(
        self,
        uuid: str,
        *,
        depth: int | None = 1,
        entity_class: str | None = None,
        consumer: str | None = None,
    ) -> AsyncIterator[StoredEntity]:
        """See `StoreReader`."""
        levels = _ANY_DEPTH if depth is None else depth
        values = {"uuid": uuid, "depth": levels, "class": entity_class or "", "id": -1}
        async for row in self._keyset(_CHILDREN, values, consumer, {"id": "id"}):
            yield stored_entity(row)

    async def path(self, uuid: str, *, consumer: str | None = None) -> list[Ancestor]:
        """See `StoreReader`."""
        values = {"uuid": uuid, "consumer": consumer or ""}
        rows = await self._kept(lambda connection: connection.execute(_PATH, values).all())
        return [Ancestor(name=row.name, uuid=row.uuid, known=bool(row.known)) for row in rows]

    async def references(
        self, uuid: str, *, consumer: str | None = None
    ) -> AsyncIterator[Reference]:
        """See `StoreReader`."""
        async for row in self._references(_STATED, {"uuid": uuid}, consumer):
            yield row

    async def referrers(
        self, uuid: str, *, entity_class: str | None = None, consumer: str | None = None
    ) -> AsyncIterator[Reference]:
        """See `StoreReader`."""
        values = {"uuid": uuid, "class": entity_class or ""}
        async for row in self._references(_REFERRERS, values, consumer):
            yield row

    async def dangling(self, *, consumer: str | None = None) -> AsyncIterator[Reference]:
        """See `StoreReader`."""
        async for row in self._references(_DANGLING, {}, consumer):
            yield row

    async def skeletons(self, *, consumer: str | None = None) -> AsyncIterator[Skeleton]:
        """See `StoreReader`."""
        values = {"after_consumer": "", "uuid": ""}
        keys = {"after_consumer": "consumer", "uuid": "uuid"}
        async for row in self._keyset(_SKELETONS, values, consumer, keys):
            yield Skeleton(
                name=row.name,
                uuid=row.uuid,
                parent=row.parent or "",
                entities=row.entities,
                since_us=row.since_us,
                consumer=row.consumer,
            )

    async def _references(
        self, query: str, values: dict[str, Any], consumer: str | None
    ) -> AsyncIterator[Reference]:
        first = {"entity_id": -1, "role": "", "name": "", "target": ""}
        keys = {name: name for name in first}
        async for row in self._keyset(query, values | first, consumer, keys):
            yield Reference(
                stream=row.stream,
                key=row.key,
                entity_class=row._mapping["class"],  # noqa: SLF001 — SQLAlchemy's public name for it
                uuid=row.uuid,
                role=row.role,
                name=row.name,
                target=row.target,
                known=bool(row.known),
                since_us=row.since_us,
                consumer=row.consumer,
            )

    async def _keyset(
        self, query: str, values: dict[str, Any], consumer: str | None, keys: dict[str, str]
    ) -> AsyncIterator[Row[Any]]:
        """The rows of the query, a page at a time; `keys` are the parameters that a page begins
        after, with the columns that they are taken from.
        """
        found = text(query)
        given = {**values, "consumer": consumer or "", "size": _PAGE_RECORDS}
        while True:
            rows = await self._kept(lambda connection: connection.execute(found, given).all())  # noqa: B023
            for row in rows:
                yield row
            if len(rows) < _PAGE_RECORDS:
                return
            given |= {name: rows[-1]._mapping[column] for name, column in keys.items()}  # noqa: SLF001

    async def _kept(self, work: Callable[[Connection], T]) -> T:
        def checked(connection: Connection) -> T:
            if not is_kept(connection, REFERENCES):
                raise ReferencesOffError(
                    "the store keeps no references",
                    where=self._dialect.where,
                    hint="set references = true in the sink's options",
                )
            # A process that runs since before they were turned on does not derive them yet. All is
            # derived at the end of every commit of another.
            waits = connection.execute(_BEHIND).scalar()
            if waits is not None:
                raise ReferencesOffError(
                    "the references were turned on, but not all are derived yet",
                    where=self._dialect.where,
                    hint=f"the process of consumer {waits!r} began before that: start it again",
                )
            return work(connection)

        return await self._fetch(checked)
