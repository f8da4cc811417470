"""An entity is one row, whatever key, class or spelling it is stated by (A13)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest

from instep.model.records import Record, RecordType
from instep.model.streams import Mode
from tests.instep_sql.store_kit import (
    BASELINE,
    Stage,
    Stages,
    baseline_row,
    columns_of,
    create_update,
    end_record,
    stream_info,
)

pytestmark = pytest.mark.asyncio

UPPER, LOWER = "AAAAAAAA-0000-4000-8000-00000000000A", "aaaaaaaa-0000-4000-8000-00000000000a"
MIXED = stream_info(classes=("NODE", "DEVICE"))
MIXED_BASELINE = stream_info(mode=Mode.BASELINE, classes=("NODE", "DEVICE"))


def node(at: int, **more: Any) -> Record:
    return create_update("x", at, b'{"uuid":"x","of":"node"}', **more)


def device(at: int, **more: Any) -> Record:
    return create_update("x", at, b'{"uuid":"x","of":"device"}', entity_class="DEVICE", **more)


async def classes(at: Stage) -> list[tuple[str, str]]:
    """Class and body of each row."""
    rows = (await at.entities()).values()
    return sorted((one.entity_class, json.loads(one.body).get("of", "")) for one in rows)


async def deviations(at: Stage) -> dict[str, int]:
    [status] = await at.store.reader.streams()
    return status.deviations


BOTH = [("DEVICE", "device"), ("NODE", "node")]


@pytest.mark.parametrize("journal", ["off", "changes", "previous"])
@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("as_columns", [False, True])
async def test_two_classes_under_one_key_are_two_entities(
    stage: Stages, journal: str, batches: int, *, as_columns: bool
) -> None:
    def records(*stated: Record) -> Sequence[Record]:
        return columns_of(stated) if as_columns else list(stated)

    async with stage(stream=MIXED, journal=journal) as at:
        if batches == 1:
            await at.commit(node(1), records=records(node(1), device(2)))
        else:
            await at.commit(node(1), records=records(node(1)))
            await at.commit(device(2), records=records(device(2)))
        assert await classes(at) == BOTH
        assert await deviations(at) == {"key-shared": 1}
        # Each goes on by itself.
        await at.commit(node(3), records=records(node(3), device(4)))
        assert await classes(at) == BOTH
        if journal != "off":
            made = [change for _, change in await at.journal() if change == "created"]
            assert len(made) == 2


@pytest.mark.parametrize("ended", ["NODE", "DEVICE"])
@pytest.mark.parametrize("at_once", [True, False])
async def test_the_end_of_one_class_is_not_that_of_the_other(
    stage: Stages, ended: str, *, at_once: bool
) -> None:
    ends = [
        end_record("x", 5, entity_class=ended),
        end_record("x", 6, RecordType.TOMBSTONE),
    ]
    left = [one for one in BOTH if one[0] != ended]
    async with stage(stream=MIXED) as at:
        await at.commit(node(1), device(2))
        for batch in [ends] if at_once else [[one] for one in ends]:
            await at.commit(*batch)
            assert await classes(at) == left
        # A second tombstone is that of what is left.
        if ended == "DEVICE":
            await at.commit(end_record("x", 7, RecordType.TOMBSTONE))
            assert await classes(at) == []
        else:
            await at.commit(device(8))
            assert await classes(at) == left


async def test_a_process_that_goes_on_knows_which_keys_are_shared(stage: Stages) -> None:
    async with stage(stream=MIXED) as at:
        await at.commit(node(1), device(2))
        await at.store.position(MIXED)
        at.store._streams.clear()
        await at.commit(end_record("x", 3, entity_class="NODE"))
        await at.commit(device(4))
        assert await classes(at) == [("DEVICE", "device")]


async def test_two_classes_of_a_baseline_stay_two_when_a_record_comes(stage: Stages) -> None:
    """The GETs of two resources show one each, then the stream states one of them."""
    async with stage(stream=MIXED_BASELINE) as at:
        await at.commit(baseline_row("x", 10, b'{"of":"node"}'), by_uuid=True)
        of_device = {"entity_class": "DEVICE"}
        row = baseline_row("x", 10, b'{"of":"device"}', **of_device)
        await at.commit(Record(**{**_fields(row), "key": "device-uuid:x"}), by_uuid=True)
        assert await classes(at) == BOTH
        await at.commit(device(11, uuid="x"), by_uuid=True)
        assert await classes(at) == BOTH
        await at.commit(node(12, uuid="x"), by_uuid=True)
        assert await classes(at) == BOTH
        assert (await deviations(at))["key-shared"] >= 1


END_OF_NODE = [
    pytest.param([end_record("x", 5, RecordType.TOMBSTONE, entity_class="NODE")], id="tombstone"),
    pytest.param([end_record("x", 5, entity_class="NODE", uuid="x")], id="with its uuid"),
    pytest.param(
        [
            end_record("x", 5, entity_class="NODE", uuid="x"),
            end_record("x", 6, RecordType.TOMBSTONE, entity_class="NODE"),
        ],
        id="both",
    ),
]


@pytest.mark.parametrize("ends", END_OF_NODE)
@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("mode", list(Mode))
async def test_what_states_its_class_ends_no_other(
    stage: Stages, ends: list[Record], *, at_once: bool, mode: Mode
) -> None:
    """However the log is cut, and though what ended was made and ended in one commit."""
    stream = stream_info(mode=mode, classes=("NODE", "DEVICE"))
    uuid = {"uuid": "x"} if mode is Mode.BASELINE else {}
    made = [device(1, **uuid), node(2, **uuid)]
    async with stage(stream=stream) as at:
        by_uuid = mode is Mode.BASELINE
        await at.commit(made[0], by_uuid=by_uuid)
        for batch in [[made[1], *ends]] if at_once else [[one] for one in (made[1], *ends)]:
            await at.commit(*batch, by_uuid=by_uuid)
        assert await classes(at) == [("DEVICE", "device")]


@pytest.mark.parametrize("mode", list(Mode))
async def test_the_end_of_a_class_that_is_not_stored_ends_nothing(
    stage: Stages, mode: Mode
) -> None:
    stream = stream_info(mode=mode, classes=("NODE", "DEVICE"))
    async with stage(stream=stream) as at:
        by_uuid = mode is Mode.BASELINE
        await at.commit(device(1, uuid="x" if by_uuid else ""), by_uuid=by_uuid)
        await at.commit(end_record("x", 5, entity_class="NODE"), by_uuid=by_uuid)
        assert await classes(at) == [("DEVICE", "device")]


def _fields(record: Record) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


@pytest.mark.parametrize(("first", "then"), [(UPPER, LOWER), (LOWER, UPPER)])
async def test_rfc_4122_3_the_case_of_a_uuid_does_not_matter(
    stage: Stages, first: str, then: str
) -> None:
    async with stage(stream=BASELINE) as at:
        await at.commit(baseline_row(first, 10), by_uuid=True)
        await at.commit(create_update(then, 11, b'{"now":1}', uuid=then), by_uuid=True)
        assert await at.bodies() == {then: b'{"now":1}'}
        assert await deviations(at) == {"uuid-case": 1}
        # Another process, and the next baseline.
        at.store._streams.clear()
        at.attempt = 2
        await at.commit(baseline_row(first, 12), by_uuid=True)
        assert list(await at.entities()) == [then]
        await at.commit(end_record(then, 13), by_uuid=True)
        assert await at.entities() == {}


async def test_what_is_no_uuid_has_its_case(stage: Stages) -> None:
    async with stage(stream=BASELINE) as at:
        await at.commit(baseline_row("n1", 10), baseline_row("N1", 10), by_uuid=True)
        assert sorted(await at.entities()) == ["N1", "n1"]


async def test_an_entity_made_anew_under_its_uuid_with_a_new_key_is_one_row(stage: Stages) -> None:
    """Its end and new beginning are still in the log when the baseline has shown it (3.8.1.2)."""
    async with stage(stream=BASELINE) as at:
        await at.commit(create_update("k1", 5, b'{"of":"first"}', uuid="u"), by_uuid=True)
        at.attempt = 2
        await at.commit(baseline_row("u", 50), by_uuid=True)
        await at.commit(
            end_record("k1", 20),
            end_record("k1", 21, RecordType.TOMBSTONE),
            create_update("k2", 30, b'{"of":"second"}', uuid="u"),
            by_uuid=True,
        )
        assert {e.uuid for e in (await at.entities()).values()} == {"u"}
        assert list(await at.entities()) == ["k2"]
        await at.commit(end_record("k2", 60), by_uuid=True)
        assert await at.entities() == {}


PARTS = stream_info(mode=Mode.BASELINE, partial_updates=True)


def change(key: str, at: int, body: bytes, **more: Any) -> Record:
    return create_update(key, at, body, whole=False, **more)


async def test_3_8_2_2_a_change_of_an_unknown_entity_makes_none(stage: Stages) -> None:
    """It is old: the baseline does not show the entity any more."""
    async with stage(stream=PARTS) as at:
        await at.commit(baseline_row("other", 10), by_uuid=True)
        stub = b'{"uuid":"u","operational-state":"DISABLED"}'
        await at.commit(change("k1/operational-state", 11, stub, uuid="u"), by_uuid=True)
        await at.commit(end_record("k1", 12), by_uuid=True)
        assert list(await at.entities()) == ["other"]


async def test_3_8_2_2_what_is_created_is_no_change_of_a_part(stage: Stages) -> None:
    """Also under a key with separators."""
    async with stage(stream=PARTS) as at:
        whole = b'{"uuid":"u","operational-state":"ENABLED"}'
        await at.commit(change("net/k1", 11, whole, uuid="u"), by_uuid=True)
        stub = b'{"uuid":"u","operational-state":"DISABLED"}'
        await at.commit(change("net/k1/operational-state", 12, stub, uuid="u"), by_uuid=True)
        [entity] = (await at.entities()).values()
        assert json.loads(entity.body)["operational-state"] == "DISABLED"


async def test_st_4_2_what_an_instance_ends_under_a_key_of_its_own_is_gone(stage: Stages) -> None:
    """Its log states the entity, and then its end, under another key than that of the store."""
    async with stage(stream=stream_info(partial_updates=True)) as at:
        await at.commit(change("b1", 5, b'{"uuid":"y","a":1,"left":2}', uuid="y"))
        await at.commit(change("b2", 6, b'{"uuid":"z","a":1,"left":2}', uuid="z"))
        at.attempt, at.lineage = 2, 2
        await at.commit(
            change("a1", 1, b'{"uuid":"y","a":1}', uuid="y"),
            change("a2", 2, b'{"uuid":"z","a":1}', uuid="z"),
            change("a2/a", 3, b'{"uuid":"z","a":7}', uuid="z"),
        )
        await at.commit(end_record("a1", 4))
        await at.commit(end_record("a1", 5, RecordType.TOMBSTONE))
        [entity] = (await at.entities()).values()
        assert (entity.uuid, entity.entity_class) == ("z", "NODE")


MIXED_CASE = "AAAAaaaa-0000-4000-8000-00000000000a"


@pytest.mark.parametrize(("first", "then"), list(permutations((UPPER, LOWER, MIXED_CASE), 2)))
async def test_rfc_4122_3_of_parts_and_places_too(stage: Stages, first: str, then: str) -> None:
    """A CHANGE_ONLY stream names an entity by its uuid, in another case than the baseline does."""
    async with stage(stream=PARTS) as at:
        await at.commit(baseline_row(first, 10, b'{"a":1,"left":2}'), by_uuid=True)
        at.store._streams.clear()
        part = create_update("k/a", 11, b'{"uuid":"%s","a":7}' % then.encode(), uuid=then)
        await at.commit(_with(part, whole=False), by_uuid=True)
        [entity] = (await at.entities()).values()
        stated = json.loads(entity.body)
        assert (stated["a"], stated["left"]) == (7, 2)


@pytest.mark.parametrize("mode", list(Mode))
async def test_parts_of_two_classes_under_one_uuid_are_of_two_entities(
    stage: Stages, mode: Mode
) -> None:
    """Each has a key of its own, and states the uuid (A13)."""
    both = ("NODE", "DEVICE")
    by_uuid = mode is Mode.BASELINE
    async with stage(stream=stream_info(mode=mode, classes=both, partial_updates=True)) as at:
        stated = [
            _with(change("n", 1, b'{"uuid":"x","of":"node"}', uuid="x")),
            _with(change("d", 2, b'{"uuid":"x","of":"device"}', uuid="x"), entity_class="DEVICE"),
        ]
        await at.commit(*stated, by_uuid=by_uuid)
        assert await classes(at) == BOTH
        at.store._streams.clear()
        part = change("d/a", 3, b'{"uuid":"x","a":1}', uuid="x")
        await at.commit(_with(part, entity_class="DEVICE"), by_uuid=by_uuid)
        bodies = {one.entity_class: json.loads(one.body) for one in (await at.entities()).values()}
        assert bodies["DEVICE"] == {"uuid": "x", "of": "device", "a": 1}
        assert bodies["NODE"] == {"uuid": "x", "of": "node"}
        await at.commit(end_record("d", 4, uuid="x", entity_class="DEVICE"), by_uuid=by_uuid)
        assert await classes(at) == [("NODE", "node")]


@pytest.mark.parametrize("given", [UPPER, LOWER])
async def test_rfc_4122_3_an_entity_is_found_by_its_uuid_in_either_case(
    stage: Stages, given: str
) -> None:
    async with stage(stream=BASELINE) as at:
        await at.commit(baseline_row(UPPER, 10), by_uuid=True)
        assert [one.key async for one in at.store.reader.entities(key=given)] == [UPPER]


def _with(record: Record, **changes: Any) -> Record:
    return Record(**{**_fields(record), **changes})
