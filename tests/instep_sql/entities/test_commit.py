"""The transaction of a commit, rule by rule."""

from __future__ import annotations

import json
import random
import string
from itertools import product

import pytest

from instep.errors import FencedError, SinkError
from instep.model.batches import SweepStep
from instep.model.position import Phase, Position
from instep.model.records import Record, RecordType
from tests.instep_sql.store_kit import Stage, Stages, create_update, end_record, stream_info

pytestmark = pytest.mark.asyncio


async def test_a1_position_moves_with_what_it_covers(stage: Stages) -> None:
    async with stage() as at:
        position = Position(
            token="t:5==", ordinal=1, attempt=2, phase=Phase.ALIGNING, recent=b"12345678"
        )
        await at.commit(create_update("a", 5), position=position)
        assert await at.store.position(stream_info()) == position
        assert list(await at.entities()) == ["a"]


async def test_a1_nothing_of_a_refused_batch_is_stored(stage: Stages) -> None:
    async with stage() as at:
        with pytest.raises(ValueError, match="leads beyond"):
            await at.commit(create_update("a", 1), position=Position())
        with pytest.raises(SinkError):  # behind the move of the position
            await at.commit(create_update("a", 1), create_update("\ud800", 2))
        assert (await at.store.position(stream_info())).ordinal == 0
        assert await at.entities() == {}
        await at.commit(create_update("a", 1))


async def test_the_fence_refuses_a_second_writer(stage: Stages) -> None:
    async with stage() as at:
        stale = Stage(at.store, at.position)
        await at.commit(create_update("a", 1))
        with pytest.raises(FencedError, match="another process has committed on stream 's1'"):
            await stale.commit(create_update("a", 2), create_update("b", 3))
        assert await at.bodies() == {"a": b'{"at":1}'}


async def test_a_commit_that_leads_nowhere_is_a_mistake_of_the_caller(stage: Stages) -> None:
    async with stage() as at:
        with pytest.raises(ValueError, match="leads beyond ordinal 0, not to 0"):
            await at.commit(create_update("a", 1), position=Position())


async def test_a3_newer_stored_is_ignored_and_not_marked(stage: Stages) -> None:
    async with stage() as at:
        await at.commit(create_update("a", 9))
        at.attempt = 2
        result = await at.commit(create_update("a", 5))
        (entity,) = (await at.entities()).values()
        assert (entity.body, entity.attempt, result.written) == (b'{"at":9}', 1, 0)


@pytest.mark.parametrize("at_us", [9, 12])
async def test_a3_same_or_older_stored_is_written_and_marked(stage: Stages, at_us: int) -> None:
    async with stage() as at:
        await at.commit(create_update("a", 9))
        at.attempt = 2
        result = await at.commit(create_update("a", at_us))
        (entity,) = (await at.entities()).values()
        assert (entity.appended_at_us, entity.attempt, result.written) == (at_us, 2, 1)


async def test_a3_another_lineage_does_not_compare(stage: Stages) -> None:
    async with stage() as at:
        await at.commit(create_update("a", 900), create_update("b", 900))
        at.lineage, at.attempt = 2, 2
        await at.commit(create_update("a", 5), end_record("b", 5))
        (entity,) = (await at.entities()).values()
        assert (entity.key, entity.appended_at_us, entity.attempt) == ("a", 5, 2)


async def test_a3_offsets_decide_before_append_times_within_a_partition(stage: Stages) -> None:
    async with stage() as at:
        await at.commit(
            create_update("a", 50, offset=7, partition="0"), create_update("b", 50, offset=7)
        )
        await at.commit(
            create_update("a", 40, offset=8, partition="0"), create_update("b", 60, offset=6)
        )
        times = {key: entity.appended_at_us for key, entity in (await at.entities()).items()}
        assert times == {"a": 40, "b": 50}


async def test_a3_append_times_decide_across_partitions_and_without_offsets(
    stage: Stages,
) -> None:
    async with stage() as at:
        await at.commit(
            create_update("a", 50, offset=7, partition="0"), create_update("b", 50, offset=-1)
        )
        await at.commit(
            create_update("a", 40, offset=8, partition="1"), create_update("b", 40, offset=99)
        )
        assert {entity.appended_at_us for entity in (await at.entities()).values()} == {50}


async def test_a3_an_older_end_does_not_end(stage: Stages) -> None:
    async with stage() as at:
        await at.commit(create_update("a", 9))
        assert (await at.commit(end_record("a", 5))).deleted == 0
        assert list(await at.entities()) == ["a"]


async def test_a4_delete_and_tombstone_end_an_entity_once(stage: Stages) -> None:
    async with stage(journal="changes") as at:
        await at.commit(create_update("a", 1))
        assert (
            await at.commit(end_record("a", 2), end_record("a", 3, RecordType.TOMBSTONE))
        ).deleted == 1
        assert (await at.commit(end_record("a", 3, RecordType.TOMBSTONE))).deleted == 0
        assert await at.journal() == [("a", "created"), ("a", "deleted")]


async def test_a4_a_statement_after_an_end_lives(stage: Stages) -> None:
    async with stage() as at:
        await at.commit(create_update("a", 1), end_record("a", 2), create_update("a", 3))
        await at.commit(end_record("a", 4), create_update("a", 5))
        assert await at.bodies() == {"a": b'{"at":5}'}


_PLACES = [("0", 1, 30), ("0", 2, 10), ("1", 1, 20)]
"""Partition, offset, append time: by offsets the second is newer than the first, by times the first
is newer than the third and the third newer than the second.
"""


