"""Episodes of alarms in a store: what opens, changes and ends them (TR-548 4.4 to 4.9)."""

from __future__ import annotations

import random
import string
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from instep.errors import DerivationOffError
from instep.model.batches import SweepStep
from instep.model.position import Position
from instep.model.records import Record, RecordChunk, RecordType, Unreadable
from instep.model.streams import Mode
from instep_sql import SqlStore
from instep_sql.derived.keeper import EnabledDerivations
from instep_tapi.derivations.alarms import alarms
from tests.instep_sql.alarms.alarms_kit import (
    S,
    alarms_stage,
    episodes,
    header_end,
    statement,
)
from tests.instep_sql.store_kit import (
    ON_SQLITE,
    baseline_row,
    columns_of,
    create_update,
    stream_info,
)

pytestmark = pytest.mark.asyncio

EVENT: dict[str, Any] = {"condition-detector-type": "CONDITION_DETECTOR_TYPE_EVENT_DETECTOR"}
CLEAR_VARIANTS: dict[str, tuple[list[Record], str]] = {
    "clear": ([statement(20, "CLEAR")], "CLEAR"),
    "clear and tombstone": (
        [statement(20, "CLEAR"), header_end(21, RecordType.TOMBSTONE)],
        "CLEAR",
    ),
    "tombstone": ([header_end(20, RecordType.TOMBSTONE)], "TOMBSTONE"),
    "delete": ([header_end(20, RecordType.DELETE)], "DELETE"),
    "delete and tombstone": (
        [header_end(20, RecordType.DELETE), header_end(21, RecordType.TOMBSTONE)],
        "DELETE",
    ),
}


@ON_SQLITE
@pytest.mark.parametrize("variant", CLEAR_VARIANTS)
@pytest.mark.parametrize("together", [True, False], ids=["one commit", "several"])
async def test_4_7_each_variant_of_a_clear_ends_an_episode_once(
    variant: str, together: bool, database: str
) -> None:
    ends, by = CLEAR_VARIANTS[variant]
    async with alarms_stage(database) as at:
        records = [statement(10), *ends, statement(1_000)]
        for batch in [records] if together else [[one] for one in records]:
            await at.commit(*batch)
        first, second = await episodes(at)
        assert (first.state, first.ended_by, first.standing) == ("CLEAR", by, False)
        assert (first.raised_at_us, first.cleared_at_us) == (10 * S, 20 * S)
        assert first.duration_s == 10.0
        assert (second.number, second.state, second.standing) == (2, "ACTIVE", True)
        assert [one.number for one in await episodes(at, standing=True)] == [2]
        assert [one.number for one in await episodes(at, standing=False)] == [1]


async def test_4_4_3_4_5_what_is_stated_while_it_lasts(database: str) -> None:
    legacy = {
        "service-affect": "SERVICE_AFFECTING",
        "is-acknowledged": True,
        "additional-alarm-info": ["CTP", "LOF"],
    }
    async with alarms_stage(database, alarm_names={"Loss Of Signal": "LOS"}) as at:
        await at.commit(statement(10, severity="MINOR"))
        await at.commit(statement(11, severity="CRITICAL"), statement(12, "INTERMITTENT"))
        await at.commit(statement(13, "INTERMITTENT", "WARNING"))
        detail = {"alarm-detector-state": "ACTIVE", "legacy-properties": legacy}
        last: dict[str, Any] = {"tapi-streaming:alarm-condition-detector-detail": detail}
        await at.commit(statement(14, None, **last))
        (one,) = await episodes(at)
    assert (one.state, one.severity, one.worst_severity) == ("ACTIVE", None, "CRITICAL")
    assert (one.severity_changes, one.intermittent_count, one.statements) == (4, 1, 5)
    assert (one.service_affect, one.acknowledged) == ("SERVICE_AFFECTING", True)
    assert one.info == ("CTP", "LOF")
    assert (one.condition, one.condition_normalized) == ("Loss Of Signal", "LOS")
    assert (one.measured_class, one.measured_uuid) == ("NODE_EDGE_POINT", "port-1")
    assert (one.node_uuid, one.detector_type) == ("n1", "ALARM_DETECTOR")
    assert (one.raised_spread, one.raised_precision) == ("AT", "SYNCHRONIZED")
    assert (one.raised_at_us, one.last_stated_at_us) == (10 * S, 14 * S)


async def test_a_normalized_name_that_is_stated_counts(database: str) -> None:
    async with alarms_stage(database, alarm_names={"Loss Of Signal": "LOS"}) as at:
        names: dict[str, Any] = {"condition-normalized-name": "LOS-P"}
        await at.commit(statement(10, **names))
        (one,) = await episodes(at)
    assert one.condition_normalized == "LOS-P"


