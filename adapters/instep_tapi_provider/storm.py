"""An event storm: changes at a rate, over few keys or all, from a seeded source of randomness."""

import asyncio
import random
from dataclasses import dataclass

from instep.errors import ConfigurationError
from instep_tapi.facts.names import AlarmDetectorState
from instep_tapi_provider.alarms import SEVERITIES
from instep_tapi_provider.faults import Faults
from instep_tapi_provider.operator import Operator

_TICK_S = 0.01
_CATCH_UP_S = 0.25


@dataclass(frozen=True, slots=True)
class StormSettings:
    """`changes_per_s`: how much happens. `keys`: over how many alarms and entities; None is all
    there are.

    `alarm_share`: the part of the changes that are about alarms (0 to 1).
    """

    changes_per_s: float
    keys: int | None = None
    alarm_share: float = 0.8

    def __post_init__(self) -> None:
        if not self.changes_per_s > 0:
            raise ConfigurationError(f"a storm needs a rate above 0, not {self.changes_per_s}")
        if self.keys is not None and self.keys < 1:
            raise ConfigurationError(f"a storm needs at least one key, not {self.keys}")


class Storm:
    """Makes the changes of an event storm. `change` has no I/O; `run` paces it."""

    def __init__(
        self, operator: Operator, settings: StormSettings, rng: random.Random, faults: Faults
    ) -> None:
        self._operator = operator
        self._settings = settings
        self._rng = rng
        self._faults = faults
        self.changes = 0
        entities = [
            key for key, n in operator.context.nodes.items() if "operational-state" in n.value
        ]
        alarms = list(operator.alarms)
        if settings.keys is not None:
            alarms = alarms[: settings.keys]
            alarms += operator.raise_alarms(settings.keys - len(alarms))
            entities = entities[: settings.keys]
        elif not alarms:
            alarms = operator.raise_alarms(min(1000, max(1, len(operator.context.nodes))))
        self._entities = entities
        self._alarms = alarms
        # How an alarm that the storm cleared is raised again: where, what, and by which detector.
        self._cleared: dict[str, tuple[str, str, int]] = {}

    def change(self) -> None:
        """Make one change: of an alarm or of an entity."""
        self.changes += 1
        rng = self._rng
        if self._entities and rng.random() >= self._settings.alarm_share:
            self._toggle(rng.choice(self._entities))
            return
        key = rng.choice(self._alarms)
        alarm = self._operator.alarms.get(key)
        if alarm is None:
            place, name, detector = self._cleared.pop(key, ("", "", 0))
            if place in self._operator.context.nodes:
                self._operator.raise_alarm(place, name, detector=detector)
            return
        chance = rng.random()
        if chance < 0.2:
            self._cleared[key] = (alarm.measured_key, alarm.condition.name, alarm.detector)
            self._operator.clear_alarm(key)
        elif chance < 0.6:
            active = alarm.state is AlarmDetectorState.ACTIVE
            state = AlarmDetectorState.INTERMITTENT if active else AlarmDetectorState.ACTIVE
            self._operator.change_alarm(key, state=state)
        else:
            self._operator.change_alarm(key, severity=rng.choice(SEVERITIES))

    def _toggle(self, key: str) -> None:
        node = self._operator.context.nodes.get(key)
        if node is not None:
            up = node.value.get("operational-state") == "ENABLED"
            self._operator.update(key, {"operational-state": "DISABLED" if up else "ENABLED"})

    async def run(self) -> None:
        """Go on at the rate until cancelled. Missed changes are not made up in one burst."""
        loop = asyncio.get_running_loop()
        done_at = loop.time()
        period_s = 1 / self._settings.changes_per_s
        while True:
            await asyncio.sleep(_TICK_S)
            now = loop.time()
            if self._faults.quiet:
                done_at = now
                continue
            # A slow storm has its next change due in more than that.
            done_at = max(done_at, now - max(_CATCH_UP_S, 1.5 * period_s))
            due = int((now - done_at) / period_s)
            done_at += due * period_s
            for _ in range(due):
                self.change()
