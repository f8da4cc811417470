"""A stream joined with its baseline: one entity stays one row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine, event

from instep.model.batches import SweepStep
from instep.model.records import Record, RecordType
from instep.model.streams import Mode
from tests.instep_sql.store_kit import (
    BASELINE,
    Stage,
    Stages,
    baseline_row,
    create_update,
    end_record,
    stream_info,
)

pytestmark = pytest.mark.asyncio


async def rows(at: Stage) -> dict[str, tuple[str, bytes, int]]:
    return {k: (e.uuid, e.body, e.attempt) for k, e in (await at.entities()).items()}


async def test_a_row_of_the_baseline_takes_the_key_of_the_stream(stage: Stages) -> None:
    async with stage(stream=BASELINE) as at:
        await at.commit(baseline_row("u1", 10), by_uuid=True)
        assert await rows(at) == {"u1": ("u1", b'{"of":"get"}', 1)}
        result = await at.commit(create_update("k1", 11, b"{}", uuid="u1"), by_uuid=True)
        assert await rows(at) == {"k1": ("u1", b"{}", 1)}
        assert result.unresolved_keys == ()


async def test_a_baseline_goes_to_the_row_with_its_uuid(stage: Stages) -> None:
    async with stage(stream=BASELINE) as at:
        await at.commit(create_update("k1", 5, b"{}", uuid="u1"), by_uuid=True)
        at.attempt = 2
        await at.commit(baseline_row("u1", 10), by_uuid=True)
        assert await rows(at) == {"k1": ("u1", b'{"of":"get"}', 2)}


async def test_a_baseline_marks_but_does_not_overwrite_what_is_newer(stage: Stages) -> None:
    async with stage(stream=BASELINE) as at:
        await at.commit(create_update("k1", 50, b"{}", uuid="u1"), by_uuid=True)
        at.attempt = 2
        await at.commit(baseline_row("u1", 10), by_uuid=True)
        assert await rows(at) == {"k1": ("u1", b"{}", 2)}


async def test_both_in_one_batch_are_one_row(stage: Stages) -> None:
    async with stage(stream=BASELINE) as at:
        await at.commit(
            baseline_row("u1", 10), create_update("k1", 11, b"{}", uuid="u1"), by_uuid=True
        )
        await at.commit(
            create_update("k2", 11, b"{}", uuid="u2"), baseline_row("u2", 10), by_uuid=True
        )
        assert await rows(at) == {"k1": ("u1", b"{}", 1), "k2": ("u2", b"{}", 1)}


@pytest.mark.parametrize("newer_by_key", [True, False])
async def test_a_row_by_key_and_a_row_by_uuid_become_one(stage: Stages, newer_by_key: bool) -> None:
    async with stage(stream=BASELINE) as at:
        by_key = 20 if newer_by_key else 5
        await at.commit(
            create_update("k1", by_key, b'{"by":"key"}'), baseline_row("u1", 10), by_uuid=True
        )
        assert len(await rows(at)) == 2
        await at.commit(create_update("k1", 12, b'{"of":"both"}', uuid="u1"), by_uuid=True)
        expected = b'{"by":"key"}' if newer_by_key else b'{"of":"both"}'
        assert {k: body for k, (_, body, _) in (await rows(at)).items()} == {"k1": expected}


@pytest.mark.parametrize("key", ["k1", "u1"])
async def test_a_header_only_tombstone_finds_the_row(stage: Stages, key: str) -> None:
    async with stage(stream=BASELINE) as at:
        await at.commit(baseline_row("u1", 10), create_update("k1", 11, uuid="u1"), by_uuid=True)
        result = await at.commit(end_record(key, 12, RecordType.TOMBSTONE), by_uuid=True)
        assert (result.deleted, result.unresolved_keys) == (1, ())
        assert await rows(at) == {}


async def test_an_end_that_meets_nothing_is_reported_once(stage: Stages) -> None:
    async with stage(stream=BASELINE) as at:
        await at.commit(baseline_row("u1", 10), by_uuid=True)
        first = await at.commit(end_record("k1", 12), by_uuid=True)
        second = await at.commit(end_record("k1", 13, RecordType.TOMBSTONE), by_uuid=True)
        assert (first.unresolved_keys, second.unresolved_keys) == (("k1",), ())


async def test_an_end_that_meets_nothing_makes_the_stored_position_owe_a_baseline(
    stage: Stages,
) -> None:
    """The position is stored in the same transaction, because no later commit will report the
    end.
    """
    async with stage(stream=BASELINE) as at:
        await at.commit(baseline_row("u1", 10), by_uuid=True)
        assert not (await at.store.position(BASELINE)).baseline_pending
        await at.commit(end_record("k1", 12), by_uuid=True)
        stored = await at.store.position(BASELINE)
        assert stored == replace(at.position, baseline_pending=True)


async def test_an_end_of_a_known_entity_is_resolved_and_so_is_its_tombstone(stage: Stages) -> None:
    async with stage(stream=BASELINE) as at:
        first = await at.commit(create_update("k1", 1), end_record("k1", 2), by_uuid=True)
        second = await at.commit(end_record("k1", 3, RecordType.TOMBSTONE), by_uuid=True)
        assert first.unresolved_keys == second.unresolved_keys == ()


async def test_the_sweep_forgets_what_ended_before(stage: Stages) -> None:
    async with stage(stream=BASELINE) as at:
        await at.commit(create_update("k1", 1), end_record("k1", 2), by_uuid=True)
        at.attempt = 2
        await at.commit(sweep=SweepStep(2))
        await at.commit(baseline_row("u2", 2), by_uuid=True)
        assert (await at.commit(end_record("k1", 3), by_uuid=True)).unresolved_keys == ("k1",)


async def test_a_baseline_does_not_bring_back_what_ended_meanwhile(stage: Stages) -> None:
    async with stage(stream=BASELINE) as at:
        await at.commit(create_update("k1", 5, uuid="u1"), by_uuid=True)
        await at.commit(end_record("k1", 12), by_uuid=True)
        await at.commit(baseline_row("u1", 10), by_uuid=True)
        assert await rows(at) == {}
        await at.commit(baseline_row("u1", 20), by_uuid=True)
        assert list(await rows(at)) == ["u1"]


async def test_another_key_for_the_same_entity_is_the_same_row(stage: Stages) -> None:
    async with stage(stream=BASELINE) as at:
        await at.commit(create_update("k1", 5, uuid="u1"), by_uuid=True)
        await at.commit(create_update("k2", 6, uuid="u1"), by_uuid=True)
        late = await at.commit(end_record("k1", 7, RecordType.TOMBSTONE), by_uuid=True)
        assert (list(await rows(at)), late.unresolved_keys) == (["k2"], ())


async def test_keys_do_not_meet_uuids_in_other_streams(stage: Stages) -> None:
    async with stage() as at:
        await at.commit(create_update("k1", 5, uuid="u1"), create_update("k2", 6, uuid="u1"))
        assert list(await rows(at)) == ["k1", "k2"]


async def test_taking_the_key_of_the_stream_leaves_no_memory_behind(stage: Stages) -> None:
    async with stage(stream=BASELINE) as at:
        await at.commit(baseline_row("u1", 10), by_uuid=True)
        await at.commit(create_update("k1", 11, uuid="u1"), by_uuid=True)
        count = await at.store._database.run(
            lambda connection: connection.exec_driver_sql(
                "SELECT count(*) FROM instep_tombstone"
            ).scalar()
        )
        assert count == 0


def placed(parent: str, *further: str) -> bytes:
    """An envelope that names these parents."""
    stated: dict[str, Any] = {"parent-address": ["topology-uuid:t", parent]}
    if further:
        stated |= {"further-parent-addresses": [[one] for one in further]}
    return json.dumps(stated).encode()


def twice(*bodies: bytes, at: int = 10) -> list[Record]:
    """Rows of a baseline that state one uuid differently in the places n1, n2 …."""
    return [
        replace(
            baseline_row("u1", at, body, envelope=placed(f"node-uuid:n{n}")),
            key=f"topology-uuid:t+node-uuid:n{n}+node-rule-group-uuid:u1",
        )
        for n, body in enumerate(bodies, 1)
    ]


async def test_a13_3_8_1_2_one_uuid_stated_differently_is_one_row_a_place(stage: Stages) -> None:
    """Neither a third row comes, nor do two remain when the records of the log end both."""
    async with stage(stream=BASELINE) as at:
        await at.commit(*twice(b"1", b"2"), by_uuid=True)
        assert [(uuid, body) for uuid, body, _ in (await rows(at)).values()] == [
            ("u1", b"1"),
            ("u1", b"2"),
        ]
        second = {"uuid": "u1", "envelope": placed("node-uuid:n2")}
        await at.commit(create_update("k2", 11, b"22", **second), by_uuid=True)
        first = {"uuid": "u1", "envelope": placed("node-uuid:n1")}
        await at.commit(create_update("k1", 12, b"11", **first), by_uuid=True)
        assert await at.bodies() == {"k1": b"11", "k2": b"22"}
        at.attempt = 2
        await at.commit(*twice(b"11", b"23", at=20), by_uuid=True)
        assert {k: (b, n) for k, (_, b, n) in (await rows(at)).items()} == {
            "k1": (b"11", 2),
            "k2": (b"23", 2),
        }
        await at.commit(end_record("k1", 30, RecordType.TOMBSTONE), by_uuid=True)
        await at.commit(create_update("k1", 31, b"12", **first), by_uuid=True)
        assert await at.bodies() == {"k1": b"12", "k2": b"23"}
        await at.commit(end_record("k1", 32), end_record("k2", 33), by_uuid=True)
        assert await rows(at) == {}


def one_of_two(n: int) -> tuple[str, bytes]:
    """Key and envelope of the statement of u1 below node n: the key is the whole address."""
    return f"topology-uuid:t+node-uuid:n{n}+node-rule-group-uuid:u1", placed(f"node-uuid:n{n}")


async def test_a13_the_end_at_one_place_finds_the_row_that_a_baseline_knows_by_uuid(
    stage: Stages,
) -> None:
    """The baseline saw one of two statements alone, and the end names its whole address."""
    async with stage(stream=BASELINE) as at:
        key, envelope = one_of_two(1)
        other, _ = one_of_two(2)
        # Others of this stream have their uuids for keys.
        await at.commit(create_update("u9", 5, uuid="u9"), by_uuid=True)
        await at.commit(baseline_row("u1", 10, envelope=envelope), by_uuid=True)
        await at.commit(end_record(other, 11, RecordType.TOMBSTONE), by_uuid=True)
        assert set(await rows(at)) == {"u9", "u1"}
        await at.commit(end_record(key, 12, RecordType.TOMBSTONE), by_uuid=True)
        assert set(await rows(at)) == {"u9"}


async def test_a13_an_end_from_before_the_baseline_hides_no_row_from_what_follows(
    stage: Stages,
) -> None:
    """The log is read from its oldest record on: an end, and what was stated after it."""
    async with stage(stream=BASELINE) as at:
        key, envelope = one_of_two(1)
        await at.commit(baseline_row("u1", 20, envelope=envelope), by_uuid=True)
        again = create_update(key, 12, b"{}", uuid="u1", envelope=envelope)
        await at.commit(end_record(key, 11, RecordType.TOMBSTONE), again, by_uuid=True)
        assert list(await rows(at)) == [key]


async def test_a13_the_end_at_one_place_hides_no_statement_of_another(stage: Stages) -> None:
    async with stage(stream=BASELINE) as at:
        (key, envelope), (other, _) = one_of_two(1), one_of_two(2)
        await at.commit(end_record(other, 12, RecordType.TOMBSTONE), by_uuid=True)
        await at.commit(baseline_row("u1", 10, envelope=envelope), by_uuid=True)
        assert list(await rows(at)) == ["u1"]
        await at.commit(end_record(key, 13, RecordType.TOMBSTONE), by_uuid=True)
        await at.commit(baseline_row("u1", 10, envelope=envelope), by_uuid=True)
        assert await rows(at) == {}


async def test_a13_the_end_of_what_a_baseline_knew_hides_no_statement_of_another(
    stage: Stages,
) -> None:
    async with stage(stream=BASELINE) as at:
        (key, envelope), (_, other) = one_of_two(1), one_of_two(2)
        await at.commit(baseline_row("u1", 10, envelope=envelope), by_uuid=True)
        await at.commit(end_record(key, 12, RecordType.TOMBSTONE), by_uuid=True)
        assert await rows(at) == {}
        await at.commit(baseline_row("u1", 10, envelope=other), by_uuid=True)
        assert list(await rows(at)) == ["u1"]


async def test_a13_a_statement_at_one_place_is_no_move_from_another(stage: Stages) -> None:
    """Where the key is the whole address, and one of two statements is stored."""
    async with stage(stream=BASELINE) as at:
        (key, envelope), (other, elsewhere) = one_of_two(1), one_of_two(2)
        await at.commit(baseline_row("u1", 10, b"1", envelope=envelope), by_uuid=True)
        second = {"uuid": "u1", "envelope": elsewhere}
        await at.commit(create_update(other, 11, b"2", **second), by_uuid=True)
        assert await at.bodies() == {"u1": b"1", other: b"2"}
        first = {"uuid": "u1", "envelope": envelope}
        await at.commit(create_update(key, 12, b"3", **first), by_uuid=True)
        assert await at.bodies() == {key: b"3", other: b"2"}
        await at.commit(end_record(key, 13, RecordType.TOMBSTONE), by_uuid=True)
        # The baseline was read before the end of this one, and before the statement of the other.
        at.attempt = 2
        await at.commit(baseline_row("u1", 20, b"4", envelope=envelope), by_uuid=True)
        assert await at.bodies() == {"u1": b"4", other: b"2"}


async def test_a13_a_statement_of_a_baseline_goes_to_the_row_of_its_place(stage: Stages) -> None:
    """Another row has the uuid for its key: of the other statement, which has ended meanwhile."""
    async with stage(stream=BASELINE) as at:
        (key, envelope), (_, elsewhere) = one_of_two(1), one_of_two(2)
        await at.commit(baseline_row("u1", 10, b"2", envelope=elsewhere), by_uuid=True)
        first = {"uuid": "u1", "envelope": envelope}
        await at.commit(create_update(key, 11, b"1", **first), by_uuid=True)
        at.attempt = 2
        await at.commit(baseline_row("u1", 20, b"3", envelope=envelope), by_uuid=True)
        found = {k: (body, attempt) for k, (_, body, attempt) in (await rows(at)).items()}
        assert found == {key: (b"3", 2), "u1": (b"2", 1)}


async def test_a13_3_8_1_2_alike_in_two_places_is_one_row_for_the_stream_too(stage: Stages) -> None:
    async with stage(stream=BASELINE) as at:
        shown = baseline_row("u1", 10, envelope=placed("node-uuid:n1", "node-uuid:n2"))
        await at.commit(shown, by_uuid=True)
        stated = create_update("k1", 11, uuid="u1", envelope=placed("node-uuid:n2"))
        await at.commit(stated, by_uuid=True)
        assert list(await rows(at)) == ["k1"]
        await at.commit(end_record("k1", 12, RecordType.TOMBSTONE), by_uuid=True)
        assert await rows(at) == {}


async def test_a13_a_baseline_marks_each_place_that_the_stream_has_stated(stage: Stages) -> None:
    async with stage(stream=BASELINE) as at:
        for n in (1, 2):
            place = placed(f"node-uuid:n{n}")
            await at.commit(
                create_update(f"k{n}", n, b"{}", uuid="u1", envelope=place), by_uuid=True
            )
        at.attempt = 2
        shown = baseline_row("u1", 10, b"{}", envelope=placed("node-uuid:n1", "node-uuid:n2"))
        await at.commit(shown, by_uuid=True)
        assert {key: attempt for key, (*_, attempt) in (await rows(at)).items()} == {
            "k1": 2,
            "k2": 2,
        }


async def test_a13_one_uuid_in_two_classes_is_two_rows(stage: Stages) -> None:
    async with stage(stream=BASELINE) as at:
        device: dict[str, Any] = {"entity_class": "DEVICE", "uuid": "u1"}
        await at.commit(create_update("k1", 1, uuid="u1"), by_uuid=True)
        await at.commit(create_update("k2", 2, **device), by_uuid=True)
        assert set(await rows(at)) == {"k1", "k2"}


LATEST: dict[str, Any] = {"by_uuid": True, "lineage": 0}
"""How the rows of a baseline are committed where the stream was opened at its newest record."""


@pytest.mark.parametrize("skew", [-3_600_000_000, 3_600_000_000])
async def test_a14_3_8_1_2_all_that_the_stream_brings_beats_the_baseline(
    stage: Stages, skew: int
) -> None:
    """Whatever our clock says: the baseline is dated by it."""
    async with stage(stream=BASELINE) as at:
        now = 2 * 3_600_000_000
        shown = [baseline_row(uuid, now + skew) for uuid in ("u1", "u2", "u3")]
        await at.commit(*shown, **LATEST)
        await at.commit(
            create_update("k1", now, b"{}", uuid="u1"), end_record("u2", now), by_uuid=True
        )
        assert {key: body for key, (_, body, _) in (await rows(at)).items()} == {
            "k1": b"{}",
            "u3": b'{"of":"get"}',
        }
        # The next one beats all that came before it.
        at.attempt = 2
        await at.commit(*(baseline_row(uuid, now - skew) for uuid in ("u1", "u2")), **LATEST)
        assert {key: (body, n) for key, (_, body, n) in (await rows(at)).items()} == {
            "k1": (b'{"of":"get"}', 2),
            "u2": (b'{"of":"get"}', 2),
            "u3": (b'{"of":"get"}', 1),
        }


async def test_a14_a_baseline_beats_an_earlier_one_whatever_the_clock_said(stage: Stages) -> None:
    async with stage(stream=BASELINE) as at:
        await at.commit(baseline_row("u1", 50, b"1"), by_uuid=True)
        at.attempt = 2
        await at.commit(baseline_row("u1", 10, b"2"), by_uuid=True)
        assert await at.bodies() == {"u1": b"2"}


async def test_a14_3_8_1_2_after_the_sweep_the_stream_beats_the_baseline(
    stage: Stages,
) -> None:
    """Also where the log was read from its oldest record, and the provider's clock is set back."""
    async with stage(stream=BASELINE) as at:
        await at.commit(baseline_row("u1", 50), baseline_row("u2", 50), by_uuid=True)
        await at.commit(create_update("k1", 40, b"{}", uuid="u1"), by_uuid=True)
        assert set(await at.bodies()) == {"k1", "u2"}
        assert (await at.bodies())["k1"] == b'{"of":"get"}'
        step = SweepStep(attempt=1, limit_records=10, readable=frozenset({"NODE"}))
        assert (await at.commit(sweep=step, by_uuid=True)).sweep_done
        await at.commit(create_update("k1", 41, b"{}", uuid="u1"), by_uuid=True)
        await at.commit(end_record("u2", 42), by_uuid=True)
        assert await at.bodies() == {"k1": b"{}"}


