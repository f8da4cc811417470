"""The journal of committed changes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from instep.errors import ChangesTrimmedError, JournalOffError, SinkError
from instep.model.batches import SweepStep
from instep.model.entities import Change, ChangeKind
from instep.model.records import Record, RecordType
from instep_sql import SqlStore
from instep_sql.entities import journal as journal_module
from instep_sql.entities.journal import _accepted, _accepted_in_order
from tests.instep_sql.store_kit import (
    Stage,
    Stages,
    columns_of,
    create_update,
    end_record,
    record_columns,
    stream_info,
)

pytestmark = pytest.mark.asyncio


async def test_each_change_is_journaled_in_order_also_those_compacted_away(stage: Stages) -> None:
    async with stage(journal="changes") as at:
        await at.commit(
            create_update("a", 1), create_update("b", 2), create_update("a", 3), end_record("a", 4)
        )
        assert await at.journal() == [
            ("a", "created"),
            ("b", "created"),
            ("a", "updated"),
            ("a", "deleted"),
        ]
        assert list(await at.entities()) == ["b"]


async def test_an_unchanged_statement_is_no_change(stage: Stages) -> None:
    async with stage(journal="changes") as at:
        await at.commit(create_update("a", 1, b"{}"), create_update("a", 2, b"{}"))
        at.lineage = at.attempt = 2
        await at.commit(create_update("a", 1, b"{}"))
        assert await at.journal() == [("a", "created")]
        assert (await at.entities())["a"].attempt == 2


async def test_what_a3_ignores_is_no_change(stage: Stages) -> None:
    async with stage(journal="changes") as at:
        await at.commit(create_update("a", 9))
        await at.commit(
            create_update("a", 5), end_record("a", 6), create_update("a", 7), end_record("b", 8)
        )
        assert await at.journal() == [("a", "created")]


async def test_a_change_has_what_who_and_when(stage: Stages) -> None:
    async with stage(journal="previous", clock_us=lambda: 77) as at:
        placed = b'{"parent-address":["topology-uuid:t"]}'
        await at.commit(create_update("a", 1, b"1", entity_class="LINK", envelope=placed))
        await at.commit(
            create_update("a", 2, b"2", entity_class="LINK"),
            end_record("a", 3, RecordType.TOMBSTONE),
        )
        created, updated, deleted = await at.changes()
        assert created == Change(
            cursor=1,
            stream="s1",
            key="a",
            entity_class="LINK",
            change=ChangeKind.CREATED,
            kind=RecordType.CREATE_UPDATE,
            token="t1",
            appended_at_us=1,
            committed_at_us=77,
            body=b"1",
            consumer="east",
            envelope=placed,
            epoch=created.epoch,
        )
        assert created.epoch == deleted.epoch != ""
        assert (updated.body, updated.previous) == (b"2", b"1")
        assert (deleted.kind, deleted.entity_class) == (RecordType.TOMBSTONE, "LINK")
        assert (deleted.body, deleted.previous) == (b"", b"2")


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("changes", [(b"", None), (b"", None), (b"", None)]),
        ("bodies", [(b"1", None), (b"2", None), (b"", None)]),
        ("previous", [(b"1", None), (b"2", b"1"), (b"", b"2")]),
    ],
)
async def test_bodies_are_kept_as_asked(stage: Stages, mode: str, expected: list[Any]) -> None:
    async with stage(journal=mode) as at:
        await at.commit(create_update("a", 1, b"1"), create_update("a", 2, b"2"))
        at.attempt = 2
        await at.commit(sweep=SweepStep(2))
        changes = await at.changes()
        assert [(change.body, change.previous) for change in changes] == expected
        assert (changes[-1].change, changes[-1].kind) == (ChangeKind.SWEPT, None)


async def test_a_subscriber_goes_on_from_its_cursor(stage: Stages) -> None:
    async with stage(journal="changes") as at:
        await at.commit(*[create_update(f"k{n}", n) for n in range(1200)])
        first = await at.changes()
        assert [change.cursor for change in first] == list(range(1, 1201))
        await at.commit(create_update("late", 2000))
        assert [change.key for change in await at.changes(first[-1].cursor)] == ["late"]


async def test_a_subscriber_that_follows_gets_what_comes(stage: Stages) -> None:
    async with stage(journal="changes") as at:
        got: list[str] = []

        async def follow() -> None:
            async for change in at.store.changes(follow=True):
                got.append(change.key)
                if change.key == "end":
                    return

        task = asyncio.create_task(follow())
        await at.commit(create_update("a", 1))
        while not got:
            await asyncio.sleep(0.01)
        await at.commit(create_update("end", 2))
        await asyncio.wait_for(task, 10)
        assert got == ["a", "end"]


async def test_an_end_is_journaled_under_the_class_that_is_stored(stage: Stages) -> None:
    async with stage(journal="changes") as at:
        await at.commit(create_update("a", 1, entity_class="LINK"))
        await at.commit(end_record("a", 2, entity_class=""))
        assert [change.entity_class for change in await at.changes()] == ["LINK", "LINK"]


async def test_a_store_that_no_consumer_has_used_yet_can_be_followed(tmp_path: Path) -> None:
    async with SqlStore(f"sqlite:///{tmp_path}/s.db", journal="changes") as store:
        await store.open("first")
        assert [change async for change in store.changes()] == []


async def test_changes_of_one_stream(stage: Stages) -> None:
    async with stage(journal="changes") as at:
        await at.commit(create_update("a", 1))
        await at.store.position(stream_info("other"))
        assert [c.key async for c in at.store.changes(stream="other")] == []
        assert [c.key async for c in at.store.changes(stream="s1")] == ["a"]


async def test_without_a_journal_changes_are_refused(stage: Stages) -> None:
    async with stage() as at:
        await at.commit(create_update("a", 1))
        with pytest.raises(JournalOffError, match='set journal = "changes"'):
            await at.changes()


async def test_retention_by_number_and_the_subscriber_that_was_away_too_long(stage: Stages) -> None:
    async with stage(journal="changes", journal_retention_records=10) as at:
        for n in range(40):
            await at.commit(create_update(f"k{n}", n))
        assert [change.cursor for change in await at.changes()] == list(range(31, 41))
        assert len(await at.changes(30)) == 10
        with pytest.raises(SinkError, match="changes 30 to 30 are no longer kept") as caught:
            await at.changes(29)
        assert caught.value.data["oldest"] == 31


async def test_retention_by_age_and_cursors_are_never_given_twice(stage: Stages) -> None:
    now = [0]
    async with stage(journal="changes", journal_retention_s=10, clock_us=lambda: now[0]) as at:
        await at.commit(create_update("a", 1))
        now[0] = 11_000_000
        await at.commit(create_update("b", 2))
        assert [(c.cursor, c.key) for c in await at.changes()] == [(2, "b")]
        now[0] = 30_000_000
        await at.commit()
        assert await at.changes() == []
        await at.commit(create_update("c", 3))
        assert [c.cursor for c in await at.changes()] == [3]


async def test_a_long_journal_is_trimmed_in_pieces(stage: Stages) -> None:
    async with stage(journal="changes") as at:
        await at.commit(*[create_update(f"k{n}", n) for n in range(5_000)])
        stage_two = Stage(at.store, at.position)
        at.store.options = replace(at.store.options, journal_retention_records=1)
        await stage_two.commit(create_update("x", 9_000))
        assert 3_000 < len(await at.changes()) < 4_001


async def test_a_statement_of_another_lineage_is_a_change_whatever_its_time(stage: Stages) -> None:
    async with stage(journal="changes") as at:
        await at.commit(create_update("a", 900))
        at.lineage = at.attempt = 2
        await at.commit(create_update("a", 5))
        assert await at.journal() == [("a", "created"), ("a", "updated")]


@given(
    stored=st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)),
    pairs=st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), min_size=1, max_size=12),
)
async def test_of_columns_the_same_counts_as_of_their_records(
    stored: dict[str, int], pairs: list[tuple[str, bool]]
) -> None:
    columns = record_columns(pairs)
    known = {key: replace(columns[0], key=key, offset=at) for key, at in stored.items()}
    in_order = list(_accepted_in_order(columns, dict(known)))
    assert in_order == list(_accepted(list(columns), dict(known)))


async def test_a_batch_in_columns_is_journaled(stage: Stages) -> None:
    async with stage(journal="previous") as at:
        await at.commit(create_update("b", 0, b"{}"))
        batch = at.batch().replace(
            records=record_columns([("a", False), ("b", False), ("a", True)])
        )
        await at.store.commit(batch)
        assert await at.journal() == [
            ("b", "created"),
            ("a", "created"),
            ("b", "updated"),
            ("a", "deleted"),
        ]
        *_, updated, deleted = await at.changes()
        assert (updated.previous, updated.body) == (b"{}", b"{1}")
        assert (deleted.previous, deleted.entity_class) == (b"{0}", "NODE")
        assert list(await at.bodies()) == ["b"]


ALARMS = stream_info(event_classes=frozenset({"CONDITION_DETECTOR"}))
RAISED = [
    b'{"event-time-stamp":{"primary-time-stamp":"2026-01-0%dT00:00:00Z"}}' % n for n in (1, 2)
]


@pytest.mark.parametrize("mode", ["changes", "bodies", "previous"])
async def test_3_11_1_each_change_keeps_its_event_time(stage: Stages, mode: str) -> None:
    """Of a raise that was overwritten, of an alarm raised again as it was, and of its clear."""
    async with stage(stream=ALARMS, journal=mode) as at:
        alarm: dict[str, Any] = {"entity_class": "CONDITION_DETECTOR", "body": b"{}"}
        await at.commit(create_update("a", 1, envelope=RAISED[0], **alarm))
        await at.commit(create_update("a", 2, envelope=RAISED[0], **alarm))
        again = create_update("a", 3, envelope=RAISED[1], **alarm)
        await at.commit(again)
        await at.commit(create_update("a", 4, ends=True, envelope=b"{}", **alarm))
        assert [(one.change, one.envelope) for one in await at.changes()] == [
            (ChangeKind.CREATED, RAISED[0]),
            (ChangeKind.UPDATED, RAISED[1]),
            (ChangeKind.DELETED, b"{}"),
        ]


async def test_the_state_of_other_entities_does_not_change_with_a_time(stage: Stages) -> None:
    async with stage(stream=ALARMS, journal="bodies") as at:
        for n in (1, 2):
            await at.commit(create_update("n", n, b"{}", envelope=RAISED[n - 1]))
        assert await at.journal() == [("n", "created")]
        assert (await at.entities())["n"].envelope == RAISED[1]


class Stated(NamedTuple):
    """A record of the next test: what is stated of a key, when, and whether the log states it."""

    key: str
    at: int
    ends: bool
    body: bytes
    envelope: bytes
    logged: bool

    def record(self, prefix: str) -> Record:
        record = create_update(
            prefix + self.key,
            self.at,
            self.body,
            envelope=self.envelope,
            entity_class="CONDITION_DETECTOR" if self.key == "a" else "NODE",
            ends=self.ends,
        )
        return record if self.logged else replace(record, token="", offset=-1)


class Drawn(NamedTuple):
    """A batch of the next test."""

    lineage: int
    in_columns: bool
    stated: list[Stated]


def drawn(random: Random, columns_share: float) -> list[Drawn]:
    """Batches. Columns state nothing older than what they have stated before, and no baseline; many
    state no entity twice.
    """
    batches = []
    for _ in range(random.randint(1, 5)):
        in_columns = random.random() < columns_share
        records = [
            Stated(
                random.choice("abc"),
                random.randint(0, 5),
                random.random() < (0.1 if in_columns else 0.3),
                random.choice([b'{"x":1,"y":2}', b'{"y":2,"x":1}', b'{"x":2}']),
                random.choice(RAISED),
                in_columns or random.random() < 0.5,
            )
            for _ in range(random.randint(1, 2 if in_columns and random.random() < 0.7 else 6))
        ]
        if in_columns:
            records.sort(key=lambda one: one.at)
        batches.append(Drawn(random.randint(1, 2), in_columns, records))
    return batches


Entry = tuple[str, str, int, bytes, bytes | None]
"""Key, change, time, body and previous body."""


def expected_journal(batches: list[Drawn]) -> list[Entry]:
    """By A3 and the promise of `append_changes`, record by record."""
    journal: list[Entry] = []
    stored: dict[str, tuple[int, Stated]] = {}
    for lineage, _, records in batches:
        for record in records:
            of, before = stored.get(record.key, (0, None))
            if before is not None and of == lineage and before.at > record.at:
                continue
            if record.ends:
                if before is not None:
                    del stored[record.key]
                    journal.append((record.key, "deleted", record.at, record.body, before.body))
                continue
            stored[record.key] = lineage, record
            if before is None:
                journal.append((record.key, "created", record.at, record.body, None))
                continue
            same = before.body == record.body and (
                record.key != "a" or before.envelope == record.envelope
            )
            alike = not before.logged and json.loads(before.body) == json.loads(record.body)
            if not (same or alike):
                journal.append((record.key, "updated", record.at, record.body, before.body))
    return journal


@pytest.mark.parametrize("columns_share", [0, 0.6, 1])
@pytest.mark.parametrize(
    ("mode", "sample_keys"), [("changes", 1), ("changes", 64), ("bodies", 2), ("previous", 64)]
)
async def test_the_journal_is_what_a3_makes_of_each_record(
    stage: Stages,
    mode: str,
    columns_share: float,
    sample_keys: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where the database compares bodies and they are not loaded (all but "previous"), where
    it appends the changes itself (columns), and where it is asked first what is stored (a batch of
    more keys than the sample).
    """
    monkeypatch.setattr(journal_module, "_SAMPLE_KEYS", sample_keys)
    cursor = 0
    async with stage(stream=ALARMS, journal=mode) as at:
        for seed in range(100):
            batches = drawn(Random(seed), columns_share)
            for lineage, in_columns, stated in batches:
                at.lineage = at.attempt = lineage
                records = [one.record(f"{seed}-") for one in stated]
                await at.commit(records=columns_of(records) if in_columns else records)
            changes = await at.changes(cursor)
            cursor = max([cursor, *(one.cursor for one in changes)])
            journal = [
                (one.key, one.change.value, one.appended_at_us, one.body, one.previous)
                for one in changes
            ]
            expected = [
                (
                    *(f"{seed}-{key}", change, at_us),
                    *(b"" if mode == "changes" else body, previous if mode == "previous" else None),
                )
                for key, change, at_us, body, previous in expected_journal(batches)
            ]
            assert journal == expected, f"seed {seed}"


