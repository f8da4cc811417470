"""The count of unproven entities that a position carries is what the rows say (A17, A22)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from instep.model.batches import SweepStep
from instep.model.holds import Hold, UnprovenReason
from instep.model.lookups import EntityProof
from instep.model.position import Phase
from instep.model.records import Unreadable
from tests.instep_sql.store_kit import (
    Stage,
    Stages,
    create_update,
    end_record,
)
from tests.instep_sql.store_kit import (
    stage as staged,
)

UNREADABLE = Hold(UnprovenReason.UNREADABLE_RECORD, digest="ab")
KEYS = "abcd"


class Counted:
    """Commits as the alignment does: the count moves by what each commit says."""

    def __init__(self, at: Stage) -> None:
        self.at = at
        self.count = 0
        self.offset = 0

    async def commit(
        self, *records: Any, phase: Phase = Phase.ALIGNED, checked: bool = True, **more: Any
    ) -> None:
        batch = self.at.batch(*records, **more)
        position = msgspec.structs.replace(batch.position, phase=phase, unproven=self.count)
        result = await self.at.store.commit(self.at.batch(*records, **more, position=position))
        self.at.position = position
        self.count += result.kept
        if checked:
            assert self.count == len(await self.unproven())

    async def unproven(self) -> list[Any]:
        return [one async for one in self.at.store.reader.entities(unproven=True)]

    async def attempt(self, met: str, *holds: Hold) -> None:
        """An attempt that meets these entities, and cannot prove the others absent."""
        self.at.attempt += 1
        self.count = 0
        await self.state(met, Phase.ALIGNING)
        step = SweepStep(self.at.attempt, holds=holds)
        await self.commit(phase=Phase.SWEEPING, sweep=step)

    async def state(self, names: str, phase: Phase = Phase.ALIGNED) -> None:
        records = [create_update(one, self._next()) for one in names]
        if records:
            await self.commit(*records, phase=phase, checked=phase is Phase.ALIGNED)

    async def end(self, name: str) -> None:
        await self.commit(end_record(name, self._next()))

    async def single_out(self, name: str) -> None:
        offset = self._next()
        bad = Unreadable("s1", b"?%d" % offset, "odd", f"t{offset}", key=name, offset=offset)
        await self.commit(unreadable=[bad])

    async def prove(self, name: str, *, exists: bool) -> None:
        tokens = {one.key: one.token async for one in self.at.store.reader.entities()}
        if name in tokens:
            await self.commit(proofs=[EntityProof(name, tokens[name], exists=exists)])

    def _next(self) -> int:
        self.offset += 1
        return self.offset


@pytest_asyncio.fixture
async def counted(stage: Stages) -> AsyncIterator[Counted]:
    """Entities a to d, of which an attempt has met a, and could not read everything."""
    async with stage(journal="changes") as opened:
        found = Counted(opened)
        await found.state(KEYS)
        await found.attempt("a", UNREADABLE)
        assert found.count == 3
        yield found


@pytest.mark.asyncio
async def test_an_entity_that_is_stated_again_is_counted_no_more(counted: Counted) -> None:
    await counted.state("b")
    assert counted.count == 2
    await counted.state("b")
    assert counted.count == 2


@pytest.mark.asyncio
async def test_an_unproven_entity_that_ends_is_counted_no_more(counted: Counted) -> None:
    await counted.end("b")
    await counted.end("b")
    assert counted.count == 2


@pytest.mark.asyncio
async def test_one_that_is_singled_out_twice_counts_once(counted: Counted) -> None:
    await counted.single_out("b")
    assert counted.count == 3
    await counted.single_out("a")
    await counted.single_out("a")
    assert counted.count == 4


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("state"), st.text(KEYS, min_size=1, max_size=3)),
        st.tuples(st.just("end"), st.sampled_from(KEYS)),
        st.tuples(st.just("single_out"), st.sampled_from(KEYS)),
        st.tuples(st.just("exists"), st.sampled_from(KEYS)),
        st.tuples(st.just("is gone"), st.sampled_from(KEYS)),
        st.tuples(st.just("hold"), st.text(KEYS, max_size=3)),
        st.tuples(st.just("sweep"), st.text(KEYS, max_size=3)),
        st.tuples(st.just("heartbeat"), st.just("")),
    ),
    max_size=12,
)


@pytest.mark.asyncio
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=_STEPS)
async def test_whatever_is_committed_the_count_is_what_the_rows_say(
    steps: list[tuple[str, str]],
) -> None:
    async with staged() as opened:
        at = Counted(opened)
        await at.state(KEYS)
        for what, names in steps:
            match what:
                case "state":
                    await at.state(names)
                case "end":
                    await at.end(names)
                case "single_out":
                    await at.single_out(names)
                case "exists" | "is gone":
                    await at.prove(names, exists=what == "exists")
                case "hold":
                    await at.attempt(names, UNREADABLE)
                case "sweep":
                    await at.attempt(names)
                case _:
                    await at.commit()