ALARMS = stream_info(
    mode=Mode.BASELINE,
    classes=("NODE", "CONDITION_DETECTOR"),
    readable=frozenset({"NODE"}),
    unprovable=frozenset({"CONDITION_DETECTOR"}),
)


async def test_3_8_1_2_the_end_of_an_unknown_alarm_owes_no_baseline(stage: Stages) -> None:
    async with stage(stream=ALARMS) as at:
        await at.commit(baseline_row("u1", 1), by_uuid=True)
        clear = create_update("a1", 2, ends=True, entity_class="CONDITION_DETECTOR")
        ends = [
            clear,
            end_record("a1", 3, RecordType.TOMBSTONE),
            end_record("a2", 4, entity_class="CONDITION_DETECTOR"),
            end_record("a2", 5, RecordType.TOMBSTONE),
        ]
        assert (await at.commit(*ends, by_uuid=True)).unresolved_keys == ()
        assert not (await at.store.position(ALARMS)).baseline_pending


async def test_an_unknown_end_owes_nothing_where_all_is_known_by_its_key(stage: Stages) -> None:
    async with stage(stream=BASELINE) as at:
        unknown = end_record("k9", 1, RecordType.TOMBSTONE)
        assert (await at.commit(unknown, by_uuid=True)).unresolved_keys == ()
        # This provider's keys are uuids, so another key is none of the rows.
        await at.commit(baseline_row("u1", 2), create_update("u2", 3, uuid="u2"), by_uuid=True)
        unknown = end_record("k8", 4, RecordType.TOMBSTONE)
        assert (await at.commit(unknown, by_uuid=True)).unresolved_keys == ()


