"""Mark and sweep in the store (TR-548 ST-2.2 step 7; A5 to A7)."""

from __future__ import annotations

import pytest

from instep.model.batches import Batch, SweepStep
from instep.model.records import Record
from instep.model.streams import SweepEstimate
from tests.instep_sql.store_kit import Stage, Stages, create_update, stream_info

pytestmark = pytest.mark.asyncio


async def sweep(at: Stage, step: SweepStep) -> tuple[int, int]:
    """Sweep to the end; entities swept and steps taken."""
    swept = steps = 0
    while True:
        result = await at.commit(sweep=step)
        swept, steps = swept + result.swept, steps + 1
        if result.sweep_done:
            return swept, steps
        step = SweepStep(
            step.attempt, result.sweep_cursor, step.limit_records, readable=step.readable
        )


async def test_st_2_2_step_7_the_unmarked_go_and_the_marked_stay(stage: Stages) -> None:
    async with stage() as at:
        await at.commit(*[create_update(f"k{n}", n) for n in range(100)])
        at.attempt = 2
        await at.commit(*[create_update(f"k{n}", 200 + n) for n in range(0, 100, 2)])
        assert await sweep(at, SweepStep(2, limit_records=7)) == (50, 15)
        assert list(await at.entities()) == [f"k{n}" for n in range(0, 100, 2)]


async def test_a5_new_records_are_applied_while_it_runs(stage: Stages) -> None:
    async with stage() as at:
        await at.commit(*[create_update(f"k{n}", n) for n in range(10)])
        at.attempt = 2
        first = await at.commit(
            create_update("new1", 20), create_update("k9", 21), sweep=SweepStep(2, 0, 5)
        )
        assert (first.swept, first.sweep_done) == (5, False)
        second = await at.commit(
            create_update("new2", 22), sweep=SweepStep(2, first.sweep_cursor, 50)
        )
        assert (second.swept, second.sweep_done) == (4, True)
        assert sorted(await at.entities()) == ["k9", "new1", "new2"]


async def test_a6_the_sweep_estimate_counts_before_anything_goes(stage: Stages) -> None:
    async with stage() as at:
        await at.commit(create_update("a", 1), create_update("b", 2), create_update("c", 3))
        at.attempt = 2
        await at.commit(create_update("c", 4))
        assert await at.store.estimate_sweep("s1", 2) == SweepEstimate(
            total=3, unmarked=2, by_class={"NODE": (3, 2)}
        )
        assert await at.store.estimate_sweep("unknown", 2) == SweepEstimate(total=0, unmarked=0)


async def test_a7_an_interrupted_sweep_goes_on_from_its_cursor(stage: Stages) -> None:
    async with stage() as at:
        await at.commit(*[create_update(f"k{n}", n) for n in range(10)])
        at.attempt = 2
        first = await at.commit(
            create_update("k0", 20), create_update("k7", 20), sweep=SweepStep(2, 0, 4)
        )
        assert (first.swept, list(await at.entities())) == (
            3,
            ["k0", "k4", *map("k{}".format, range(5, 10))],
        )
        assert await sweep(at, SweepStep(2, first.sweep_cursor, 7)) == (5, 1)
        assert list(await at.entities()) == ["k0", "k7"]


async def test_a_class_that_no_get_shows_is_kept_and_marked_unproven(stage: Stages) -> None:
    async with stage() as at:
        await at.commit(
            create_update("n", 1), create_update("c", 2, entity_class="CONDITION_DETECTOR")
        )
        at.attempt = 2
        assert await sweep(at, SweepStep(2, readable=frozenset({"NODE"}))) == (1, 1)
        (entity,) = (await at.entities()).values()
        assert (entity.key, entity.proven, entity.attempt) == ("c", False, 2)
        await at.commit(create_update("c", 3, entity_class="CONDITION_DETECTOR"))
        assert (await at.entities())["c"].proven


async def test_other_streams_are_passed_and_left_alone(stage: Stages) -> None:
    async with stage() as at:
        await at.commit(*[create_update(f"k{n}", n) for n in range(10)])
        await at.store.position(stream_info("other"))
        at.attempt = 2
        record = Record("other", "k1", create_update("k1", 1).kind, "t", 1)
        batch = Batch("other", at.batch().position, 0, [record], sweep=SweepStep(3, 0, 4))
        result = await at.store.commit(batch)
        assert (result.swept, result.sweep_done) == (0, False)
        assert len([e async for e in at.store.reader.entities(stream="s1")]) == 10


async def test_a_sweep_of_nothing_is_done(stage: Stages) -> None:
    async with stage() as at:
        result = await at.commit(sweep=SweepStep(1, cursor=17))
        assert (result.swept, result.sweep_cursor, result.sweep_done) == (0, 17, True)
