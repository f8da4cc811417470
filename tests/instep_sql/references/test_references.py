"""Places and references: kept in the transaction of the entities, whatever comes first
(TR-548 3.10.1, ST-2.1 note 4, ST-4.1).
"""

from __future__ import annotations

import json
import random
import string
from typing import Any

import pytest

from instep.errors import DerivationOffError
from instep.model.batches import SweepStep
from instep.model.records import Record, RecordChunk, Unreadable
from instep_sql import SqlStore
from instep_sql.plugin import sink
from instep_tapi.derivations import references as derived
from tests.instep_sql.audit.test_marks import Audited
from tests.instep_sql.references.references_kit import (
    Network,
    end,
    expected_dangling,
    expected_skeletons,
    network,
    statement,
)
from tests.instep_sql.store_kit import CHANGE_ONLY, Stages, create_update, stream_info

pytestmark = pytest.mark.asyncio

TOPOLOGY, NODE = "topology-uuid:T", "node-uuid:N"


def node(at: int = 1, uuid: str = "N") -> Record:
    return statement("nodes", f"n-{uuid}", "NODE", {"uuid": uuid}, TOPOLOGY, at=at)


def port(uuid: str, at: int = 2, **body: Any) -> Record:
    stated = {"uuid": uuid, **body}
    return statement("ports", f"p-{uuid}", "NODE_EDGE_POINT", stated, TOPOLOGY, NODE, at=at)


def link(*ports: str, at: int = 3) -> Record:
    ends = [{"topology-uuid": "T", "node-edge-point-uuid": uuid} for uuid in ports]
    body = {"uuid": "L", "node-edge-point": ends}
    return statement("links", "l-L", "LINK", body, TOPOLOGY, at=at)


async def test_st_2_1_4_a_parent_that_has_not_come_is_a_skeleton_until_it_comes(
    database: str,
) -> None:
    async with network(database, clock_us=iter(range(100, 200)).__next__) as at:
        await at.commit(port("P"))
        assert await at.skeletons() == [("N", "node-uuid", "T", 1), ("T", "topology-uuid", "", 1)]
        assert await at.path("P") == [("topology-uuid", "T", False), ("node-uuid", "N", False)]
        assert await at.path("N") == [("topology-uuid", "T", False)]
        await at.commit(node())
        assert await at.skeletons() == [("T", "topology-uuid", "", 2)]
        assert await at.path("P") == [("topology-uuid", "T", False), ("node-uuid", "N", True)]


async def test_st_4_1_a_reference_dangles_until_both_ends_are_there(database: str) -> None:
    async with network(database) as at:
        await at.commit(link("P", "Q"))
        assert [(role, name, to) for _, role, name, to in await at.dangling()] == [
            ("node-edge-point", "node-edge-point-uuid", "P"),
            ("node-edge-point", "node-edge-point-uuid", "Q"),
            ("node-edge-point", "topology-uuid", "T"),
        ]
        await at.commit(port("Q"))
        assert ("l-L", "node-edge-point", "node-edge-point-uuid", "P") in await at.dangling()
        assert "Q" not in {target for *_, target in await at.dangling()}
        assert await at.referrers("Q") == [("l-L", "node-edge-point")]
        assert await at.referrers("Q", entity_class="NODE") == []
        stated = [(r.target, r.known) async for r in derived.references(at.reader, "L")]
        assert stated == [("P", False), ("Q", True), ("T", False)]


async def test_the_end_of_a_parent_orphans_nothing_silently(database: str) -> None:
    times = iter(range(1_000, 9_000))
    async with network(database, clock_us=times.__next__) as at:
        await at.commit(node(1))
        await at.commit(port("P", 2))
        await at.commit(link("P", at=3))
        (before,) = [s.since_us async for s in derived.skeletons(at.reader) if s.uuid == "T"]
        await at.commit(end("nodes", "n-N", 10))
        await at.commit(end("ports", "p-P", 10))
        assert await at.skeletons() == [("T", "topology-uuid", "", 1)]
        found = {r.target: r.since_us async for r in derived.dangling(at.reader)}
        assert found["P"] > found["T"] > before
        await at.commit(port("P", 11))
        lost = {s.uuid: s.since_us async for s in derived.skeletons(at.reader)}
        assert lost["N"] > before


