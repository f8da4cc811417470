"""CHANGE_ONLY: entities composed of changes (TR-548 3.8.2.2)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from instep.model.batches import SweepStep
from instep.model.entities import ChangeKind
from instep.model.records import Record, RecordType
from instep.model.streams import Mode
from tests.instep_sql.store_kit import (
    CHANGE_ONLY,
    ON_SQLITE,
    Stage,
    Stages,
    baseline_row,
    create_update,
    end_record,
    stream_info,
)

pytestmark = pytest.mark.asyncio

NODE = {
    "uuid": "u1",
    "name": [{"value-name": "label", "value": "Bern"}],
    "state": {"admin": "UNLOCKED", "oper": "ENABLED"},
    "port": [{"local-id": "1", "speed": 10}, {"local-id": "2", "speed": 10}],
    "tags": ["a", "b"],
}


def part(key: str, at: int, body: Any, **changes: Any) -> Record:
    return create_update(key, at, msgspec.json.encode(body), whole=False, **changes)


async def only(at: Stage) -> Any:
    (entity,) = (await at.entities()).values()
    return msgspec.json.decode(entity.body)


async def test_the_first_statement_is_whole_and_stays_verbatim(stage: Stages) -> None:
    async with stage(stream=CHANGE_ONLY) as at:
        await at.commit(create_update("u1", 1, b'{ "uuid": "u1" }', whole=False))
        assert await at.bodies() == {"u1": b'{ "uuid": "u1" }'}


@ON_SQLITE
@pytest.mark.parametrize("key", ["u1/port/1", "u1:port:1", "u1|1", "other-key"])
async def test_a_change_goes_into_its_entity(stage: Stages, key: str) -> None:
    async with stage(stream=CHANGE_ONLY) as at:
        await at.commit(part("u1", 1, NODE))
        change = {"uuid": "u1", "port": [{"local-id": "1", "speed": 40}]}
        result = await at.commit(part(key, 2, change))
        expected = NODE | {"port": [{"local-id": "1", "speed": 40}, {"local-id": "2", "speed": 10}]}
        assert (await only(at), result.written) == (expected, 1)
        (entity,) = (await at.entities()).values()
        assert (entity.key, entity.token, entity.appended_at_us) == ("u1", "t2", 2)


async def test_statements_of_one_key_are_merged_deep(stage: Stages) -> None:
    async with stage(stream=CHANGE_ONLY) as at:
        await at.commit(part("u1", 1, NODE), part("u1", 2, {"state": {"oper": "DISABLED"}}))
        await at.commit(part("u1", 3, {"tags": ["c"], "new": {"x": 1}}))
        assert await only(at) == NODE | {
            "state": {"admin": "UNLOCKED", "oper": "DISABLED"},
            "tags": ["c"],
            "new": {"x": 1},
        }


async def test_parts_are_merged_in_the_order_of_the_log_not_of_arrival(stage: Stages) -> None:
    async with stage(stream=CHANGE_ONLY) as at:
        await at.commit(part("u1", 1, NODE), part("u1/b", 9, {"v": 9}), part("u1/a", 5, {"v": 5}))
        assert (await only(at))["v"] == 9


async def test_a3_an_older_change_of_a_key_is_ignored(stage: Stages) -> None:
    async with stage(stream=CHANGE_ONLY) as at:
        await at.commit(part("u1", 1, NODE), part("u1/a", 9, {"v": 9}))
        await at.commit(part("u1/a", 5, {"v": 5}))
        assert (await only(at))["v"] == 9


async def test_the_end_of_a_part_takes_it_and_its_tombstone_nothing_more(stage: Stages) -> None:
    async with stage(stream=CHANGE_ONLY) as at:
        port = {"port": [{"local-id": "1", "speed": 40}]}
        await at.commit(part("u1", 1, NODE), part("u1/port/1", 2, port))
        await at.commit(end_record("u1/port/1", 3))
        # The base has the port, too.
        left = NODE | {"port": [{"local-id": "2", "speed": 10}]}
        assert await only(at) == left
        await at.commit(end_record("u1/port/1", 4, RecordType.TOMBSTONE))
        assert await only(at) == left
        assert [q async for q in at.store.reader.quarantine()] == []


async def test_a_part_that_comes_before_its_base_is_no_entity_of_its_own(stage: Stages) -> None:
    async with stage(stream=CHANGE_ONLY) as at:
        # As a compacted log has them, where the base was stated again.
        await at.commit(part("u1/a", 2, {"uuid": "u1", "a": 1}))
        await at.commit(part("u1", 5, {"uuid": "u1", "b": 2}))
        await at.commit(part("u1/a", 7, {"uuid": "u1", "a": 3}))
        assert await only(at) == {"uuid": "u1", "a": 3, "b": 2}


BY_BASELINE = stream_info(mode=Mode.BASELINE, partial_updates=True)


@pytest.mark.parametrize("key", ["u1", "k"])
@pytest.mark.parametrize("lineage", [0, 1])
async def test_3_8_2_2_a_change_under_the_key_of_its_entity_keeps_what_a_baseline_showed(
    stage: Stages, key: str, lineage: int
) -> None:
    """Only a compacted log must have another key for it."""
    async with stage(stream=BY_BASELINE) as at:
        for at.attempt in (1, 2):
            await at.commit(baseline_row("u1", 10, b'{"a":1,"b":2}'), by_uuid=True, lineage=lineage)
            for n in (11, 12):
                change = part(key, 10 * at.attempt + n, {"uuid": "u1", "b": n}, uuid="u1")
                await at.commit(change, by_uuid=True)
                assert await only(at) == {"uuid": "u1", "a": 1, "b": n}


async def test_a21_a_change_in_order_of_arrival_keeps_what_was_stated(stage: Stages) -> None:
    """Without offsets, and by a clock that has gone back."""
    async with stage(stream=CHANGE_ONLY) as at:
        await at.commit(part("u1", 10, {"uuid": "u1", "a": 1, "b": 2}))
        for number, (at_s, lineage) in enumerate([(5, -11), (6, -12), (13, None)], 3):
            more = {} if lineage is None else {"lineage": lineage}
            await at.commit(part("u1", at_s, {"uuid": "u1", "b": number}), **more)
            assert await only(at) == {"uuid": "u1", "a": 1, "b": number}


async def test_the_end_of_an_entity_that_was_there_before_takes_its_parts(stage: Stages) -> None:
    async with stage(stream=CHANGE_ONLY) as at:
        log = (
            *(part("u1", 1, {"uuid": "u1"}), part("u1/a", 2, {"uuid": "u1", "a": 1})),
            *(end_record("u1", 3), part("u1", 4, {"uuid": "u1", "b": 2})),
        )
        for at.attempt in (1, 2):
            for record in log:
                await at.commit(record)
            await at.commit(sweep=SweepStep(at.attempt))
            assert await only(at) == {"uuid": "u1", "b": 2}


async def test_a_part_that_has_ended_does_not_come_back_with_an_older_statement(
    stage: Stages,
) -> None:
    async with stage(stream=CHANGE_ONLY) as at:
        log = (part("u1", 1, NODE), part("u1/a", 2, {"a": {"x": 1}}), end_record("u1/a", 3))
        await at.commit(*log)
        for again in (*log[1:], part("u1/a/x", 2, {"a": {"x": 5}})):
            await at.commit(again)
            assert await only(at) == NODE
        at.attempt = 2
        for again in log:
            await at.commit(again)
            assert await only(at) == NODE
        assert [q async for q in at.store.reader.quarantine()] == []


@ON_SQLITE
@pytest.mark.parametrize(
    ("key", "gone"),
    [
        ("u1/state/oper", {"state": {"admin": "UNLOCKED"}}),
        ("u1/port/2", {"port": [{"local-id": "1", "speed": 10}]}),
        ("u1/2", {"port": [{"local-id": "1", "speed": 10}]}),
        ("u1/port=1/speed", {"port": [{"local-id": "1"}, {"local-id": "2", "speed": 10}]}),
        ("u1:name:label", {"name": []}),
    ],
)
async def test_a_tombstone_removes_a_sub_tree_of_the_base(
    stage: Stages, key: str, gone: dict[str, Any]
) -> None:
    async with stage(stream=CHANGE_ONLY) as at:
        await at.commit(part("u1", 1, NODE))
        await at.commit(end_record(key, 2), end_record(key, 3, RecordType.TOMBSTONE))
        assert await only(at) == NODE | gone
        assert [q async for q in at.store.reader.quarantine()] == []


async def test_a_tombstone_that_names_nothing_is_quarantined(stage: Stages) -> None:
    async with stage(stream=CHANGE_ONLY) as at:
        await at.commit(part("u1", 1, NODE))
        await at.commit(end_record("u1/nothing/here", 2))
        assert await only(at) == NODE
        (kept,) = [q async for q in at.store.reader.quarantine()]
        assert "names nothing in entity 'u1'" in kept.reason
        assert b"u1/nothing/here" in kept.raw


async def test_a_change_that_is_no_object_is_quarantined(stage: Stages) -> None:
    async with stage(stream=CHANGE_ONLY) as at:
        await at.commit(part("u1", 1, NODE), create_update("u1/a", 2, b"[1]", whole=False))
        assert await only(at) == NODE
        assert [q.token async for q in at.store.reader.quarantine()] == ["t2"]


async def test_the_end_of_the_entity_takes_all_its_parts(stage: Stages) -> None:
    async with stage(stream=CHANGE_ONLY) as at:
        await at.commit(part("u1", 1, NODE), part("u1/a", 2, {"v": 1}))
        assert (await at.commit(end_record("u1", 3))).deleted == 1
        await at.commit(part("u1", 4, {"uuid": "u1"}))
        assert await only(at) == {"uuid": "u1"}


async def test_an_attempt_replaces_what_its_keys_stated_and_sweeps_the_rest(stage: Stages) -> None:
    async with stage(stream=CHANGE_ONLY) as at:
        await at.commit(
            part("u1", 1, NODE | {"old": 1}),
            part("u1/a", 2, {"a": 1}),
            part("u1/b", 3, {"b": 1}),
            part("u2", 4, {"uuid": "u2"}),
            part("u2/a", 5, {"a": 1}),
        )
        at.attempt = 2
        await at.commit(part("u1", 6, NODE), part("u1/b", 3, {"b": 1}))
        await at.commit(sweep=SweepStep(2))
        assert await only(at) == NODE | {"b": 1}
        await at.commit(part("u2/a", 7, {"fresh": 1}))
        assert (await at.bodies())["u2/a"] == b'{"fresh":1}'


async def test_the_journal_has_composed_bodies(stage: Stages) -> None:
    async with stage(stream=CHANGE_ONLY, journal="bodies") as at:
        await at.commit(part("u1", 1, {"x": 1}), part("u1/a", 2, {"y": 2}), end_record("u1/a", 3))
        assert [(c.key, c.body) for c in await at.changes()] == [
            ("u1", b'{"x":1}'),
            ("u1", b'{"x":1,"y":2}'),
            ("u1", b'{"x":1}'),
        ]


async def test_a_whole_statement_holds_the_changes_before_it(stage: Stages) -> None:
    async with stage(stream=CHANGE_ONLY) as at:
        await at.commit(part("u1", 1, NODE), part("u1/a", 2, {"a": 1}), part("u1/b", 9, {"b": 1}))
        await at.commit(create_update("u1", 5, msgspec.json.encode({"uuid": "u1"})))
        assert await only(at) == {"uuid": "u1", "b": 1}


async def test_the_journal_has_what_the_sweep_took_from_an_entity(stage: Stages) -> None:
    async with stage(stream=CHANGE_ONLY, journal="previous") as at:
        await at.commit(part("u1", 1, {"x": 1}), part("u1/a", 2, {"y": 2}))
        at.attempt = 2
        await at.commit(part("u1", 1, {"x": 1}))
        await at.commit(sweep=SweepStep(2))
        last = (await at.changes())[-1]
        assert (last.change, last.kind) == (ChangeKind.UPDATED, None)
        assert (last.body, last.previous) == (b'{"x":1}', b'{"x":1,"y":2}')
        assert await only(at) == {"x": 1}


async def test_a_baseline_replaces_what_changes_have_made(stage: Stages) -> None:
    info = msgspec.structs.replace(CHANGE_ONLY, mode=Mode.BASELINE)
    async with stage(stream=info) as at:
        await at.commit(baseline_row("u1", 5, b'{"uuid":"u1","x":1}'), by_uuid=True)
        await at.commit(part("k1", 6, {"uuid": "u1", "y": 1}), by_uuid=True)
        assert await only(at) == {"uuid": "u1", "x": 1, "y": 1}
        at.attempt = 2
        await at.commit(baseline_row("u1", 7, b'{"uuid":"u1","x":2}'), by_uuid=True)
        assert await only(at) == {"uuid": "u1", "x": 2}
        await at.commit(end_record("u1", 8), by_uuid=True)
        assert await at.entities() == {}


@ON_SQLITE
@pytest.mark.parametrize("depth", [500, 950, 100_000])
async def test_a_deep_body_harms_nothing_else(stage: Stages, depth: int) -> None:
    deep = b'{"a":' * depth + b"1" + b"}" * depth
    async with stage(stream=CHANGE_ONLY) as at:
        await at.commit(
            create_update("u1", 1, deep, whole=False), create_update("u1/a", 2, deep, whole=False)
        )
        await at.commit(part("u2", 3, {"ok": 1}))
        assert "u2" in await at.entities()


@pytest.mark.parametrize("other_attempt", [True, False])
async def test_a_tombstone_counts_again_when_the_base_was_stated_again(
    stage: Stages, other_attempt: bool
) -> None:
    async with stage(stream=CHANGE_ONLY) as at:
        await at.commit(part("u1", 1, NODE), end_record("u1/state", 2))
        assert "state" not in await only(at)
        at.attempt += other_attempt
        await at.commit(part("u1", 1, NODE))
        assert "state" not in await only(at)
        await at.commit(part("u1", 3, NODE))
        assert "state" in await only(at)
        await at.commit(end_record("u1/state", 4))
        assert "state" not in await only(at)


async def test_an_entity_is_marked_by_its_base_though_newer_changes_have_ended(
    stage: Stages,
) -> None:
    async with stage(stream=CHANGE_ONLY, journal="changes") as at:
        await at.commit(part("u1", 1, NODE), part("u1/a", 5, {"a": 1}), end_record("u1/a", 6))
        assert await only(at) == NODE
        at.attempt = 2
        await at.commit(part("u1", 1, NODE))
        assert (await at.commit(sweep=SweepStep(2))).swept == 0
        assert [what for _, what in await at.journal()] == ["created", "updated", "updated"]


async def test_the_end_of_the_newest_change_is_written_across_batches(stage: Stages) -> None:
    async with stage(stream=CHANGE_ONLY) as at:
        await at.commit(part("u1", 1, NODE))
        await at.commit(part("u1/a", 5, {"a": 1}))
        await at.commit(end_record("u1/a", 6))
        assert await only(at) == NODE
        assert (await at.entities())["u1"].appended_at_us == 6


async def test_the_end_of_a_part_that_is_a_header_alone_leaves_the_class(stage: Stages) -> None:
    async with stage(stream=CHANGE_ONLY) as at:
        await at.commit(part("u1", 1, {"uuid": "u1"}), part("u1/x", 2, {"x": 1}))
        await at.commit(end_record("u1/x", 3, RecordType.TOMBSTONE, whole=False))
        (entity,) = (await at.entities()).values()
        assert (entity.entity_class, entity.body) == ("NODE", b'{"uuid":"u1"}')


async def test_an_entity_that_comes_again_under_another_key_is_a_new_one(stage: Stages) -> None:
    async with stage(stream=CHANGE_ONLY) as at:
        await at.commit(part("k1", 1, {"uuid": "u1", "a": 1}))
        await at.commit(end_record("k1", 2, whole=False), part("k2", 3, {"uuid": "u1", "b": 2}))
        assert await at.bodies() == {"k2": b'{"uuid":"u1","b":2}'}


@ON_SQLITE
@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    ("log", "bodies"),
    [
        pytest.param(
            [part("n1", 1, {"uuid": "n1"}), part("n1/c1", 2, {"uuid": "c1", "y": 1})],
            {"n1": {"uuid": "n1"}, "n1/c1": {"uuid": "c1", "y": 1}},
            id="an entity whose key begins with that of another one",
        ),
        pytest.param(
            [
                *(part("u1", 1, {"uuid": "u1"}), part("u2", 2, {"uuid": "u2"})),
                *(part("x", 3, {"uuid": "u1", "a": 1}, uuid="u1"), end_record("x", 4)),
                part("x", 5, {"uuid": "u2", "a": 5}, uuid="u2"),
            ],
            {"u1": {"uuid": "u1"}, "u2": {"uuid": "u2", "a": 5}},
            id="the key of a part that has ended, of another entity",
        ),
        pytest.param(
            [
                *(part("n/m", 1, {"m": 1}), part("n", 2, {"keep": 2})),
                *(end_record("n/m", 3), part("n/m/x", 4, {"x": 4})),
            ],
            {"n": {"keep": 2, "x": 4}},
            id="a part below an entity that has ended, of the one above",
        ),
        pytest.param(
            [
                *(part("u1", 1, {"uuid": "u1"}), part("x", 2, {"uuid": "u1"}, uuid="u1")),
                *(end_record("u1", 3), part("x", 4, {"uuid": "u2"}, uuid="u2")),
            ],
            {"x": {"uuid": "u2"}},
            id="the key of a part of an entity that has ended",
        ),
    ],
)
async def test_what_a_key_means_does_not_depend_on_batches(
    stage: Stages, log: list[Record], bodies: dict[str, Any], at_once: bool
) -> None:
    async with stage(stream=CHANGE_ONLY) as at:
        for batch in [log] if at_once else [[record] for record in log]:
            await at.commit(*batch)
        found = await at.bodies()
        assert {key: msgspec.json.decode(body) for key, body in found.items()} == bodies


async def test_a_whole_history_that_is_read_again_loses_no_change(stage: Stages) -> None:
    async with stage(stream=CHANGE_ONLY) as at:
        log = (part("u1", 1, {"uuid": "u1", "a": 1}), part("u1", 5, {"b": 2}))
        for at.attempt in (1, 2):
            await at.commit(*log)
            await at.commit(sweep=SweepStep(at.attempt))
            assert await only(at) == {"uuid": "u1", "a": 1, "b": 2}
