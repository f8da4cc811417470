"""All alarms of the official list over a real backbone: raised, flapped, changed and cleared in
each way, with a loss of fidelity between (TR-548 4.4, 4.7, 3.17.3). What the store must show is
counted from what was said, by a plain loop.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from instep_sql import SqlStore
from instep_tapi.derivations import alarms as derived
from instep_tapi.derivations.alarms import AlarmEpisode
from instep_tapi.facts.names import LogRecordType
from instep_tapi_provider import Provider, ProviderSettings, StreamSettings
from instep_tapi_provider.clock import ScaledClock
from instep_tapi_provider.records import Statement
from instep_tapi_provider.topology import topology_context
from tests.end_to_end.site_kit import DEADLINE_S, site

pytest.importorskip("topohub", reason="the extra `simulator` is not installed")
pytestmark = pytest.mark.asyncio

SEVERITIES = ("WARNING", "MINOR", "MAJOR", "CRITICAL")
HOUR_S = 3_600
CLEARS = {
    "clear": ("CLEAR",),
    "clear and tombstone": ("CLEAR", "TOMBSTONE"),
    "tombstone": ("TOMBSTONE",),
    "delete": ("DELETE",),
    "delete and tombstone": ("DELETE", "TOMBSTONE"),
}


@dataclass(frozen=True)
class Alarm:
    key: str
    name: str
    severity: str
    measured: str


@dataclass(frozen=True)
class Said:
    """One record: a state or an end, and when it happened (microseconds)."""

    what: str
    severity: str
    at_us: int
    late: bool = False


@dataclass
class Network:
    """Says what happens at detectors, and notes it."""

    provider: Provider
    event_s: int
    said: dict[str, list[Said]] = field(default_factory=dict)

    def state(self, alarm: Alarm, state: str, severity: str = "", after_s: int = 1) -> None:
        self.event_s += after_s
        severity = severity or alarm.severity
        self._say(alarm, state, severity)

    def clear(self, alarm: Alarm, variant: str) -> None:
        self.event_s += 1
        for what in CLEARS[variant]:
            self._say(alarm, what, "CLEARED")
        self.provider.stream("alarms").entities.pop(alarm.key, None)

    def _say(self, alarm: Alarm, what: str, severity: str) -> None:
        stream = self.provider.stream("alarms")
        body = json.dumps(
            {
                "condition-native-name": f"native {alarm.name}",
                "condition-normalized-name": alarm.name,
                "measured-entity-uuid": alarm.measured,
                "detector-native-id": alarm.key,
                "condition-detector-type": "CONDITION_DETECTOR_TYPE_ALARM_DETECTOR",
                "alarm-condition-detector-detail": {
                    "alarm-detector-state": f"ALARM_DETECTOR_STATE_{what}",
                    "legacy-properties": {"perceived-severity": severity},
                },
            }
        )
        statement = Statement(
            alarm.key, "CONDITION_DETECTOR", body.encode(), event_s=float(self.event_s)
        )
        at_us = self.event_s * 1_000_000
        if what in ("DELETE", "TOMBSTONE"):
            record = stream._append(LogRecordType[what], statement)
            if what == "TOMBSTONE":  # a header alone: only the append time is known
                at_us = int(record.appended_s * 1_000) * 1_000
        else:
            stream.publish(statement)
        self.said.setdefault(alarm.key, []).append(Said(what, severity, at_us))

    def what_compaction_leaves(self) -> dict[str, list[Said]]:
        """Of what was said, the last record about each detector; it is read late."""
        left = {
            key: [Said(one.what, one.severity, one.at_us, late=True) for one in many[-1:]]
            for key, many in self.said.items()
        }
        self.said = {}
        return left


def alarms_of(shared_data: Path, served: Provider) -> list[Alarm]:
    """One alarm for each row of the list, at entities all over the backbone."""
    file = shared_data / "tapi" / "tapi_alarm_tca_list_v1.0.0.json"
    listed = json.loads(file.read_text(encoding="utf-8"))["alarms"]
    places = [node.uuid for node in served.context.nodes.values()]
    alarms = []
    for number, row in enumerate(listed):
        severity = str(row.get("Perceived Severity")).upper()
        alarms.append(
            Alarm(
                f"detector-{row['Index']}",
                row["Probable Cause"],
                severity if severity in SEVERITIES else "WARNING",
                places[number * 7 % len(places)],
            )
        )
    assert len({alarm.key for alarm in alarms}) == 135
    return alarms


def expected(said: list[Said]) -> list[dict[str, Any]]:
    """The episodes of one detector."""
    episodes: list[dict[str, Any]] = []
    states: list[str] = []
    for one in said:
        last = episodes[-1] if episodes and episodes[-1]["by"] is None else None
        if one.what in ("CLEAR", "DELETE", "TOMBSTONE"):
            if last is not None:
                end = max(one.at_us, last["raised"])
                last |= {"state": "CLEAR", "by": one.what, "cleared": end}
                last["duration"] = (end - last["raised"]) / 1e6
                last["reduced"] = last["reduced"] or one.late
        elif last is None:
            before = episodes[-1] if episodes else None
            flaps = before is not None and one.at_us - before["cleared"] <= 600_000_000
            states = [one.what]
            episodes.append(
                {
                    "state": one.what,
                    "raised": one.at_us,
                    "first": before["first"] if before and flaps else one.at_us,
                    "flapping": before["flapping"] + 1 if before and flaps else 0,
                    "severity": one.severity,
                    "worst": one.severity,
                    "changes": 0,
                    "statements": 1,
                    "intermittent": int(one.what == "INTERMITTENT"),
                    "cleared": None,
                    "duration": None,
                    "by": None,
                    "reduced": one.late,
                }
            )
        else:
            last["changes"] += one.severity != last["severity"]
            last["intermittent"] += one.what == "INTERMITTENT" != states[-1]
            last["worst"] = max(last["worst"], one.severity, key=SEVERITIES.index)
            last["statements"] += 1
            last |= {"state": one.what, "severity": one.severity}
            last["reduced"] = last["reduced"] or one.late
            states.append(one.what)
    return episodes


def shown(one: AlarmEpisode) -> dict[str, Any]:
    return {
        "state": one.state,
        "raised": one.raised_at_us,
        "first": one.first_raised_at_us,
        "flapping": one.flapping_count,
        "severity": one.severity,
        "worst": one.worst_severity,
        "changes": one.severity_changes,
        "statements": one.statements,
        "intermittent": one.intermittent_count,
        "cleared": one.cleared_at_us,
        "duration": one.duration_s,
        "by": one.ended_by,
        "reduced": one.reduced_fidelity,
    }


def first_part(network: Network, alarms: list[Alarm], chance: random.Random) -> None:
    """Each alarm is raised, changed, cleared in each of the five ways and raised again after a
    short or a long time; some stay.
    """
    for alarm in alarms:
        for variant in chance.sample(sorted(CLEARS), len(CLEARS)):
            network.state(alarm, "ACTIVE", after_s=chance.choice((1, 599, 601, 7_200)))
            network.state(alarm, chance.choice(("ACTIVE", "INTERMITTENT")), "MAJOR")
            network.state(alarm, chance.choice(("ACTIVE", "INTERMITTENT")), "MINOR")
            network.clear(alarm, variant)
        if chance.random() < 0.6:
            network.state(alarm, "ACTIVE")


def while_away(network: Network, alarms: list[Alarm], chance: random.Random) -> None:
    """Alarms change, end, end and come back, and come and go, read by nobody."""
    for alarm in alarms:
        match chance.randrange(5):
            case 0:
                network.state(alarm, "INTERMITTENT", "CRITICAL")
                network.state(alarm, "ACTIVE", "WARNING")
            case 1:
                network.state(alarm, "ACTIVE")
                network.clear(alarm, chance.choice(sorted(CLEARS)))
            case 2:
                network.clear(alarm, chance.choice(sorted(CLEARS)))
                network.state(alarm, "ACTIVE", "MINOR")
            case 3:
                network.clear(alarm, chance.choice(sorted(CLEARS)))


async def test_every_alarm_of_the_list_with_a_fidelity_loss_between(
    shared_data: Path, tmp_path: Path
) -> None:
    chance = random.Random(548)
    behind_s = [-2.0 * HOUR_S]
    settings = ProviderSettings(
        streams=(
            StreamSettings("network"),
            StreamSettings("alarms", classes=frozenset({"CONDITION_DETECTOR"})),
        )
    )
    clock = ScaledClock(now=lambda: time.time() + behind_s[0])
    served = Provider(topology_context("sndlib/germany50", services=20), settings, clock=clock)
    alarms = alarms_of(shared_data, served)
    network = Network(served, int(clock.now()) - 3_000 * HOUR_S)
    async with site(served, tmp_path) as here, SqlStore(here.url, alarms=True) as store:
        await store.open("test")
        async with here.consumer() as consumer:
            await consumer.aligned(DEADLINE_S)
            first_part(network, alarms, chance)
            await here.read_to_the_end("alarms")
        read = [network.said]
        network.said = {}
        while_away(network, alarms, chance)
        read.append(network.what_compaction_leaves())
        # Longer than the compaction delay of 10 minutes, shorter than the retention of tombstones.
        behind_s[0] += HOUR_S / 2
        async with here.consumer() as consumer:
            await here.read_to_the_end("alarms")
            first_part(network, alarms, chance)
            await here.read_to_the_end("alarms")
            await consumer.aligned(DEADLINE_S)
            assert {one.attempt for one in consumer.health().streams} == {1}
        read.append(network.said)
        found: dict[str, list[AlarmEpisode]] = {}
        async for one in derived.alarms(store.reader):
            found.setdefault(one.key, []).append(one)
    assert found.keys() == {alarm.key for alarm in alarms}
    for alarm in alarms:
        wanted = expected([one for part in read for one in part.get(alarm.key, ())])
        assert list(map(shown, found[alarm.key])) == wanted, alarm
        assert {(one.condition, one.condition_normalized) for one in found[alarm.key]} == {
            (f"native {alarm.name}", alarm.name)
        }
        assert {(one.measured_uuid, one.measured_known) for one in found[alarm.key]} == {
            (alarm.measured, True)
        }
    marked = [one.reduced_fidelity for many in found.values() for one in many]
    assert 50 < sum(marked) < len(marked) / 2