async def test_the_age_is_that_of_the_end_where_the_target_has_ended(database: str) -> None:
    times = iter(range(1_000, 9_000))
    async with network(database, clock_us=times.__next__) as at:
        await at.commit(node(1))
        await at.commit(port("P", 2))
        await at.commit(port("P", 3, other=1, **{"client-node": {"node-uuid": "N"}}))
        (stated,) = [r.since_us async for r in derived.references(at.reader, "P")]
        await at.commit(port("P", 4, other=2, **{"client-node": {"node-uuid": "N"}}))
        (again,) = [r.since_us async for r in derived.references(at.reader, "P")]
        assert again == stated
        await at.commit(end("nodes", "n-N", 10))
        (lost,) = [r.since_us async for r in derived.dangling(at.reader)]
        assert lost > stated
        (skeleton,) = [s.since_us async for s in derived.skeletons(at.reader) if s.uuid == "N"]
        assert skeleton == lost


async def test_3_10_the_list_of_a_parent_follows_create_and_delete(database: str) -> None:
    async with network(database) as at:
        await at.commit(node())
        await at.commit(port("P"), port("Q", 3))
        assert await at.children("N") == ["p-P", "p-Q"]
        assert await at.children("T") == ["n-N"]
        assert await at.children("T", depth=2) == ["n-N", "p-P", "p-Q"]
        assert await at.children("T", depth=None, entity_class="NODE_EDGE_POINT") == ["p-P", "p-Q"]
        await at.commit(end("ports", "p-P", 9))
        assert await at.children("N") == ["p-Q"]


async def test_an_entity_that_moves_leaves_its_old_place(database: str) -> None:
    async with network(database) as at:
        await at.commit(port("P"))
        moved = statement("ports", "p-P", "NODE_EDGE_POINT", {"uuid": "P"}, TOPOLOGY, at=5)
        await at.commit(moved)
        assert (await at.children("N"), await at.children("T")) == ([], ["p-P"])


async def test_a_reference_that_is_no_longer_stated_is_gone(database: str) -> None:
    async with network(database) as at:
        await at.commit(link("P", "Q"))
        await at.commit(link("Q", at=4))
        assert {target for *_, target in await at.dangling()} == {"Q", "T"}
        # An older record changes nothing.
        await at.commit(link("P", at=2))
        assert {target for *_, target in await at.dangling()} == {"Q", "T"}


async def test_a_sweep_takes_places_and_references_away(database: str) -> None:
    async with network(database) as at:
        await at.commit(port("P"), port("Q", 3, x={"node-uuid": "Z"}))
        at.attempt = 2
        await at.commit(port("P", 4), sweep=2)
        assert (await at.children("N"), await at.dangling()) == (["p-P"], [])


async def test_3_10_1_a_local_class_is_found_by_its_place(database: str) -> None:
    route = ("connection-uuid:C", "route-local-id:1")
    async with network(database) as at:
        hop = statement("local", "h", "HOP", {"local-id": "7"}, *route, at=1)
        await at.commit(hop)
        assert await at.path("C/1/7") == [
            ("connection-uuid", "C", False),
            ("route-local-id", "C/1", False),
        ]
        await at.commit(statement("local", "r", "ROUTE", {"local-id": "1"}, route[0], at=2))
        assert await at.skeletons() == [("C", "connection-uuid", "", 2)]
        assert await at.children("C/1") == ["h"]


async def test_an_entity_that_stands_in_several_places_is_below_each(database: str) -> None:
    async with network(database) as at:
        body = {"uuid": "P"}
        further = [["topology-uuid:U", "node-uuid:M"]]
        await at.commit(
            statement("ports", "p", "NODE_EDGE_POINT", body, TOPOLOGY, NODE, further=further)
        )
        assert await at.children("N") == await at.children("M") == ["p"]
        assert await at.children("U", depth=2) == ["p"]


