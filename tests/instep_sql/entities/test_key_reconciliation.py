"""A stream joined with its baseline: one entity stays one row."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from instep.model.batches import SweepStep
from instep.model.records import RecordType
from tests.instep_sql.store_kit import (
    BASELINE,
    Stage,
    Stages,
    baseline_row,
    create_update,
    end_record,
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
                "SELECT count(*) FROM instep_ended"
            ).scalar()
        )
        assert count == 0