NESTED = stream_info(mode=Mode.BASELINE, contained=frozenset({"port"}))
CUT = b'{"uuid":"u1","x":1,"port":[{"uuid":"p1"},{"uuid":"p2"}]}'
WHOLE = b'{"x":1,"uuid":"u1","m:port":[{"uuid":"p1","y":1}]}'
NONE = b'{"uuid":"u1","x":1}'


@pytest.mark.parametrize("stated", [WHOLE, NONE])
async def test_a13_what_differs_only_in_contained_entities_is_no_change(
    stage: Stages, stated: bytes
) -> None:
    async with stage(stream=NESTED, journal="bodies") as at:
        await at.commit(baseline_row("u1", 1, CUT), by_uuid=True)
        await at.commit(create_update("k1", 2, stated, uuid="u1"), by_uuid=True)
        # As the provider stated it.
        assert await at.bodies() == {"k1": stated}
        at.attempt = 2
        await at.commit(baseline_row("u1", 3, CUT), by_uuid=True)
        assert {k: (b, n) for k, (_, b, n) in (await rows(at)).items()} == {"k1": (stated, 2)}
        assert await at.journal() == [("u1", "created")]


async def test_a12_a_baseline_never_writes_less_than_what_is_stored(stage: Stages) -> None:
    async with stage(stream=NESTED, journal="bodies") as at:
        port = b'{"uuid":"u1","x":1,"port":[{"uuid":"p1","y":1},{"uuid":"p2","y":2}]}'
        await at.commit(create_update("k1", 1, port, uuid="u1"), by_uuid=True)
        await at.commit(create_update("k2", 1, port, uuid="u2"), by_uuid=True)
        at.attempt = 2
        cut = b'{"uuid":"u1","x":2,"port":[{"uuid":"p2"},{"uuid":"p3"}]}'
        await at.commit(
            baseline_row("u1", 3, cut), baseline_row("u2", 3, b'{"uuid":"u1"}'), by_uuid=True
        )
        assert await at.bodies() == {
            "k1": b'{"uuid":"u1","x":2,"port":[{"uuid":"p2","y":2},{"uuid":"p3"}]}',
            # The identifier alone says only that it exists.
            "k2": port,
        }
        assert [key for key, change in await at.journal() if change == "updated"] == ["k1"]


