"""The context of a real controller in any order of arrival, over several streams: the same tree,
references and projections, equal to the file (TR-548 3.10.1, ST-2.1 note 4, ST-4.1).
"""

from __future__ import annotations

import json
import random
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from instep.model.records import Record
from instep_tapi.derivations import references as derived
from instep_tapi.wire.context_tree import entities
from tests.instep_sql.references.references_kit import (
    Network,
    end,
    expected_dangling,
    expected_skeletons,
    network,
    statement,
)

pytestmark = pytest.mark.asyncio

CONTAINED = {
    "topology": "TOPOLOGY",
    "node": "NODE",
    "owned-node-edge-point": "NODE_EDGE_POINT",
    "link": "LINK",
    "connection-end-point": "CONNECTION_END_POINT",
}
LISTED_IN = {
    "topology": {"topology-context"},
    "node": {"topology"},
    "owned-node-edge-point": {"node"},
    "link": {"topology"},
    "connection-end-point": {"cep-list"},
}


def plain(name: str) -> str:
    return name.rpartition(":")[2]


def contained(value: Any, inside: str, parent: str) -> Iterator[tuple[str, str, str]]:
    """Class, uuid of the parent and uuid of what the file lists below it."""
    if isinstance(value, list):
        for one in value:
            yield from contained(one, inside, parent)
    elif isinstance(value, dict):
        for member, inner in value.items():
            name = plain(member)
            listed = inner if isinstance(inner, list) else []
            if inside in LISTED_IN.get(name, ()):
                for one in listed:
                    yield CONTAINED[name], parent, one["uuid"]
                    yield from contained(one, name, one["uuid"])
            else:
                yield from contained(inner, name, parent)


def records(document: Any, stream_of: Callable[[str], str]) -> list[Record]:
    return [
        statement(
            stream_of(entity.entity_class),
            "+".join(entity.address) or "context",
            entity.entity_class,
            entity.content,
            *entity.parent_address,
            at=at,
        )
        for at, entity in enumerate(entities(document))
    ]


async def commit_in_any_order(at: Network, given: list[Record], chance: random.Random) -> None:
    """Each record once or twice, some entities ended and stated again, in random batches."""
    given = given + chance.sample(given, len(given) // 4)
    chance.shuffle(given)
    while given:
        size = chance.randint(1, 200)
        batch, given = given[:size], given[size:]
        for stream in sorted({record.stream for record in batch}):
            await at.commit(*[record for record in batch if record.stream == stream])
        lost = chance.choice(batch)
        await at.commit(end(lost.stream, lost.key, 1 << 40))
        await at.commit(lost)


STREAMS: dict[str, Callable[[str], str]] = {
    "one a class": str.lower,
    "three mixed": lambda entity_class: str(len(entity_class) % 3),
}


ORDERS = [*range(3), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 50))]
READY = {
    "node": "NODE",
    "node_edge_point": "NODE_EDGE_POINT",
    "link": "LINK",
    "connection_end_point": "CONNECTION_END_POINT",
}
"""The ready projections of what the file has, and their classes."""


def projected(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of the projections, without the numbers that the store gives to entities."""
    with sqlite3.connect(url.removeprefix("sqlite:///")) as database:
        tables = {name: database.execute(f"SELECT * FROM {name}").fetchall() for name in READY}
    return {name: sorted(row[1:] for row in rows) for name, rows in tables.items()}


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("seed", ORDERS)
async def test_any_order_of_arrival_gives_the_tree_of_the_file(
    streams: str, seed: int, shared_data: Path, tmp_path: Path
) -> None:
    document = json.loads(
        (shared_data / "tapi" / "transportpce_tapi24_context.json").read_text(encoding="utf-8")
    )
    expected: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for entity_class, parent, uuid in contained(document, "", ""):
        expected[entity_class, parent].add(uuid)
    assert {entity_class for entity_class, _ in expected} == set(CONTAINED.values())
    given = records(document, STREAMS[streams])
    url, in_order = f"sqlite:///{tmp_path}/any.db", f"sqlite:///{tmp_path}/ordered.db"
    async with network(url, projections=list(READY)) as at:
        await commit_in_any_order(at, given, random.Random(seed))
        for (entity_class, parent), uuids in expected.items():
            if parent:
                found = derived.children(at.reader, parent, entity_class=entity_class)
                assert {entity.uuid async for entity in found} == uuids, (seed, parent)
        bodies = {(one.stream, one.key): json.loads(one.body) for one in given}
        stored = await at.entities()
        assert {(one.stream, one.key): one.body for one in stored} == bodies
        skeletons, dangling = await at.skeletons(), await at.dangling()
        in_file = set().union(*expected.values())
        assert not in_file.intersection(uuid for uuid, *_ in skeletons)
        assert (skeletons, dangling) == (expected_skeletons(stored), expected_dangling(stored))
    async with network(in_order, projections=list(READY)) as ordered:
        for record in given:
            await ordered.commit(record)
        assert (skeletons, dangling) == (await ordered.skeletons(), await ordered.dangling())
    rows = projected(url)
    assert rows == projected(in_order)
    for name, wanted in READY.items():
        listed = [uuids for (entity_class, _), uuids in expected.items() if entity_class == wanted]
        assert [row[0] for row in rows[name]] == sorted(uuid for uuids in listed for uuid in uuids)