async def test_another_consumer_of_the_store_resolves_nothing(database: str) -> None:
    async with network(database) as at, SqlStore(database) as other:
        await other.open("west")
        await at.commit(port("P"))
        west = Network(other)
        await west.commit(node())
        assert ("N", "node-uuid", "T", 1) in await at.skeletons()
        assert [r async for r in derived.referrers(at.reader, "N", consumer="west")] == []
        # An end there does not change the ages here.
        (before,) = [
            s.since_us async for s in derived.skeletons(at.reader, consumer="east") if s.uuid == "N"
        ]
        await west.commit(end("nodes", "n-N", 9))
        (after,) = [
            s.since_us async for s in derived.skeletons(at.reader, consumer="east") if s.uuid == "N"
        ]
        assert after == before


@pytest.mark.parametrize(
    ("body", "envelope"),
    [
        (b"no JSON", b"no JSON"),
        (b'{"a-uuid":"\\u0000"}', b'{"parent-address":"text"}'),
        (b'{"a-uuid":7,"b-uuid":null,"c-uuid":"","d-uuid":["x"]}', b'{"parent-address":[1,null]}'),
        (b"[]", b'{"further-parent-addresses":[1]}'),
        (b'{"a-uuid":"\xff"}', b'{"parent-address":["\xff"]}'),
    ],
)
async def test_what_states_no_reference_is_stored_all_the_same(
    database: str, body: bytes, envelope: bytes
) -> None:
    async with network(database) as at:
        await at.commit(create_update("k", 1, body, envelope=envelope))
        await at.commit(create_update("k", 2, b"{}", envelope=b"{}"))
        assert [e.key async for e in at.reader.entities()] == ["k"]
        assert (await at.dangling(), await at.skeletons()) == ([], [])


async def test_turned_on_they_are_built_from_what_is_stored_and_turned_off_they_are_gone(
    database: str,
) -> None:
    async with network(database, references=None) as at:
        await at.commit(port("P"))
        await at.commit(link("P", "Q"))
        with pytest.raises(DerivationOffError, match="keeps no references") as caught:
            await at.skeletons()
        assert "references = true" in str(caught.value.hint)
    async with network(database) as at:
        assert await at.children("N") == ["p-P"]
        assert len(await at.dangling()) == 2
    # A process that does not say keeps them as they are.
    async with network(database, references=None) as at:
        await at.commit(port("P", 4))
        await at.commit(end("links", "l-L", 9))
        assert (await at.children("N"), await at.dangling()) == (["p-P"], [])
    async with network(database, references=False) as at:
        with pytest.raises(DerivationOffError):
            await at.path("P")
        await at.commit(port("P", 10))
    reader = sink.reader(database)
    with pytest.raises(DerivationOffError):
        await derived.path(reader, "P")
    await reader.close()


async def test_a_process_that_does_not_follow_yet_is_told_and_catches_up(database: str) -> None:
    async with network(database, references=None) as at:
        await at.commit(port("P"))
        async with network(database):
            assert await at.children("N") == ["p-P"]
        await at.commit(port("Q", 4))
        with pytest.raises(DerivationOffError, match="not all are derived") as caught:
            await at.children("N")
        assert "'east'" in str(caught.value.hint)
        # The other streams of the consumer, and a new start, follow.
    async with network(database, references=None) as at:
        await at.commit(port("P", 5))
        assert await at.children("N") == ["p-P", "p-Q"]


async def test_a_replayed_record_is_followed(database: str) -> None:
    async with network(database) as at:
        await at.commit(port("P"), unreadable=[Unreadable("ports", b"x", "no entity-key", None)])
        (kept,) = [q.id async for q in at.reader.quarantine()]
        assert await at.reader.replay(kept, RecordChunk([port("Q", 3)])) == 1
        assert await at.children("N") == ["p-P", "p-Q"]