def _sequences(prefix: str) -> tuple[list[Record], list[list[Record]]]:
    """What is stored, if anything, and three statements after it: all combinations, of which each
    has a key of its own.
    """
    kept: list[Record] = []
    sequences: list[list[Record]] = []
    statements = list(product(_PLACES, (False, True)))
    for stored in (None, *_PLACES):
        for following in product(statements, repeat=3):
            key = f"{prefix}{len(sequences)}"
            if stored is not None:
                kept.append(_at(key, stored, 0))
            numbered = enumerate(following, 1)
            sequences.append([_at(key, place, n, ends=ends) for n, (place, ends) in numbered])
    return kept, sequences


def _at(key: str, place: tuple[str, int, int], number: int, *, ends: bool = False) -> Record:
    partition, offset, at_us = place
    if ends:
        return end_record(key, at_us, partition=partition, offset=offset)
    return create_update(key, at_us, b"[%d]" % number, partition=partition, offset=offset)


async def test_a3_what_is_stored_and_journaled_does_not_depend_on_where_batches_end(
    stage: Stages,
) -> None:
    async with stage(journal="previous") as at:
        kept, sequences = _sequences("a")
        await at.commit(*kept)
        for records in zip(*sequences, strict=True):
            await at.commit(*records)
        kept, sequences = _sequences("b")
        await at.commit(*kept)
        await at.commit(*[record for records in sequences for record in records])
        left: dict[str, dict[str, bytes]] = {"a": {}, "b": {}}
        for key, body in (await at.bodies()).items():
            left[key[0]][key[1:]] = body
        assert left["b"] == left["a"]
        assert {*left["a"].values()} == {b"[0]", b"[1]", b"[2]", b"[3]"}
        journal: dict[str, dict[str, list[tuple[str, bytes, bytes | None]]]] = {"a": {}, "b": {}}
        for one in await at.changes():
            changes = journal[one.key[0]].setdefault(one.key[1:], [])
            changes.append((one.change.value, one.body, one.previous))
        assert journal["b"] == journal["a"]


async def test_a9_an_older_statement_in_the_same_batch_is_ignored(stage: Stages) -> None:
    async with stage() as at:
        await at.commit(
            create_update("a", 9), create_update("a", 5), create_update("b", 9), end_record("b", 5)
        )
        assert await at.bodies() == {"a": b'{"at":9}', "b": b'{"at":9}'}


async def test_a10_deviations_are_counted(stage: Stages) -> None:
    async with stage() as at:
        await at.commit(deviations={"flat-time": 2})
        await at.commit(deviations={"flat-time": 1, "no-offset": 4})
        (status,) = await at.store.reader.streams()
        assert status.deviations == {"flat-time": 3, "no-offset": 4}


async def test_a_batch_writes_first_and_sweeps_then(stage: Stages) -> None:
    async with stage() as at:
        await at.commit(create_update("a", 1), create_update("b", 1), create_update("c", 1))
        at.attempt = 2
        result = await at.commit(create_update("b", 2), sweep=SweepStep(2, limit_records=100))
        assert (result.swept, result.sweep_done) == (2, True)
        assert list(await at.entities()) == ["b"]


async def test_everything_of_a_record_is_kept(stage: Stages) -> None:
    async with stage() as at:
        await at.commit(
            create_update("k", 7, b'{"x": 1}', envelope=b'{"e":1}', uuid="u", partition="3")
        )
        (entity,) = (await at.entities()).values()
        assert (entity.stream, entity.consumer, entity.entity_class) == ("s1", "east", "NODE")
        assert (entity.token, entity.appended_at_us, entity.uuid) == ("t7", 7, "u")
        assert (entity.body, entity.envelope, entity.proven) == (b'{"x": 1}', b'{"e":1}', True)


async def test_strange_keys_and_tokens_are_data(stage: Stages) -> None:
    keys = ["'; DROP TABLE instep_entity; --", "-4611686018427387904", "ключ\n", "%s ? :x", " "]
    async with stage(journal="bodies") as at:
        await at.commit(*[create_update(key, n) for n, key in enumerate(keys)])
        assert list(await at.entities()) == keys
        await at.commit(*[end_record(key, 10 + n) for n, key in enumerate(keys)])
        assert await at.entities() == {}


async def test_a3_the_same_append_time_without_offsets_is_written(stage: Stages) -> None:
    async with stage() as at:
        await at.commit(create_update("a", 5, b"1", offset=-1))
        at.attempt = 2
        await at.commit(create_update("a", 5, b"2", offset=-1))
        (entity,) = (await at.entities()).values()
        assert (entity.body, entity.attempt) == (b"2", 2)


@pytest.mark.parametrize("length", [2_600, 2_700, 4_096])
async def test_a11_a_key_that_is_too_long_for_an_index_stops_no_commit(
    stage: Stages, length: int
) -> None:
    """An index of PostgreSQL holds no entry of more than 2,704 bytes."""
    key = "".join(random.Random(0).choices(string.ascii_letters + string.digits, k=length))
    async with stage(journal="changes") as at:
        await at.commit(create_update(key, 1), create_update("b", 2), end_record("c", 3))
        await at.commit(end_record(key, 4))
        kept = [one.reason async for one in at.store.reader.quarantine()]
        assert list(await at.entities()) == ["b"]
    if length > 2_600 and at.store.options.url.startswith("postgresql"):
        assert kept[0] == "a key or uuid of more than 2600 bytes, too long for an index"
    else:
        assert kept == []


async def test_a_uuid_in_a_body_of_any_length_stops_no_commit(stage: Stages) -> None:
    endless = "".join(random.Random(0).choices(string.ascii_letters, k=5_000))
    async with stage() as at:
        await at.commit(create_update("a", 1, json.dumps({"uuid": endless}).encode()))
        (one,) = (await at.entities()).values()
    assert one.uuid == ""
