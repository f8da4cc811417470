"""What an audit proves in the store, on each database, race by race (TR-548 ST-2.3)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from sqlalchemy import text

from instep.alignment.audit import Counts, Verdict
from instep.model.position import Phase, Position
from instep.model.records import Record
from instep_sql.audit.marks import SqlAuditMarks
from tests.instep_sql.store_kit import Stage, Stages, create_update, end_record, stream_info

pytestmark = pytest.mark.asyncio


class Audited:
    """A stage with an audit of its stream."""

    def __init__(self, at: Stage, marks: SqlAuditMarks) -> None:
        self.at, self.marks = at, marks

    async def commit(self, *records: Record, by_uuid: bool = False) -> None:
        """Commit as the main stream does, with its place in the log."""
        newest = max(record.offset for record in records)
        position = Position(
            token=records[-1].token,
            ordinal=self.at.position.ordinal + 1,
            attempt=1,
            lineage=1,
            phase=Phase.ALIGNED,
            offsets={"": newest},
            appended_us={"": newest},
        )
        await self.at.commit(*records, position=position, by_uuid=by_uuid)

    async def behind(self, statement: str, **values: object) -> None:
        """Change the store without instep."""
        await self.at.store._database.run(
            lambda connection: connection.execute(text(statement), values)
        )

    async def verdicts(self) -> dict[str, Verdict]:
        return {finding.key: finding.verdict async for finding in self.marks.findings()}


@asynccontextmanager
async def audited(stage: Stages, *records: Record) -> AsyncIterator[Audited]:
    """A stream of these records, and an audit that has read the same."""
    async with stage() as at, at.store.audit(stream_info()) as marks:
        one = Audited(at, marks)
        await one.commit(*records)
        await marks.mark(records)
        yield one


async def spoil(one: Audited) -> None:
    await one.behind("DELETE FROM instep_entity WHERE key = 'k1'")
    await one.behind("UPDATE instep_entity SET body = :body WHERE key = 'k2'", body=b"{}")
    await one.behind("UPDATE instep_entity SET key = 'ghost' WHERE key = 'k3'")


VERDICTS = {
    "k1": Verdict.MISSING,
    "k2": Verdict.STALE,
    "k3": Verdict.MISSING,
    "ghost": Verdict.BOGUS,
}


async def proofs(one: Audited) -> dict[str, str]:
    """What has proven each entity."""
    return {found.key: found.proven_by async for found in one.at.store.reader.entities()}


@pytest.mark.parametrize("repair", [False, True])
async def test_a22_an_audit_that_finds_all_right_is_a_proof(stage: Stages, repair: bool) -> None:
    records = [create_update(f"k{n}", n) for n in range(1, 6)]
    async with stage(journal="bodies") as at, at.store.audit(stream_info()) as marks:
        one = Audited(at, marks)
        await one.commit(*records)
        await one.behind("UPDATE instep_entity SET body = :body WHERE key = 'k2'", body=b"{}")
        await marks.mark(records)
        position = await marks.suspect()
        assert await marks.judge(bogus=True) == 0
        if repair:
            assert await marks.repair(position) == 1
        assert await marks.attest(position) == repair
        assert set((await proofs(one)).values()) == {"audit" if repair else "record"}
        [found] = [found async for found in at.store.reader.entities() if found.key == "k1"]
        assert (found.proven_at_us > 5) == repair
        # What comes later is proven by its record, and another attempt by itself.
        late = create_update("late", 2**52)
        await one.commit(late)
        assert (await proofs(one))["late"] == "record"
        another = msgspec.structs.replace(position, attempt=position.attempt + 1)
        assert not await marks.attest(another)


async def test_a22_what_an_audit_has_not_met_is_not_proven_by_it(stage: Stages) -> None:
    records = [create_update(f"k{n}", n) for n in range(1, 4)]
    async with audited(stage, *records) as one:
        await one.commit(create_update("unread", 4))
        position = await one.marks.suspect()
        await one.marks.judge(bogus=False)
        assert not await one.marks.attest(position)
        assert set((await proofs(one)).values()) == {"record"}


async def test_missing_stale_and_bogus_are_proven_and_repaired(stage: Stages) -> None:
    records = [create_update(f"k{n}", n) for n in range(1, 6)]
    async with stage(journal="bodies") as at:
        async with at.store.audit(stream_info()) as marks:
            one = Audited(at, marks)
            await one.commit(*records)
            before = await at.bodies()
            await spoil(one)
            count = len(await at.changes())
            await marks.mark(records)
            position = await marks.suspect()
            assert await marks.judge(bogus=True) == 0
            assert await one.verdicts() == VERDICTS
            assert await marks.counts() == Counts(right=2, stale=1, bogus=1, missing=2)
            assert await marks.repair(position) == 4
            assert await at.bodies() == before
            assert (await marks.counts()).repaired == 4
            changes = (await at.journal())[count:]
            assert sorted(changes) == [
                ("ghost", "deleted"),
                ("k1", "created"),
                ("k2", "updated"),
                ("k3", "created"),
            ]
        left = text("SELECT count(*) FROM instep_audit_mark")
        assert await at.store._database.run(lambda c: c.execute(left).scalar_one()) == 0


async def test_the_main_stream_goes_on_after_a_repair(stage: Stages) -> None:
    async with audited(stage, create_update("k1", 1), create_update("k2", 2)) as one:
        # Even the place in the log was altered: rule A3 would take the row for the newer one.
        await one.behind('UPDATE instep_entity SET body = :b, "offset" = 999', b=b"{}")
        await one.marks.mark([create_update("k1", 1), create_update("k2", 2)])
        position = await one.marks.suspect()
        await one.marks.judge(bogus=True)
        assert await one.marks.repair(position) == 2
        await one.commit(create_update("k1", 3))
        assert await one.at.bodies() == {"k1": b'{"at":3}', "k2": b'{"at":2}'}


async def test_where_the_main_stream_has_not_come_to_nothing_is_judged(stage: Stages) -> None:
    async with audited(stage, create_update("k1", 1)) as one:
        await one.marks.mark([create_update("k1", 5), create_update("k2", 6), end_record("k9", 7)])
        await one.marks.suspect()
        assert await one.marks.judge(bogus=True) == 0
        assert await one.verdicts() == {}
        assert (await one.marks.counts()).undecided == 2


async def test_where_the_audit_has_not_come_to_its_mark_is_renewed_first(stage: Stages) -> None:
    async with audited(
        stage, create_update("k1", 1), create_update("k2", 2), create_update("k3", 3)
    ) as one:
        # The main stream is ahead: an update, an end and a new entity.
        ahead = [create_update("k1", 11), end_record("k2", 12), create_update("k4", 13)]
        await one.commit(*ahead)
        await one.marks.suspect()
        await one.marks.mark(ahead)
        await one.marks.judge(bogus=True)
        assert await one.verdicts() == {}
        await one.marks.suspect()
        assert await one.marks.judge(bogus=True) == 0
        assert await one.marks.counts() == Counts(right=3)


async def test_what_changes_between_suspicion_and_judgement_is_not_judged(stage: Stages) -> None:
    async with audited(
        stage, create_update("k1", 1), create_update("k2", 2), create_update("k3", 3)
    ) as one:
        await spoil(one)
        await one.marks.mark(
            [create_update("k1", 1), create_update("k2", 2), create_update("k3", 3)]
        )
        await one.marks.suspect()
        await one.commit(
            create_update("k1", 11),
            create_update("k2", 12),
            end_record("ghost", 13),
            create_update("k3", 14),
        )
        assert await one.marks.judge(bogus=True) == 4
        assert await one.verdicts() == {}


async def test_what_changes_between_judgement_and_repair_is_not_repaired(stage: Stages) -> None:
    async with audited(
        stage, create_update("k1", 1), create_update("k2", 2), create_update("k3", 3)
    ) as one:
        await spoil(one)
        await one.marks.mark(
            [create_update("k1", 1), create_update("k2", 2), create_update("k3", 3)]
        )
        position = await one.marks.suspect()
        await one.marks.judge(bogus=True)
        await one.commit(create_update("k1", 11), create_update("k2", 12), create_update("k3", 13))
        assert await one.marks.repair(position) == 1
        assert await one.at.bodies() == {
            "k1": b'{"at":11}',
            "k2": b'{"at":12}',
            "k3": b'{"at":13}',
        }


async def test_what_the_audit_cannot_read_makes_nobody_bogus(stage: Stages) -> None:
    async with audited(stage, create_update("k1", 1)) as one:
        await one.commit(create_update("unread", 2))
        await one.marks.suspect()
        assert await one.marks.judge(bogus=False) == 1
        assert await one.verdicts() == {}


async def test_an_older_statement_does_not_renew_a_mark(stage: Stages) -> None:
    async with audited(stage, create_update("k1", 1), create_update("k1", 9)) as one:
        await one.marks.mark([create_update("k1", 5)])
        await one.marks.suspect()
        await one.marks.judge(bogus=True)
        assert await one.marks.counts() == Counts(right=1)


async def test_another_attempt_is_not_repaired_into(stage: Stages) -> None:
    async with audited(stage, create_update("k1", 1)) as one:
        await one.behind("DELETE FROM instep_entity")
        await one.marks.mark([create_update("k1", 1)])
        position = await one.marks.suspect()
        await one.marks.judge(bogus=True)
        assert await one.verdicts() == {"k1": Verdict.MISSING}
        one.at.attempt = 2
        await one.at.commit(create_update("k2", 2))
        assert await one.marks.repair(position) == 0


@pytest.mark.parametrize("one_by_one", [False, True])
async def test_a3_a_mark_amounts_to_what_the_store_is_left_with(
    stage: Stages, one_by_one: bool
) -> None:
    records = [
        *(create_update("older after its end", 1), end_record("older after its end", 5)),
        *(create_update("older after its end", 3), create_update("ended again", 4)),
        *(end_record("ended again", 5), create_update("ended again", 2)),
        *(end_record("ended again", 3), create_update("older", 5), create_update("older", 4)),
        *(end_record("older end", 5), create_update("older end", 6), end_record("older end", 4)),
    ]
    async with stage() as at, at.store.audit(stream_info()) as marks:
        one = Audited(at, marks)
        for record in records:
            await one.commit(record)
        assert set(await at.bodies()) == {"older after its end", "older", "older end"}
        for part in [[record] for record in records] if one_by_one else [records]:
            await marks.mark(part)
        await marks.suspect()
        await marks.judge(bogus=True)
        assert await one.verdicts() == {}
        assert await marks.counts() == Counts(right=3)


async def test_a3_a_mark_before_a_position_that_knows_no_offset_is_suspected(
    stage: Stages,
) -> None:
    async with stage() as at, at.store.audit(stream_info()) as marks:
        before = create_update("before", 50, partition="0", offset=7)
        after = create_update("after", 70, partition="0", offset=8)
        position = Position(
            ordinal=1, attempt=1, lineage=1, phase=Phase.ALIGNED, appended_us={"0": 60}
        )
        await at.commit(position=position)
        await marks.mark([before, after])
        await marks.suspect()
        await marks.judge(bogus=True)
        assert await Audited(at, marks).verdicts() == {"before": Verdict.MISSING}
