"""What an audit proves where a GET shows current state, race by race (TR-548 ST-2.3, 3.8.1)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from instep.alignment.audit import Counts, Verdict
from instep.model.records import Record, RecordType
from instep.model.streams import Mode
from instep_sql.audit.marks import SqlAuditMarks
from tests.instep_sql.audit.test_marks import Audited
from tests.instep_sql.store_kit import Stages, baseline_row, create_update, end_record, stream_info

pytestmark = pytest.mark.asyncio

STREAM = stream_info(mode=Mode.BASELINE, readable=frozenset({"NODE"}))
AT_US = 100
"""When the GET was sent."""


def stated(uuid: str, at: int, key: str = "", **changes: Any) -> Record:
    """Return a record of the log, under a key of its own."""
    return create_update(key or f"key-{uuid}", at, uuid=uuid, **changes)


async def verdicts(marks: SqlAuditMarks) -> dict[str, Verdict]:
    await marks.suspect()
    await marks.judge(bogus=True)
    return {finding.key: finding.verdict async for finding in marks.findings()}


async def test_what_a_get_shows_is_held_against_every_row_whatever_its_key(stage: Stages) -> None:
    async with stage(stream=STREAM) as at, at.store.audit(STREAM) as marks:
        one = Audited(at, marks)
        await one.commit(*(stated(f"u{n}", n, body=b'{ "a": 1, "b": 2 }') for n in range(1, 6)))
        await one.commit(create_update("alarm", 9, entity_class="CONDITION_DETECTOR"))
        await one.behind("DELETE FROM instep_entity WHERE uuid = 'u1'")
        await one.behind("UPDATE instep_entity SET body = :b WHERE uuid = 'u2'", b=b'{"a":1}')
        # u3 is nowhere any more.
        shows = [baseline_row(f"u{n}", AT_US, b'{"b":2,"a":1}') for n in (1, 2, 4, 5)]
        await marks.mark(shows)
        found = {"u1": Verdict.MISSING, "u2": Verdict.STALE, "key-u3": Verdict.BOGUS}
        assert await verdicts(marks) == found
        counts = Counts(right=2, stale=1, bogus=1, missing=1, unproven=1)
        assert await marks.counts() == counts
        assert await marks.repair(await marks.position()) == 3
        assert await at.bodies() == {
            "u1": b'{"b":2,"a":1}',
            "key-u2": b'{"b":2,"a":1}',
            "key-u4": b'{ "a": 1, "b": 2 }',
            "key-u5": b'{ "a": 1, "b": 2 }',
            "alarm": b'{"at":9}',
        }
        # Rows of a GET yield to the next record, whatever time our clock gave them.
        await one.commit(stated("u1", 11), stated("u2", 12), by_uuid=True)
        bodies = await at.bodies()
        assert (bodies["key-u1"], bodies["key-u2"]) == (b'{"at":11}', b'{"at":12}')
        assert "u1" not in bodies


@pytest.mark.parametrize("first", ["get", "log"])
async def test_what_the_log_states_overrules_the_get(stage: Stages, first: str) -> None:
    async with stage(stream=STREAM) as at, at.store.audit(STREAM) as marks:
        one = Audited(at, marks)
        await one.commit(stated("u1", 1), stated("u2", 2))
        news = [stated("u1", 11), end_record("key-u2", 12), stated("u3", 13)]
        shows = [baseline_row(uuid, AT_US) for uuid in ("u1", "u2", "u3")]
        for page in (shows, news) if first == "get" else (news, shows):
            await marks.mark(page)
        # The main stream has not come to it.
        assert await verdicts(marks) == {}
        await one.commit(*news)
        assert await verdicts(marks) == {}
        assert await marks.counts() == Counts(right=2)


async def test_a_row_that_takes_another_key_meanwhile_is_the_same(stage: Stages) -> None:
    async with stage(stream=STREAM) as at:
        await at.commit(baseline_row("u1", 1), by_uuid=True)
        async with at.store.audit(STREAM) as marks:
            await marks.mark([baseline_row("u1", AT_US)])
            await Audited(at, marks).commit(stated("u1", 7), by_uuid=True)
            assert set(await at.bodies()) == {"key-u1"}
            await marks.suspect()
            await marks.mark([stated("u1", 7)])
            await marks.judge(bogus=True)
            assert await verdicts(marks) == {}
            assert await marks.counts() == Counts(right=1)


async def test_what_ends_by_an_unknown_name_makes_nobody_missing(stage: Stages) -> None:
    async with stage(stream=STREAM) as at, at.store.audit(STREAM) as marks:
        one = Audited(at, marks)
        await one.commit(stated("u1", 1), stated("u2", 2))
        # One is lost behind instep's back, and ends then: only its lost row knew its name.
        await one.behind("DELETE FROM instep_entity WHERE uuid = 'u1'")
        await marks.mark([baseline_row("u1", AT_US), baseline_row("u2", AT_US, b'{"at":2}')])
        await marks.mark([end_record("key-u1", 11, RecordType.TOMBSTONE)])
        assert await verdicts(marks) == {}
        assert await marks.counts() == Counts(right=1, undecided=1)


@pytest.mark.parametrize("whole", [True, False])
async def test_what_no_get_shows_ends_by_a_name_of_its_own(stage: Stages, whole: bool) -> None:
    async with stage(stream=STREAM) as at, at.store.audit(STREAM) as marks:
        await marks.mark([baseline_row("u1", AT_US), baseline_row("u2", AT_US)])
        clear = create_update("a1", 1, ends=True, entity_class="CONDITION_DETECTOR", whole=whole)
        await marks.mark(
            [
                clear,
                end_record("a1", 2, RecordType.TOMBSTONE),
                end_record("u2", 3, RecordType.TOMBSTONE),
            ]
        )
        await marks.mark([end_record("a1", 2, RecordType.TOMBSTONE)])
        assert await verdicts(marks) == {"u1": Verdict.MISSING}


async def test_an_end_is_known_by_a_row_or_by_the_memory_of_the_ended(stage: Stages) -> None:
    async with stage(stream=STREAM) as at, at.store.audit(STREAM) as marks:
        await at.commit(stated("u1", 1), stated("u2", 2), by_uuid=True)
        await at.commit(end_record("key-u1", 11), by_uuid=True)
        await marks.mark([baseline_row("u1", AT_US), baseline_row("u2", AT_US)])
        # Of the second the main stream has not come to the end.
        await marks.mark([end_record("key-u1", 11), end_record("key-u2", 12, RecordType.TOMBSTONE)])
        assert await verdicts(marks) == {}
        counts = await marks.counts()
        assert (counts.missing, counts.bogus, counts.right) == (0, 0, 0)
        assert not marks._reading.unplaced_ends


async def test_an_entity_that_changes_in_parts_is_left_undecided(stage: Stages) -> None:
    async with stage(stream=STREAM) as at, at.store.audit(STREAM) as marks:
        one = Audited(at, marks)
        await one.commit(stated("u1", 1), stated("u2", 2), stated("u3", 3))
        await marks.mark([baseline_row(f"u{n}", AT_US) for n in (1, 2, 3)])
        parts = [
            stated("u1", 11, key="key-u1/x", whole=False),
            end_record("key-u2/x", 12, whole=False),
            end_record("key-u3", 13, whole=False),
        ]
        await one.commit(*parts, by_uuid=True)
        await marks.mark(parts)
        assert await verdicts(marks) == {}
        assert (await marks.counts()).undecided == 2


async def test_another_baseline_voids_what_was_suspect(stage: Stages) -> None:
    async with stage(stream=STREAM) as at, at.store.audit(STREAM) as marks:
        await marks.mark([baseline_row("u1", AT_US)])
        stood = await marks.suspect()
        at.attempt = 2
        await at.commit(baseline_row("u1", 200), by_uuid=True)
        assert (await marks.position()).attempt != stood.attempt
        await marks.judge(bogus=True)
        assert await marks.repair(stood) == 0


async def test_a13_rows_that_share_a_uuid_are_never_taken_for_each_other(stage: Stages) -> None:
    """Nothing is found, and a repair changes nothing, also when one of them ends."""
    async with stage(stream=STREAM) as at:
        rows = [
            replace(
                baseline_row("u1", 1, b"{%d}" % n, envelope=b'{"parent-address":["n%d"]}' % n),
                key=f"n{n}+u1",
            )
            for n in (1, 2)
        ]
        await at.commit(*rows, baseline_row("u2", 1), by_uuid=True)
        async with at.store.audit(STREAM) as marks:
            one = Audited(at, marks)
            await marks.mark([*rows, baseline_row("u2", 1)])
            place = {"uuid": "u1", "envelope": b'{"parent-address":["n1"]}'}
            news = [create_update("k1", 2, b"{11}", **place), end_record("k1", 3)]
            for record in news:
                await one.commit(record, by_uuid=True)
                await marks.mark([record])
                assert await verdicts(marks) == {}
            assert await marks.repair(await marks.position()) == 0
            assert list(await at.bodies()) == ["n2+u1", "u2"]


async def test_a12_a_repair_keeps_what_a_get_only_identifies(stage: Stages) -> None:
    stream = replace(STREAM, contained=frozenset({"port"}))
    ports = b'"port":[{"uuid":"p1","y":1}]'
    async with stage(stream=stream) as at:
        for n in range(1, 4):
            body = b'{"uuid":"u%d","x":1,%b}' % (n, ports)
            await at.commit(create_update(f"k{n}", n, body, uuid=f"u{n}"), by_uuid=True)
        async with at.store.audit(stream) as marks:
            cut = b'"port":[{"uuid":"p1"}]'
            shown = [b'{"uuid":"u1","x":1,%b}' % cut, b'{"uuid":"u2","x":2,%b}' % cut]
            shown.append(b'{"uuid":"u3"}')
            await marks.mark([baseline_row(f"u{n}", 9, body) for n, body in enumerate(shown, 1)])
            assert await verdicts(marks) == {"u2": Verdict.STALE}
            await marks.repair(await marks.position())
        assert (await at.bodies())["k2"] == b'{"uuid":"u2","x":2,%b}' % ports
