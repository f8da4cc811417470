"""What an audit proves where the log states changes, composed as the store composes its own (TR-548
ST-2.3, 3.8.2.2).
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from instep.alignment.audit import Counts, Verdict
from instep.model.records import Record, RecordType
from instep_sql.audit.marks import SqlAuditMarks
from tests.instep_sql.audit.test_marks import Audited
from tests.instep_sql.store_kit import (
    CHANGE_ONLY,
    Stage,
    Stages,
    create_update,
    end_record,
    stream_info,
)

pytestmark = pytest.mark.asyncio


def part(key: str, at: int, body: Any = None, uuid: str = "") -> Record:
    return create_update(key, at, msgspec.json.encode(body), whole=False, uuid=uuid)


def part_ended(key: str, at: int) -> Record:
    return end_record(key, at, RecordType.TOMBSTONE, whole=False)


LOG = [
    part("u1", 1, {"uuid": "u1", "a": 1, "port": [{"local-id": "1"}, {"local-id": "2"}]}, "u1"),
    part("u2", 2, {"uuid": "u2", "a": 1}, "u2"),
    part("u1/b", 3, {"b": {"x": 1}}),
    part("other", 4, {"uuid": "u2", "b": 2}, "u2"),
    part("u1/c", 5, {"c": 3}),
]


async def bodies(at: Stage) -> dict[str, Any]:
    return {key: msgspec.json.decode(body) for key, body in (await at.bodies()).items()}


async def found(marks: SqlAuditMarks) -> dict[str, Verdict]:
    await marks.suspect()
    await marks.judge(bogus=True)
    return {finding.key: finding.verdict async for finding in marks.findings()}


async def count(at: Stage, table: str) -> int:
    query = text(f"SELECT count(*) FROM {table}")
    return int(await at.store._database.run(lambda c: c.execute(query).scalar_one()))


@pytest.mark.parametrize("at_once", [True, False])
async def test_changes_are_composed_before_they_are_compared(stage: Stages, at_once: bool) -> None:
    async with stage(stream=CHANGE_ONLY) as at, at.store.audit(CHANGE_ONLY) as marks:
        one = Audited(at, marks)
        for record in LOG:
            await one.commit(record)
        # Compacted meanwhile: the same state by other records, in another order.
        again = [LOG[1], LOG[3], LOG[0], LOG[2], LOG[4]]
        for records in [again] if at_once else [[record] for record in again]:
            await marks.mark(records)
        assert await found(marks) == {}
        assert await marks.counts() == Counts(right=2)


async def test_what_is_wrong_is_repaired_with_its_parts(stage: Stages) -> None:
    async with stage(stream=CHANGE_ONLY) as at:
        async with at.store.audit(CHANGE_ONLY) as marks:
            one = Audited(at, marks)
            await one.commit(*LOG, part("u3", 6, {"uuid": "u3"}, "u3"))
            before = await bodies(at)
            await one.behind("UPDATE instep_entity SET body = :body WHERE key = 'u1'", body=b"{}")
            await one.behind("DELETE FROM instep_entity WHERE key = 'u2'")
            await one.behind("DELETE FROM instep_part WHERE entity_key = 'u2'")
            await one.behind("UPDATE instep_entity SET key = 'ghost' WHERE key = 'u3'")
            await marks.mark([*LOG, part("u3", 6, {"uuid": "u3"}, "u3")])
            assert await found(marks) == {
                "u1": Verdict.STALE,
                "u2": Verdict.MISSING,
                "u3": Verdict.MISSING,
                "ghost": Verdict.BOGUS,
            }
            assert await marks.repair(await marks.position()) == 4
            assert await bodies(at) == before
            # What comes next speaks of the parts by their own keys.
            await one.commit(part_ended("other", 11), part_ended("u1/b", 12))
            await one.commit(part("u1/c", 13, {"c": 4}))
            del before["u2"]["b"], before["u1"]["b"]
            assert await bodies(at) == before | {"u1": before["u1"] | {"c": 4}}
        assert await count(at, "instep_audit_mark") == 0


async def test_the_end_of_a_part_is_of_its_own_place(stage: Stages) -> None:
    async with stage(stream=CHANGE_ONLY) as at, at.store.audit(CHANGE_ONLY) as marks:
        one = Audited(at, marks)
        await one.commit(*LOG)
        # The main stream has not come to it, though what is left of the entity is older.
        await marks.mark([*LOG, part_ended("u1/c", 11)])
        assert await found(marks) == {}
        assert (await marks.counts()).undecided == 1
        await one.commit(part_ended("u1/c", 11))
        assert await found(marks) == {}
        assert await marks.counts() == Counts(right=2)


async def test_what_ends_is_bogus_where_it_is_stored(stage: Stages) -> None:
    async with stage(stream=CHANGE_ONLY) as at, at.store.audit(CHANGE_ONLY) as marks:
        one = Audited(at, marks)
        await one.commit(*LOG)
        await one.commit(part("v1", 9, {"a": 1}))
        await marks.mark([*LOG[:2], part_ended("u1", 6), part_ended("gone", 7), *LOG[3:4]])
        assert await found(marks) == {"u1": Verdict.BOGUS, "v1": Verdict.BOGUS}
        assert await marks.repair(await marks.position()) == 2
        assert set(await at.bodies()) == {"u2"}


async def test_the_parts_of_a_reading_are_seen_by_nobody_and_removed(stage: Stages) -> None:
    async with stage(stream=CHANGE_ONLY) as at:
        await at.commit(*LOG)
        kept = {table: await count(at, table) for table in ("instep_part", "instep_stream")}
        async with at.store.audit(CHANGE_ONLY) as marks:
            await marks.mark(LOG)
            assert await count(at, "instep_part") == 2 * kept["instep_part"]
            assert [one.stream for one in await at.store.reader.streams()] == [CHANGE_ONLY.id]
            assert [one.id for one in await at.store.known_streams()] == [CHANGE_ONLY.id]
        assert {table: await count(at, table) for table in kept} == kept


async def test_what_a_killed_audit_left_is_removed_after_a_week(stage: Stages) -> None:
    times = iter([10**15, 10**15 + 86_400 * 10**6, 10**15 + 8 * 86_400 * 10**6])
    async with stage(stream=CHANGE_ONLY) as at:
        await at.commit(*LOG)
        at.store._clock_us = lambda: next(times)
        killed = at.store.audit(CHANGE_ONLY)
        marks = await killed.__aenter__()
        await marks.mark(LOG)
        async with at.store.audit(CHANGE_ONLY):
            assert await count(at, "instep_stream") == 3
        async with at.store.audit(CHANGE_ONLY):
            assert await count(at, "instep_stream") == 2
            assert await count(at, "instep_audit_mark") == 0
        assert await count(at, "instep_stream") == 1


async def test_a_stream_with_the_name_of_an_audit_is_none(stage: Stages) -> None:
    async with stage(stream=CHANGE_ONLY) as at:
        at.store._clock_us = lambda: 5
        named = stream_info(f"{CHANGE_ONLY.id} audited at 5")
        await at.store.position(named)
        await at.commit(*LOG)
        at.store._clock_us = lambda: 10**15
        async with at.store.audit(CHANGE_ONLY):
            pass
        assert [one.id for one in await at.store.known_streams()] == [CHANGE_ONLY.id, named.id]