UUIDS = stream_info(mode=Mode.BASELINE, keys_are_uuids=True)


def statement(uuid: str, at: int, **changes: Any) -> Record:
    return create_update(uuid, at, uuid=uuid, **changes)


@contextmanager
def statements() -> Iterator[list[str]]:
    """What is sent to any database meanwhile."""
    seen: list[str] = []

    def note(*arguments: Any) -> None:
        seen.append(arguments[2])

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", note)


async def test_where_keys_are_uuids_no_row_is_looked_for(stage: Stages) -> None:
    async with stage(stream=UUIDS) as at:
        await at.commit(baseline_row("u1", 10), by_uuid=True)
        with statements() as seen:
            await at.commit(statement("u1", 11), statement("u2", 11), by_uuid=True)
        assert seen
        assert not [one for one in seen if "SELECT" in one.upper()]
        assert (await rows(at)).keys() == {"u1", "u2"}


@pytest.mark.parametrize("seed", range(8))
async def test_where_keys_are_uuids_the_rows_are_the_same(stage: Stages, seed: int) -> None:
    found = []
    for stream in (BASELINE, UUIDS):
        chance = Random(seed)
        async with stage(stream=stream) as at:
            for time in range(10, 40):
                made = []
                for _ in range(chance.randint(1, 3)):
                    uuid, when = f"u{chance.randint(1, 4)}", time - chance.randint(0, 4)
                    kind = chance.choice((statement, statement, baseline_row, end_record))
                    named = chance.choice(("NODE", "LINK"))
                    if kind is end_record:
                        made.append(end_record(uuid, when, uuid=uuid, entity_class=named))
                    else:
                        made.append(kind(uuid, when, entity_class=named))
                at.attempt += time % 10 == 0
                await at.commit(*made, by_uuid=True)
            found.append(await at.entities())
    assert found[0] == found[1]