@pytest.mark.parametrize("seed", range(8))
async def test_in_any_order_of_arrival_they_are_what_the_entities_state(
    database: str, seed: int
) -> None:
    chance = random.Random(seed)
    async with network(database) as at:
        for step in range(25):
            stream = chance.choice(("one", "two", "three"))
            batch = [_any(chance, stream, step * 20 + n) for n in range(chance.randint(1, 20))]
            await at.commit(*batch)
            entities = await at.entities()
            assert await at.dangling() == expected_dangling(entities), f"seed {seed}"
            assert await at.skeletons() == expected_skeletons(entities), f"seed {seed}"


def _any(chance: random.Random, stream: str, at: int) -> Record:
    """A statement about one of few entities, or its end."""
    number = chance.randrange(12)
    name, entity_class = f"{stream}-{number}", "NODE" if number % 5 else "PART"
    if chance.random() < 0.25:
        return end(stream, name, at)
    some = [f"{one}-{n}" for one in ("one", "two", "three") for n in range(12)]
    address = [f"node-uuid:{uuid}" for uuid in chance.sample(some, chance.randrange(3))]
    if address and chance.random() < 0.3:
        address.append(f"rule-local-id:{chance.randrange(3)}")
    refers = [{"node-uuid": chance.choice(some)} for _ in range(chance.randrange(3))]
    body: dict[str, Any] = {
        "at": at,
        "to": refers,
        "deep": {"of.it": {"link-uuid": name}},
        "n2": {"x1": refers},
    }
    if entity_class == "NODE":
        body["uuid"] = name
    return statement(stream, name, entity_class, body, *address, at=at)


async def test_what_a_sweep_takes_from_an_entity_takes_its_references(stage: Stages) -> None:
    def part(key: str, at: int, body: dict[str, Any]) -> Record:
        return create_update(key, at, json.dumps(body).encode(), whole=False)

    async with stage(stream=CHANGE_ONLY, references=True) as at:
        await at.commit(part("u1", 1, {"uuid": "u1"}))
        await at.commit(part("u1/port/1", 2, {"port": [{"local-id": "1", "link-uuid": "A"}]}))
        reader = at.store.reader
        assert [r.target async for r in derived.dangling(reader)] == ["A"]
        at.attempt = 2
        await at.commit(part("u1", 3, {"uuid": "u1"}))
        await at.commit(sweep=SweepStep(2))
        assert [r.target async for r in derived.dangling(reader)] == []


async def test_a_repair_of_an_audit_is_followed(stage: Stages) -> None:
    right = create_update("u", 1, b'{"uuid":"u","at":{"link-uuid":"right"}}')
    wrong = b'{"uuid":"u","at":{"link-uuid":"wrong"}}'
    async with stage(references=True) as at, at.store.audit(stream_info()) as marks:
        one = Audited(at, marks)
        await one.commit(right)
        await one.behind("UPDATE instep_entity SET body = :body", body=wrong)
        await marks.mark([right])
        position = await marks.suspect()
        await marks.judge(bogus=True)
        assert await marks.repair(position) == 1
        assert [r.target async for r in derived.dangling(at.store.reader)] == ["right"]


@pytest.mark.parametrize("length", [400, 3_000, 20_000])
async def test_what_is_too_long_for_an_index_stops_no_commit(length: int, database: str) -> None:
    """An index of PostgreSQL holds no entry of more than 2,704 bytes, whatever a provider says."""
    chance = random.Random(length)
    long = "".join(chance.choices(string.ascii_letters + "äöü€", k=length))
    body = {"uuid": "P", long: {"x-uuid": "a"}, "y": {f"{long}-uuid": "b"}, "z": {"z-uuid": long}}
    local = [f"a-local-id:{long}", f"b-local-id:{long}"]
    async with network(database) as at:
        await at.commit(
            statement("ports", "p", "NODE_EDGE_POINT", body, f"node-uuid:{long}", *local),
            statement("ports", "q", "NODE_EDGE_POINT", {"uuid": "Q", "r-uuid": "P"}, NODE),
        )
        found = [one async for one in derived.references(at.reader, "Q")]
        assert [(one.name, one.known) for one in found] == [("r-uuid", True)]
        if length == 400:
            assert len([one async for one in derived.references(at.reader, "P")]) == 3
            assert [one.uuid for one in await derived.path(at.reader, "P")] == [long]
