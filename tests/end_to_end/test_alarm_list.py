"""Each alarm and each threshold crossing of the list for TAPI 2.6: raised, changed and cleared,
from the wire to the store.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from instep_sql import SqlStore
from instep_tapi.derivations.alarms import AlarmEpisode, alarms
from tests.instep_tapi.alarm_list_kit import Entry, alarm_list, statements
from tests.instep_tapi.small_provider_kit import DEADLINE_S, SmallProvider, running

pytestmark = pytest.mark.asyncio


async def committed(store: SqlStore, records: Sequence[bytes]) -> None:
    """Wait until the last of these is stored."""
    token = json.loads(records[-1])["log-record-header"]["token"]
    async with asyncio.timeout(DEADLINE_S):
        while [one.position.token for one in await store.reader.streams()] != [token]:
            await asyncio.sleep(0.02)


async def episodes(store: SqlStore) -> dict[str, AlarmEpisode]:
    """By key; each has one."""
    found = [one async for one in alarms(store.reader)]
    assert [one async for one in alarms(store.reader, events=True)] == []
    by_key = {one.key: one for one in found}
    assert len(by_key) == len(found)
    return by_key


def facts(one: AlarmEpisode) -> tuple[object, ...]:
    """What does not change while an alarm lasts."""
    return one.condition, one.condition_normalized, one.detector_type, one.measured_class


def expected(entry: Entry) -> tuple[object, ...]:
    return entry.native, entry.normalized, entry.detector, entry.measured_class


async def test_each_is_raised_changed_and_cleared(shared_data: Path, tmp_path: Path) -> None:
    entries = alarm_list(shared_data)
    assert len(entries) == 151
    steps = statements(entries)
    provider = SmallProvider("CONDITION_DETECTOR", log=steps["raised"], storage="COMPACTED")
    store = SqlStore(f"sqlite:///{tmp_path}/s.db", alarms=True)
    async with running(provider, store):
        await committed(store, steps["raised"])
        found = await episodes(store)
        assert {key: facts(one) for key, one in found.items()} == {
            one.key: expected(one) for one in entries
        }
        for entry in entries:
            one = found[entry.key]
            assert (one.state, one.severity, one.standing) == ("ACTIVE", entry.severity, True)

        provider.say(*steps["changed"])
        await committed(store, steps["changed"])
        found = await episodes(store)
        for entry in entries:
            one = found[entry.key]
            assert (one.state, one.severity) == ("INTERMITTENT", entry.worse)
            assert (one.worst_severity, one.severity_changes) == (entry.worst, 1)
            assert (one.statements, one.intermittent_count, one.number) == (2, 1, 1)

        provider.say(*steps["cleared"])
        await committed(store, steps["cleared"])
        found = await episodes(store)
        assert {one.ended_by for one in found.values()} == {"CLEAR"}
        assert {key: facts(one) for key, one in found.items()} == {
            one.key: expected(one) for one in entries
        }
        assert [one async for one in store.reader.entities()] == []
        (stream,) = await store.reader.streams()
        assert stream.deviations == {}
    await store.close()
