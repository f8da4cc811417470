"""A stream that is not offered any more is unproven, and retired by a proof alone (A20)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import Connection, text

from instep.errors import SinkError
from instep.model.batches import Batch, SweepStep
from instep.model.freshness import FreshnessState
from instep.model.holds import Hold, UnprovenReason
from instep.model.position import Phase, Position
from instep.model.streams import Mode, StreamInfo
from tests.instep_sql.store_kit import Stage, Stages, baseline_row, create_update, stream_info

pytestmark = pytest.mark.asyncio
OTHER = stream_info("other")
ALIGNED = Position(token="t9", phase=Phase.ALIGNED, ordinal=1, attempt=1, lineage=1)


async def selected(at: Stage, query: str) -> list[Any]:
    def work(connection: Connection) -> list[Any]:
        return list(connection.execute(text(query)).scalars())

    return await at.store.reader.database.run(work)


async def follow_other(
    at: Stage, *keys: str, stream: StreamInfo = OTHER, position: Position = ALIGNED, **batch: Any
) -> None:
    """Commit entities of another stream, which is aligned."""
    await at.store.position(stream)
    records = [replace(create_update(key, 5), stream=stream.id) for key in keys]
    batch = {"records": records, "expects_ordinal": position.ordinal - 1, **batch}
    await at.store.commit(Batch(stream.id, position=position, **batch))


async def test_a20_what_is_not_offered_is_unproven_by_one_row(stage: Stages) -> None:
    async with stage(journal="changes") as at:
        await at.commit(create_update("a", 1), create_update("b", 2))
        written = len(await at.changes())
        await at.store.mark_offered("s1", offered=False)
        await at.store.mark_offered("s1", offered=False)
        for entity in (await at.entities()).values():
            assert (entity.proven, entity.unproven) == (False, "not-offered")
        assert await selected(at, "SELECT unproven FROM instep_entities") == ["not-offered"] * 2
        [status] = await at.store.reader.streams()
        assert (status.unproven, status.position.phase) == (2, Phase.NOT_OFFERED)
        assert status.freshness.state is FreshnessState.NOT_OFFERED
        assert not status.freshness.in_step
        assert status.freshness.text == "not offered any more"

        # What its connection still brings does not make it aligned.
        await at.commit(create_update("c", 3))
        [status] = await at.store.reader.streams()
        assert (status.unproven, status.position.phase) == (3, Phase.NOT_OFFERED)
        assert await selected(at, "SELECT phase FROM instep_streams") == ["not-offered"]

        assert await at.store.position(stream_info()) == at.position
        assert all(entity.proven for entity in (await at.entities()).values())
        assert await selected(at, "SELECT phase FROM instep_streams") == ["unaligned"]
        told = [one for one in (await at.changes())[written:] if not one.key]
        assert [one.change.value for one in told] == ["unproven", "proven"]
        assert all(one.epoch for one in told)


async def test_a20_a_stream_that_is_retired_begins_anew(stage: Stages) -> None:
    async with stage(journal="changes") as at:
        await at.commit(create_update("a", 1), create_update("b", 2))
        with pytest.raises(SinkError, match="the provider offers the stream"):
            await at.store.retire("s1")
        await at.store.mark_offered("s1", offered=False)
        assert (await at.store.retire("s1")).removed == 2
        assert await at.store.known_streams() == []
        assert await at.store.reader.streams() == []
        gone = [one for one in await at.changes() if one.change.value == "swept"]
        assert [(one.key, bool(one.epoch)) for one in gone] == [("a", True), ("b", True)]
        with pytest.raises(SinkError, match="no such stream"):
            await at.store.retire("s1")
        assert await at.store.position(stream_info()) == Position()
        [status] = await at.store.reader.streams()
        assert (status.unproven, status.report, status.unproven_because) == (0, None, ())


async def test_a20_what_is_proven_elsewhere_goes_by_itself(stage: Stages) -> None:
    async with stage() as at:
        await at.commit(create_update("a", 1), create_update("b", 2))
        await follow_other(at, "a")
        await at.store.mark_offered("s1", offered=False)
        done = await at.store.retire("s1", proven_by=["other"])
        assert (done.removed, done.left) == (1, 1)
        assert [(one.stream, one.key) async for one in at.store.reader.entities()] == [
            ("s1", "b"),
            ("other", "a"),
        ]


async def test_a20_what_is_unproven_elsewhere_proves_nothing(stage: Stages) -> None:
    async with stage() as at:
        await at.commit(create_update("a", 1))
        held = SweepStep(2, holds=(Hold(UnprovenReason.UNREADABLE_RECORD, digest="ab"),))
        await follow_other(at, "a")
        await follow_other(at, position=replace(ALIGNED, ordinal=2, attempt=2), sweep=held)
        await at.store.mark_offered("s1", offered=False)
        done = await at.store.retire("s1", proven_by=["other"])
        assert (done.removed, done.left) == (0, 1)


@pytest.mark.parametrize("reason", [None, *UnprovenReason])
async def test_a20_a_class_that_was_read_in_part_proves_no_absence(
    stage: Stages, reason: UnprovenReason | None
) -> None:
    info = stream_info("other", mode=Mode.BASELINE, classes=("NODE",), readable=frozenset({"NODE"}))
    began = replace(ALIGNED, attempt=2, attempt_started_at_us=2**60)
    async with stage() as at:
        await at.commit(baseline_row("a", 1))
        holds = () if reason is None else (Hold(reason, "NODE", digest="ab"),)
        await follow_other(at, "x", stream=info, position=replace(ALIGNED, ordinal=1))
        sweep = SweepStep(2, readable=frozenset({"NODE"}), holds=holds)
        await follow_other(at, stream=info, position=replace(began, ordinal=2), sweep=sweep)
        await at.store.mark_offered("s1", offered=False)
        done = await at.store.retire("s1", proven_by=["other"])
        assert (done.removed, done.left) == ((1, 0) if reason is None else (0, 1))
