"""What happens in the network: entities and alarms come, change and go, and the streams state
it. No I/O.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any

from instep.errors import ConfigurationError
from instep_tapi.facts.names import CONDITION_DETECTOR, AlarmDetectorState
from instep_tapi_provider.alarms import (
    CONDITIONS,
    MEASURED_CLASSES,
    Alarm,
    Condition,
    conditions_of,
)
from instep_tapi_provider.changes import merge
from instep_tapi_provider.context import Context, Node
from instep_tapi_provider.records import Statement
from instep_tapi_provider.stream import Stream

_ELSEWHERE = Condition("NATIVE", "Native Condition", "MINOR", False, ())


class Operator:
    """Changes a context and its alarms, and states each change in the streams of its class."""

    def __init__(
        self,
        context: Context,
        streams: list[Stream],
        now: Callable[[], float],
        rng: random.Random,
    ) -> None:
        self.context = context
        self.alarms: dict[str, Alarm] = {}
        self._streams = streams
        self._now = now
        self._rng = rng
        self._alarms_of: dict[str, set[str]] = {}
        self._carried = frozenset[str]().union(*(stream.classes for stream in streams))

    def streams_of(self, cls: str) -> list[Stream]:
        """The streams that carry a class."""
        return [stream for stream in self._streams if cls in stream.classes]

    def populate(self) -> None:
        """State every entity that there is, parents before children (ST-1.1 step 4)."""
        for node in self.context.nodes.values():
            if node.cls in self._carried:
                self._publish(node, None)

    def _publish(self, node: Node | None, event_s: float | None) -> None:
        """State an entity, or the nearest one above it that a stream carries."""
        while node is not None and node.cls not in self._carried:
            node = node.parent
        if node is None:
            return
        for stream in self.streams_of(node.cls):
            body = node.body(stream.settings.nested, self._carried)
            stream.publish(Statement(node.key, node.cls, body, node.parent_address, event_s))

    def create(self, parent_key: str | None, path: str, value: dict[str, Any]) -> list[str]:
        """Add an entity, with all entities nested in it, under a parent (None: the context).

        `path`: the members from the parent to the list it goes into, such as
        ``owned-node-edge-point``. Returns the entity-keys. Raises ConfigurationError for an
        unknown parent or an object without uuid.
        """
        if parent_key is not None:
            self._node(parent_key)
        nodes = self.context.create(parent_key, path, value)
        now = self._now()
        for node in nodes:
            self._publish(node, now)
        return [node.key for node in nodes]

    def update(self, key: str, changes: Mapping[str, Any]) -> None:
        """Merge changes into an entity (RFC 7396: None removes a member) and state it whole."""
        node = self._node(key)
        merge(node.value, changes)
        self._publish(node, self._now())

    def delete(self, key: str) -> list[str]:
        """Remove an entity and all below it, each by DELETE and TOMBSTONE, children first.

        Active alarms at what is removed get their tombstone (4.4 point 2). Returns the entity-keys.
        """
        self._node(key)
        now = self._now()
        parent = self.context.nodes[key].parent
        removed = self.context.delete(key)
        for node in removed:
            for alarm_key in sorted(self._alarms_of.get(node.key, ())):
                self.clear_alarm(alarm_key, tombstone_only=True)
            for stream in self.streams_of(node.cls):
                stream.end(node.key, event_s=now)
        if removed[-1].cls not in self._carried:
            self._publish(parent, now)
        return [node.key for node in removed]

    def raise_alarm(
        self,
        measured_key: str,
        condition: str | None = None,
        *,
        state: AlarmDetectorState = AlarmDetectorState.ACTIVE,
        severity: str = "",
        detector: int = 0,
    ) -> str:
        """Raise an alarm at an entity, or state it again if it is already there.

        `condition`: a name of `CONDITIONS`, or None for a random one that fits the entity's class.
        Returns the alarm's entity-key, which is its detector's native id.
        """
        node = self._node(measured_key)
        if condition is None:
            found = self._rng.choice(conditions_of(node.cls) or (_ELSEWHERE,))
        else:
            found = next((c for c in CONDITIONS if c.name == condition), _ELSEWHERE)
            if found is _ELSEWHERE:
                names = ", ".join(c.name for c in CONDITIONS)
                raise ConfigurationError(
                    f"no condition is named {condition!r}", hint=f"there are: {names}"
                )
        alarm = Alarm(
            found,
            node.uuid,
            node.cls,
            node.key,
            _name(node),
            detector,
            state,
            severity,
            [f"{found.native_name} at {_name(node)}"],
            raised_s=self._now(),
        )
        self.alarms[alarm.key] = alarm
        self._alarms_of.setdefault(node.key, set()).add(alarm.key)
        self._publish_alarm(alarm)
        return alarm.key

    def change_alarm(
        self,
        key: str,
        *,
        state: AlarmDetectorState | None = None,
        severity: str | None = None,
        acknowledged: bool | None = None,
    ) -> None:
        """Change an alarm that is there: INTERMITTENT, another severity, acknowledged (4.4,
        4.5).
        """
        alarm = self._alarm(key)
        alarm.state = state or alarm.state
        alarm.severity = severity or alarm.severity
        if acknowledged is not None:
            alarm.acknowledged = acknowledged
        self._publish_alarm(alarm)

    def clear_alarm(self, key: str, *, tombstone_only: bool = False) -> None:
        """Clear an alarm: CLEAR followed immediately by TOMBSTONE, or a TOMBSTONE alone (4.4,
        4.7).
        """
        alarm = self._alarm(key)
        del self.alarms[key]
        at_entity = self._alarms_of[alarm.measured_key]
        at_entity.discard(key)
        if not at_entity:
            del self._alarms_of[alarm.measured_key]
        alarm.state, alarm.raised_s = AlarmDetectorState.CLEAR, self._now()
        for stream in self.streams_of(CONDITION_DETECTOR):
            if tombstone_only:
                stream.end(key, delete=False)
            else:
                stream.publish_last(alarm.statement(stream.settings.style))

    def raise_alarms(self, count: int) -> list[str]:
        """Raise so many alarms at random entities that can have them."""
        places = [n.key for n in self.context.nodes.values() if n.cls in MEASURED_CLASSES]
        places = places or list(self.context.nodes)
        if not places:
            raise ConfigurationError("there is no entity that could have an alarm")
        raised: list[str] = []
        detector = 0
        while len(raised) < count:
            place = self._rng.choice(places)
            before = len(self.alarms)
            key = self.raise_alarm(place, detector=detector)
            if len(self.alarms) > before:
                raised.append(key)
            else:
                # Taken: from now on number the detectors, so that a small network can have many
                # alarms.
                detector += 1
        return raised

    def _publish_alarm(self, alarm: Alarm) -> None:
        for stream in self.streams_of(CONDITION_DETECTOR):
            stream.publish(alarm.statement(stream.settings.style))

    def _node(self, key: str) -> Node:
        if key not in self.context.nodes:
            raise ConfigurationError(f"no entity has the key {key!r}", where=self.context.where)
        return self.context.nodes[key]

    def _alarm(self, key: str) -> Alarm:
        if key not in self.alarms:
            raise ConfigurationError(f"no alarm has the key {key!r}")
        return self.alarms[key]


def _name(node: Node) -> str:
    """The name that a device would give the entity: its first name, else its uuid."""
    names = node.value.get("name")
    if isinstance(names, list) and names and isinstance(names[0], dict):
        return str(names[0].get("value", node.uuid))
    return node.uuid
