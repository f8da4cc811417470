"""A network of several streams that is committed in any order, and what must be derived from it,
computed from the entities alone.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from instep.model.batches import Batch, CommitResult, SweepStep
from instep.model.position import Position
from instep.model.records import Record, RecordType
from instep_sql import SqlStore
from instep_tapi.derivations import references as derived
from tests.instep_sql.store_kit import stream_info


def statement(
    stream: str,
    key: str,
    entity_class: str,
    body: dict[str, Any],
    *address: str,
    at: int = 0,
    further: list[list[str]] | None = None,
    **changes: Any,
) -> Record:
    """A statement about an entity that stands under this parent-address."""
    envelope: dict[str, Any] = {"event-time-stamp": at, "parent-address": list(address)}
    if further is not None:
        envelope["further-parent-addresses"] = further
    given = {
        "offset": at,
        "entity_class": entity_class,
        "body": json.dumps(body).encode(),
        "envelope": json.dumps(envelope).encode(),
        **changes,
    }
    return Record(stream, key, RecordType.CREATE_UPDATE, f"t{at}", at, **given)


def end(stream: str, key: str, at: int = 0) -> Record:
    return Record(stream, key, RecordType.DELETE, f"t{at}", at, offset=at, ends=True)


class Network:
    """A store whose streams are committed to one by one."""

    def __init__(self, store: SqlStore) -> None:
        self.store = store
        self.reader = store.reader
        self.attempt = 1
        self._positions: dict[str, Position] = {}

    async def commit(
        self, *records: Record, sweep: int | None = None, **changes: Any
    ) -> CommitResult:
        """Commit records of one stream, and where `sweep` is an attempt, its sweep."""
        stream = records[0].stream
        if stream not in self._positions:
            self._positions[stream] = await self.store.position(stream_info(stream))
        before = self._positions[stream]
        position = Position(
            token=records[-1].token,
            ordinal=before.ordinal + 1,
            attempt=self.attempt,
            lineage=1,
        )
        step = None if sweep is None else SweepStep(attempt=sweep, cursor=0, limit_records=10_000)
        result = await self.store.commit(
            Batch(
                stream=stream,
                records=list(records),
                position=position,
                expects_ordinal=before.ordinal,
                sweep=step,
                **changes,
            )
        )
        self._positions[stream] = position
        return result

    async def entities(self) -> list[Stored]:
        return [
            Stored(e.stream, e.key, e.entity_class, json.loads(e.body), json.loads(e.envelope))
            async for e in self.reader.entities()
            if e.consumer == "east"
        ]

    async def dangling(self) -> list[tuple[str, ...]]:
        found = [r async for r in derived.dangling(self.reader, consumer="east")]
        return sorted((r.key, r.role, r.name, r.target) for r in found)

    async def skeletons(self) -> list[tuple[Any, ...]]:
        found = [s async for s in derived.skeletons(self.reader, consumer="east")]
        return sorted((s.uuid, s.name, s.parent, s.entities) for s in found)

    async def children(self, uuid: str, **given: Any) -> list[str]:
        return [e.key async for e in derived.children(self.reader, uuid, **given)]

    async def path(self, uuid: str) -> list[tuple[str, str, bool]]:
        found = await derived.path(self.reader, uuid)
        return [(a.name, a.uuid, a.known) for a in found]

    async def referrers(self, uuid: str, **given: Any) -> list[tuple[str, str]]:
        return [(r.key, r.role) async for r in derived.referrers(self.reader, uuid, **given)]


@asynccontextmanager
async def network(url: str, **options: Any) -> AsyncIterator[Network]:
    async with SqlStore(url, **{"references": True, **options}) as store:
        await store.open("east")
        yield Network(store)


class Stored(NamedTuple):
    """An entity as the store shows it."""

    stream: str
    key: str
    entity_class: str
    body: dict[str, Any]
    envelope: dict[str, Any]

    @property
    def address(self) -> list[str]:
        return list(self.envelope.get("parent-address", []))

    @property
    def uuid(self) -> str:
        if "uuid" in self.body:
            return str(self.body["uuid"])
        return (
            _local([*self.address, f"own-local-id:{self.body['local-id']}"])
            if ("local-id" in self.body)
            else ""
        )


def _local(address: list[str]) -> str:
    """The identity of the last element of an address."""
    ids: list[str] = []
    for element in reversed(address):
        name, _, value = element.partition(":")
        ids.insert(0, value)
        if name.endswith("uuid"):
            return "/".join(ids)
    return ""


def _leaves(value: Any, role: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(value, list):
        for item in value:
            yield from _leaves(item, role)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name.endswith("-uuid") and isinstance(inner, str) and inner:
                yield role, name, inner
            else:
                yield from _leaves(inner, name)


def expected_dangling(entities: list[Stored]) -> list[tuple[str, ...]]:
    known = {entity.uuid for entity in entities}
    stated = {
        (entity.key, role, name, target)
        for entity in entities
        for role, name, target in _leaves(entity.body, "")
        if target not in known
    }
    return sorted(stated)


def expected_skeletons(entities: list[Stored]) -> list[tuple[Any, ...]]:
    known = {entity.uuid for entity in entities}
    below: defaultdict[str, set[str]] = defaultdict(set)
    names: defaultdict[str, set[str]] = defaultdict(set)
    parents: defaultdict[str, set[str]] = defaultdict(set)
    for entity in entities:
        for upto in range(1, len(entity.address) + 1):
            uuid = _local(entity.address[:upto])
            if uuid not in known:
                below[uuid].add(entity.key)
                names[uuid].add(entity.address[upto - 1].partition(":")[0])
                parents[uuid].update(filter(None, [_local(entity.address[: upto - 1])]))
    return sorted(
        # Where the addresses contradict each other, the least parent is named.
        (uuid, min(names[uuid]), min(parents[uuid], default=""), len(below[uuid]))
        for uuid in below
    )