@pytest.mark.parametrize("chosen", [{}, {"entity_class": "NODE"}], ids=["all", "of a class"])
async def test_a_reader_that_retention_passes_between_two_pages_is_told(
    stage: Stages, chosen: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("instep_sql.reader._PAGE_RECORDS", 2)
    async with stage(journal="changes", journal_retention_records=10) as at:
        await at.commit(*[create_update(f"k{n}", n) for n in range(1, 9)])
        reading = at.store.changes(**chosen)
        read = [(await anext(reading)).cursor for _ in range(2)]
        for first in range(10, 60, 10):
            await at.commit(*[create_update(f"k{first + n}", first + n) for n in range(8)])
        with pytest.raises(ChangesTrimmedError, match="are no longer kept") as caught:
            [change.cursor async for change in reading]
        assert read == [1, 2]
        assert caught.value.data["oldest"] > 3


async def test_a_journal_that_begins_later_lists_what_the_store_holds(stage: Stages) -> None:
    placed = b'{"parent-address":["topology-uuid:t"]}'
    async with stage(journal="off") as at:
        await at.commit(create_update("b", 1, b"1", envelope=placed), create_update("a", 2, b"2"))
        await at.commit(create_update("gone", 3), end_record("gone", 4))
    async with stage(journal="bodies") as at:
        await at.commit(create_update("a", 5, b"3"), create_update("c", 6, b"4"))
        told = [(one.key, one.change.value, one.body) for one in await at.changes()]
        assert told == [
            ("b", "created", b"1"),
            ("a", "created", b"2"),
            ("a", "updated", b"3"),
            ("c", "created", b"4"),
        ]
        first = (await at.changes())[0]
        assert (first.envelope, first.token, first.kind) == (placed, "t1", None)


async def test_a_journal_that_was_off_tells_what_it_has_missed(stage: Stages) -> None:
    async with stage(journal="changes") as at:
        await at.commit(create_update("a", 1), create_update("b", 2), create_update("c", 3))
        await at.commit(end_record("c", 4))
        cursor = (await at.changes())[-1].cursor
    async with stage(journal="off") as at:
        await at.commit(end_record("a", 5), create_update("b", 6), create_update("d", 7))
    async with stage(journal="changes") as at:
        told = [(one.key, one.change.value) for one in await at.changes(cursor)]
        assert told == [("a", "swept"), ("b", "updated"), ("d", "created")]
    async with stage(journal="changes") as at:
        assert len(await at.changes(cursor)) == 3


async def test_a_journal_that_keeps_bodies_from_now_on_states_them_all(stage: Stages) -> None:
    async with stage(journal="changes") as at:
        await at.commit(create_update("a", 1, b"1"), create_update("b", 2, b"2"))
        cursor = (await at.changes())[-1].cursor
    async with stage(journal="previous") as at:
        told = [(one.key, one.change.value, one.body) for one in await at.changes(cursor)]
        assert told == [("a", "updated", b"1"), ("b", "updated", b"2")]
    async with stage(journal="changes") as at:
        assert len(await at.changes(cursor)) == 2