async def test_4_8_flapping_counts_and_keeps_the_first_raise(database: str) -> None:
    async with alarms_stage(database) as at:
        await at.commit(statement(10), statement(20, "CLEAR"), statement(620))
        await at.commit(statement(630, "CLEAR"), statement(700), statement(710, "CLEAR"))
        await at.commit(statement(1_311))
        found = await episodes(at)
    assert [one.flapping_count for one in found] == [0, 1, 2, 0]
    assert [one.first_raised_at_us // S for one in found] == [10, 10, 10, 1_311]


async def test_l1_a_second_reading_of_the_log_adds_no_episode(database: str) -> None:
    log = [statement(10), statement(20, "CLEAR"), header_end(21, RecordType.TOMBSTONE)]
    async with alarms_stage(database) as at:
        await at.commit(*log)
        at.attempt = 2
        await at.commit(*log)
        (one,) = await episodes(at)
        assert (one.statements, one.ended_by, one.reduced_fidelity) == (1, "CLEAR", False)


async def test_4_8_without_an_event_time_it_was_before_the_append(database: str) -> None:
    raised = msgspec.structs.replace(statement(10), envelope=b"{}")
    async with alarms_stage(database) as at:
        await at.commit(raised)
        (one,) = await episodes(at)
    assert (one.raised_at_us, one.raised_spread) == (10 * S, "BEFORE")


async def test_an_interval_is_kept(database: str) -> None:
    stamp = (
        b'{"event-time-stamp":{"approx-date-and-time":{"primary-time-stamp":"19700101000005.5Z",'
        b'"start-time-stamp":"1970-01-01T01:00:02+01:00","spread":"SPREAD_BETWEEN"}}}'
    )
    async with alarms_stage(database) as at:
        await at.commit(msgspec.structs.replace(statement(10), envelope=stamp))
        (one,) = await episodes(at)
    assert (one.raised_from_us, one.raised_at_us) == (2 * S, 5_500_000)
    assert one.raised_spread == "BETWEEN"


async def test_3_9_2_5_what_never_clears_is_an_event(database: str) -> None:
    crossing = [statement(at, None, **EVENT) for at in (10, 20)]
    recovering = statement(30, key="d2", **EVENT)
    async with alarms_stage(database) as at:
        await at.commit(*crossing, recovering)
        at.attempt = 2
        await at.commit(*crossing, recovering)
        await at.commit(header_end(40, RecordType.TOMBSTONE))
        events = await episodes(at, events=True)
        (alarm,) = await episodes(at)
    assert [(one.raised_at_us // S, one.ended_by) for one in events] == [
        (10, "EVENT"),
        (20, "EVENT"),
    ]
    assert (alarm.key, alarm.state) == ("d2", "ACTIVE")


async def sweep(at: Any, *records: Record, began_s: int, **changes: Any) -> None:
    at.attempt += 1
    position = Position(
        token="sweep",
        ordinal=at.position.ordinal + 1,
        attempt=at.attempt,
        attempt_started_at_us=began_s * S,
        lineage=at.lineage,
    )
    step = SweepStep(at.attempt, **changes)
    await at.commit(*records, position=position, sweep=step)


async def test_a_sweep_ends_what_is_gone_and_says_how_sure_that_is(database: str) -> None:
    async with alarms_stage(database) as at:
        await at.commit(statement(10), statement(11, key="d2"))
        await sweep(at, statement(11, key="d2"), began_s=100)
        gone, stays = await episodes(at)
        assert (gone.ended_by, gone.cleared_at_us, gone.cleared_spread) == (
            "SWEEP",
            100 * S,
            "BEFORE",
        )
        assert gone.reduced_fidelity
        assert stays.standing
        assert not stays.reduced_fidelity
        # It has no place in the log: what is stated then is a new episode.
        await at.commit(statement(10))
        assert [one.number for one in await episodes(at, key="d1")] == [1, 2]


async def test_3_17_3_what_compaction_may_have_taken_is_marked(database: str) -> None:
    info = stream_info(compaction_delay_s=600.0, tombstone_retention_s=7_200.0)
    async with alarms_stage(database, info, now_s=1_000) as at:
        await at.commit(statement(399, key="late"), statement(401, key="in time"))
        await at.commit(statement(402, "CLEAR", key="late"), statement(399, key="ends late"))
        found = {one.key: one.reduced_fidelity for one in await episodes(at)}
    assert found == {"late": True, "in time": False, "ends late": True}


async def test_the_clock_of_the_provider_counts(database: str) -> None:
    info = stream_info(compaction_delay_s=600.0, clock_offset_us=-300 * S)
    async with alarms_stage(database, info, now_s=1_000) as at:
        await at.commit(statement(200))
        (one,) = await episodes(at)
    assert not one.reduced_fidelity


async def test_what_a_log_without_compaction_states_after_an_interruption_is_marked(
    database: str,
) -> None:
    async with alarms_stage(database) as at:
        await at.commit(*[statement(10, key=key) for key in ("same", "changes", "ends")])
        at.attempt = 2
        await at.commit(statement(10, key="same"))
        await at.commit(
            statement(11, severity="MAJOR", key="same"),
            statement(11, severity="MAJOR", key="changes"),
            statement(11, "CLEAR", key="ends"),
            statement(11, key="new"),
        )
        found = {one.key: one.reduced_fidelity for one in await episodes(at)}
    # The record that the log still had shows that nothing was missed.
    assert found == {"same": False, "changes": True, "ends": True, "new": False}


async def test_what_a_baseline_cannot_prove_is_marked(database: str) -> None:
    info = stream_info(mode=Mode.BASELINE, readable=frozenset({"NODE"}))
    async with alarms_stage(database, info) as at:
        await at.commit(statement(10))
        await sweep(at, began_s=100, readable=frozenset({"NODE"}))
        (one,) = await episodes(at)
    assert one.standing
    assert one.reduced_fidelity


async def test_a13_an_alarm_gets_the_key_of_the_stream(database: str) -> None:
    info = stream_info(mode=Mode.BASELINE, readable=frozenset({"CONDITION_DETECTOR"}))
    shown = baseline_row("u1", 1 * S, b'{"uuid":"u1"}', entity_class="CONDITION_DETECTOR")
    async with alarms_stage(database, info) as at:
        await at.commit(shown, by_uuid=True)
        named = msgspec.structs.replace(statement(10), body=b'{"uuid":"u1","x":1}', uuid="u1")
        await at.commit(named, by_uuid=True)
        (one,) = await episodes(at)
        assert (one.key, one.statements) == ("d1", 2)
        await at.commit(header_end(11, RecordType.TOMBSTONE), by_uuid=True)
        assert await episodes(at, standing=True) == []


async def test_columns_of_other_classes_are_left_alone(database: str) -> None:
    nodes = [create_update(f"n{at}", at, partition="0") for at in range(1, 4)]
    mixed = [statement(5), *[msgspec.structs.replace(one, offset=9) for one in nodes]]
    async with alarms_stage(database) as at:
        await at.commit(*nodes, records=columns_of(nodes))
        assert await episodes(at) == []
        await at.commit(*mixed, records=columns_of(mixed))
        ends = [header_end(20, RecordType.TOMBSTONE), header_end(20, RecordType.DELETE, "n1")]
        await at.commit(*ends, records=columns_of(ends))
        assert [(one.key, one.ended_by) for one in await episodes(at)] == [("d1", "TOMBSTONE")]


async def test_st_4_1_the_measured_entity_is_known_once_it_is_stored(database: str) -> None:
    async with alarms_stage(database) as at:
        await at.commit(statement(10))
        assert [one.measured_known for one in await episodes(at)] == [False]
        await at.commit(create_update("p", 11, b'{"uuid":"port-1"}'))
        assert [one.measured_known for one in await episodes(at, measured="port-1")] == [True]
        assert await episodes(at, measured="port-2") == []


async def test_a11_what_is_replayed_is_followed(database: str) -> None:
    async with alarms_stage(database) as at:
        bad = Unreadable("s1", b"?", "no JSON", "t9")
        await at.commit(statement(8), unreadable=[bad])
        (kept,) = [one async for one in at.store.reader.quarantine()]
        await at.store.reader.replay(kept.id, RecordChunk([statement(10, "CLEAR")]))
        assert [one.ended_by for one in await episodes(at)] == ["CLEAR"]


async def test_4_9_a_replay_by_another_process_has_the_names_of_the_consumer(database: str) -> None:
    async with alarms_stage(database, alarm_names={"Loss Of Signal": "LOS"}) as at:
        await at.commit(statement(8), unreadable=[Unreadable("s1", b"?", "no JSON", "t9")])
        async with SqlStore(database) as other:
            (kept,) = [one async for one in other.reader.quarantine()]
            await other.reader.replay(kept.id, RecordChunk([statement(10, key="d2")]))
        assert [one.condition_normalized for one in await episodes(at)] == ["LOS", "LOS"]
    async with alarms_stage(database, alarm_names={"Loss Of Signal": "LOS-P"}) as at:
        await at.commit(statement(20, key="d3"))
        assert [one.condition_normalized for one in await episodes(at)] == ["LOS", "LOS", "LOS-P"]
    async with alarms_stage(database) as at:
        await at.commit(statement(30, key="d4"))
        assert [one.condition_normalized for one in await episodes(at)][3:] == [None]


async def test_what_cannot_be_read_of_a_detector_is_not_stated(database: str) -> None:
    broken = msgspec.structs.replace(statement(10), body=b"{", envelope=b"[")
    names: dict[str, Any] = {"condition-native-name": "a\0b"}
    nul = statement(10, key="nul", **names)
    async with alarms_stage(database) as at:
        await at.commit(broken, nul)
        one, other = await episodes(at)
    assert (one.state, one.condition, one.raised_at_us) == ("ACTIVE", None, 10 * S)
    assert other.condition == "a\N{REPLACEMENT CHARACTER}b"


async def test_the_oldest_ended_episodes_are_removed(database: str) -> None:
    async with alarms_stage(database, alarm_retention_records=3) as at:
        await at.commit(statement(1, key="stands"))
        for number in range(5):
            await at.commit(statement(10 + 2 * number), statement(11 + 2 * number, "CLEAR"))
        found = await episodes(at)
    assert [(one.key, one.number) for one in found] == [
        ("stands", 1),
        ("d1", 3),
        ("d1", 4),
        ("d1", 5),
    ]


async def test_turned_on_later_off_and_on_again(database: str) -> None:
    async with alarms_stage(database, alarms=None) as at:
        await at.commit(statement(10), statement(11, key="d2"), create_update("n", 12))
        assert at.store.latest_only
        with pytest.raises(DerivationOffError, match="keeps no episodes") as caught:
            await episodes(at)
        assert caught.value.hint == "set alarms = true in the sink's options"
    async with SqlStore(database, alarms=True) as store:
        await store.open("c")
        assert not store.latest_only
        found = [one async for one in alarms(store.reader)]
        # What was before is not known.
        assert [(one.key, one.standing, one.reduced_fidelity) for one in found] == [
            ("d1", True, True),
            ("d2", True, True),
        ]
    async with SqlStore(database, alarms=False) as store:
        await store.open("c")
        with pytest.raises(DerivationOffError):
            [one async for one in alarms(store.reader)]
    async with alarms_stage(database, alarms=None) as at:
        assert at.store.latest_only


async def test_a_process_of_another_consumer_follows_too(database: str) -> None:
    async with alarms_stage(database), SqlStore(database) as other:
        await other.open("other")
        assert not other.latest_only


async def test_what_a_process_without_them_has_ended_ends_with_the_next_sweep(
    database: str,
) -> None:
    async with alarms_stage(database) as at:
        await at.commit(statement(10))
        row = at.store._streams["s1"]
        kept, row.kept = row.kept, EnabledDerivations()
        await at.commit(statement(20, "CLEAR"))
        row.kept = kept
        assert len(await episodes(at, standing=True)) == 1
        await sweep(at, began_s=100)
        assert await episodes(at, standing=True) == []


async def test_the_views(database: str) -> None:
    async with alarms_stage(database) as at:
        await at.commit(
            statement(10), statement(15, "CLEAR"), statement(20, None, "", "e", **EVENT)
        )

        async def ask(query: str) -> tuple[Any, ...]:
            rows = await at.store.reader._fetch(lambda asked: asked.execute(text(query)).all())
            (row,) = rows
            return tuple(row)

        alarm = await ask(
            "SELECT key, state, duration_s, ended_by, measured_known, raised_at, cleared_at "
            "FROM instep_alarms"
        )
        assert alarm[:2] == ("d1", "CLEAR")
        assert float(alarm[2]) == 5.0
        assert (alarm[3], bool(alarm[4])) == ("CLEAR", False)
        raised, cleared = (str(moment).replace(" ", "T") for moment in alarm[5:])
        assert raised.startswith("1970-01-01T00:00:10")
        assert cleared.startswith("1970-01-01T00:00:15")
        event = await ask("SELECT key, detector_type, occurred_at FROM instep_alarm_events")
        assert event[:2] == ("e", "EVENT_DETECTOR")


async def test_a_uuid_of_any_length_stops_no_commit(database: str) -> None:
    """An index of PostgreSQL holds no entry of more than 2,704 bytes."""
    endless = "".join(random.Random(0).choices(string.printable, k=20_000))
    stated: dict[str, Any] = {"measured-entity-uuid": endless}
    async with alarms_stage(database) as at:
        await at.commit(statement(10, **stated))
        (one,) = await episodes(at)
    assert (one.measured_uuid, one.measured_class) == (None, "NODE_EDGE_POINT")
