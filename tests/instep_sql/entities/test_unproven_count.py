"""The count of unproven entities that a position carries is what the rows say (A17, A22),
whoever writes them: the consumer, an audit that repairs, a replay from quarantine.
"""

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
from instep.model.records import RecordChunk, Unreadable
from instep.model.streams import Mode, StreamInfo
from tests.instep_sql.store_kit import (
    Stage,
    Stages,
    baseline_row,
    create_update,
    end_record,
    stream_info,
)
from tests.instep_sql.store_kit import (
    stage as staged,
)

UNREADABLE = Hold(UnprovenReason.UNREADABLE_RECORD, digest="ab")
KEYS = "abcd"
OF_CHANGES = stream_info(partial_updates=True)
BASELINE = stream_info(mode=Mode.BASELINE)


class Counted:
    """Commits as the alignment does: the count moves by what each commit says."""

    def __init__(self, at: Stage, stream: StreamInfo | None = None) -> None:
        self.at = at
        self.stream = stream or stream_info()
        self.count = 0
        self.offset = 0

    async def commit(
        self, *records: Any, phase: Phase = Phase.ALIGNED, checked: bool = True, **more: Any
    ) -> None:
        batch = self.at.batch(*records, **more)
        position = msgspec.structs.replace(
            batch.position,
            phase=phase,
            unproven=self.count,
            offsets={"": self.offset},
            appended_us={"": self.offset},
        )
        result = await self.at.store.commit(self.at.batch(*records, **more, position=position))
        self.at.position = position
        self.count += result.kept
        if checked:
            assert self.count == len(await self.unproven())
            assert self.count == await self.stored()

    async def stored(self) -> int:
        """The count of the stored position, from which another process would go on."""
        [status] = await self.at.store.reader.streams()
        return status.position.unproven

    async def unproven(self) -> list[Any]:
        return [one async for one in self.at.store.reader.entities(unproven=True)]

    async def attempt(self, met: str, *holds: Hold) -> None:
        """An attempt that meets these entities, and cannot prove the others absent."""
        self.at.attempt += 1
        self.count = 0
        await self.state(met, Phase.ALIGNING)
        step = SweepStep(self.at.attempt, holds=holds)
        await self.commit(phase=Phase.SWEEPING, sweep=step)

    async def state(
        self, names: str, phase: Phase = Phase.ALIGNED, uuid: str = "", *, by_uuid: bool = False
    ) -> None:
        records = [create_update(one, self._next(), uuid=uuid) for one in names]
        if records:
            aligned = phase is Phase.ALIGNED
            await self.commit(*records, phase=phase, checked=aligned, by_uuid=by_uuid)

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

    async def repair(self, names: str) -> None:
        """An audit finds these entities otherwise than they are stored, and repairs them."""
        async with self.at.store.audit(self.stream) as marks:
            await marks.mark([create_update(one, self.offset, b'{"other":1}') for one in names])
            position = await marks.suspect()
            await marks.judge(bogus=False)
            await marks.repair(position)
        await self.others_wrote()

    async def replay(self, name: str) -> None:
        """A record in quarantine, of this entity, can be read after all."""
        offset = self._next()
        raw = b"?%d" % offset
        await self.commit(unreadable=[Unreadable("s1", raw, "odd", f"t{offset}")])
        [entry] = [one async for one in self.at.store.reader.quarantine() if one.raw == raw]
        chunk = RecordChunk([create_update(name, offset)])
        await self.at.store.reader.replay(entry.id, chunk)
        await self.others_wrote()

    async def others_wrote(self) -> None:
        """The stored position says at once what the rows say, and the next commit takes it over."""
        assert await self.stored() == len(await self.unproven())
        await self.commit()

    async def restart(self) -> None:
        """Another process goes on."""
        self.at.store._streams.clear()
        self.at.position = await self.at.store.position(self.stream)
        self.count = self.at.position.unproven
        assert self.count == len(await self.unproven())

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


@pytest.mark.asyncio
async def test_an_audit_that_repairs_an_unproven_entity_proves_it(counted: Counted) -> None:
    await counted.repair("b")
    assert counted.count == 2


@pytest.mark.asyncio
async def test_a_record_that_is_replayed_proves_its_entity(counted: Counted) -> None:
    await counted.replay("b")
    assert counted.count == 2


@pytest.mark.asyncio
async def test_a_process_that_goes_on_knows_the_count(counted: Counted) -> None:
    await counted.state("b")
    await counted.restart()
    assert counted.count == 2


@pytest.mark.asyncio
async def test_a_row_that_another_takes_over_is_counted_no_more(stage: Stages) -> None:
    """A baseline has shown the uuid of an entity that the stream states under a key of its own."""
    async with stage(stream=BASELINE) as opened:
        at = Counted(opened, BASELINE)
        await at.state("k", phase=Phase.ALIGNING, uuid="u")
        await opened.commit(baseline_row("v", 10), by_uuid=True)
        await at.attempt("", UNREADABLE)
        assert at.count == 2
        # The entity `v` was made anew under the key of `u`: one row is left.
        await at.state("k", uuid="v", by_uuid=True)
        assert at.count == len(await at.unproven())


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("state"), st.text(KEYS, min_size=1, max_size=3)),
        st.tuples(st.just("claim"), st.text(KEYS, min_size=2, max_size=2)),
        st.tuples(st.just("end"), st.sampled_from(KEYS)),
        st.tuples(st.just("single_out"), st.sampled_from(KEYS)),
        st.tuples(st.just("exists"), st.sampled_from(KEYS)),
        st.tuples(st.just("is gone"), st.sampled_from(KEYS)),
        st.tuples(st.just("hold"), st.text(KEYS, max_size=3)),
        st.tuples(st.just("sweep"), st.text(KEYS, max_size=3)),
        st.tuples(st.just("heartbeat"), st.just("")),
        st.tuples(st.just("repair"), st.text(KEYS, min_size=1, max_size=3)),
        st.tuples(st.just("replay"), st.sampled_from(KEYS)),
        st.tuples(st.just("restart"), st.just("")),
    ),
    max_size=12,
)


@pytest.mark.asyncio
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=_STEPS, stream=st.sampled_from([stream_info(), OF_CHANGES, BASELINE]))
async def test_whatever_is_committed_the_count_is_what_the_rows_say(
    steps: list[tuple[str, str]], stream: StreamInfo
) -> None:
    async with staged(stream=stream) as opened:
        at = Counted(opened, stream)
        await at.state(KEYS)
        for what, names in steps:
            match what:
                case "state":
                    await at.state(names)
                case "claim":
                    await at.state(names[0], uuid=names[1], by_uuid=stream is BASELINE)
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
                case "repair":
                    await at.repair(names)
                case "replay":
                    await at.replay(names)
                case "restart":
                    await at.restart()
                case _:
                    await at.commit()
