"""Random networks as a provider states them, from one seed: end points with several links, parallel
and unidirectional links, protected routes, shared ends, renames, planned spells, ends, returns,
realignments that miss something, classes that an attempt could not read, late readings, alarms.

Each network is one consumer with two streams: `net`, and `alarms`.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, replace
from typing import Any

START_US = 1_700_000_000_000_000
COMPACTION_US = 300_000_000
HOUR_US = 3_600_000_000


@dataclass(frozen=True)
class Statement:
    """One row that lands; times in microseconds."""

    consumer: str
    stream: str
    ordinal: int
    kind: str
    """CREATE_UPDATE, DELETE, ATTEMPT or SWEEP."""
    committed_at: int
    attempt: int
    key: str = ""
    entity_class: str = ""
    body: dict[str, Any] = field(default_factory=dict)
    parents: tuple[str, ...] = ()
    ends: bool = False
    offset: int = -1
    appended_at: int = 0
    event_at: int = 0
    readable: tuple[str, ...] | None = None
    """Of a sweep: the classes that its attempt could read; None: all."""
    lineage: int = 1


def named(uuid: str, name: str, **more: Any) -> dict[str, Any]:
    return {"uuid": uuid, "name": [{"value-name": "n", "value": name}], **more}


def end(port: tuple[str, str]) -> dict[str, str]:
    return {"topology-uuid": "t", "node-uuid": port[0], "node-edge-point-uuid": port[1]}


@dataclass(frozen=True)
class Entity:
    entity_class: str
    body: dict[str, Any]
    parents: tuple[str, ...] = ()


class Stream:
    """The log of one stream, and what has landed of it."""

    def __init__(self, consumer: str, stream: str, chance: random.Random) -> None:
        self.consumer, self.stream, self._chance = consumer, stream, chance
        self.now = START_US
        self.slow = True
        """Some records are read late."""
        self.rows: list[Statement] = []
        self.truth: list[tuple[str, int, dict[str, Any]]] = []
        """What was so at the provider, whoever saw it: key, time, and the body; empty: it ended."""
        self.events: list[tuple[str, int, dict[str, Any]]] = []
        """The same by the times of the events."""
        self._alive: dict[str, Statement] = {}
        self._event_at: dict[str, int] = {}
        self._offset = 0
        self._attempt = self._lineage = 1
        self._control("ATTEMPT")

    def wait(self, us: int) -> None:
        self.now += us

    def state(self, key: str, entity: Entity, *, ends: bool = False, seen: bool = True) -> None:
        """State an entity, or its end by a CLEAR; `seen`: the consumer reads it."""
        self._log("CREATE_UPDATE", key, entity, ends=ends, seen=seen)

    def delete(self, key: str, *, seen: bool = True) -> None:
        if key in self._alive:
            gone = Entity(self._alive[key].entity_class, {}, self._alive[key].parents)
            self._log("DELETE", key, gone, ends=True, seen=seen)

    def _log(self, kind: str, key: str, entity: Entity, *, ends: bool, seen: bool) -> None:
        self._offset += self._chance.choice((1, 1, 4))
        late = self._chance.choice((0, 0, 0, 1_500_000, 2 * COMPACTION_US)) if self.slow else 0
        row = Statement(
            *(self.consumer, self.stream, 0, kind, self.now + late, self._attempt, key),
            *(entity.entity_class, entity.body, entity.parents, ends, self._offset, self.now),
            event_at=max(
                self.now - self._chance.choice((0, 0, 250_001)), self._event_at.get(key, 0)
            ),
        )
        self._event_at[key] = row.event_at
        self.truth.append((key, self.now, {} if ends else entity.body))
        self.events.append((key, row.event_at, {} if ends else entity.body))
        if ends:
            self._alive.pop(key, None)
        else:
            self._alive[key] = row
        if seen:
            self._land(row)
            # What lands later has been stated later, or at that time.
            self.now = max(self.now, row.committed_at)

    def lose_log(self) -> None:
        """The provider has lost its log, and states anew what there is."""
        self._lineage += 1
        self._offset = 0
        self.wait(500_000)
        for key, row in self._alive.items():
            self._offset += 1
            self._alive[key] = replace(row, offset=self._offset, appended_at=self.now)

    def realign(self, unreadable: str = "") -> None:
        """Read again what there is. `unreadable`: a class that cannot be read in this attempt."""
        self._attempt += 1
        self.wait(1_000_003)
        self._control("ATTEMPT")
        classes = {row.entity_class for row in self.rows if row.entity_class}
        for row in self._alive.values():
            if row.entity_class != unreadable:
                self.wait(1_000)
                self._land(replace(row, committed_at=self.now))
        self.wait(500)
        readable = tuple(sorted(classes - {unreadable})) if unreadable else None
        self._control("SWEEP", readable=readable)

    def _land(self, row: Statement) -> None:
        ordinal = len(self.rows) + 1
        self.rows.append(
            replace(row, ordinal=ordinal, attempt=self._attempt, lineage=self._lineage)
        )

    def _control(self, kind: str, **more: Any) -> None:
        row = Statement(self.consumer, self.stream, 0, kind, self.now, self._attempt, **more)
        self._land(row)


class Network:
    """One network over some hours."""

    places_alarmed: int | None = None
    """Of so many entities there are alarms; None: of all."""

    def __init__(self, seed: int) -> None:
        self._chance = chance = random.Random(seed)
        self.consumer = f"c{seed}"
        self._net = Stream(self.consumer, "net", chance)
        self._alarms = Stream(self.consumer, "alarms", chance)
        self._entities: dict[str, Entity] = {}
        self._build()
        for key, entity in self._entities.items():
            self._net.wait(chance.choice((0, 1_000_007)))
            self._net.state(key, entity)
        self._alarms.now = self._net.now
        self._places = [*self._entities, "gone"]
        for _ in range(chance.randrange(25, 45)):
            self._step()

    @property
    def rows(self) -> list[Statement]:
        return [*self._net.rows, *self._alarms.rows]

    def _build(self) -> None:
        chance = self._chance
        nodes = [f"n{n}" for n in range(chance.randrange(3, 6))]
        ports: list[tuple[str, str]] = []
        for node in nodes:
            self._add("NODE", named(node, f"site {node}", **self._states()), ("topology-uuid:t",))
            for n in range(chance.randrange(2, 4)):
                port = f"{node}p{n}"
                ports.append((node, port))
                parents = ("topology-uuid:t", f"node-uuid:{node}")
                self._add("NODE_EDGE_POINT", named(port, f"port {port}"), parents)
        links: list[tuple[str, list[tuple[str, str]]]] = []
        for n in range(chance.randrange(4, 9)):
            # Ports are shared, so links may be parallel, and may have more than two ends.
            ends = chance.sample(ports, 3 if chance.random() < 0.1 else 2)
            links.append((f"l{n}", ends))
            self._add("LINK", self._link(f"l{n}", ends), ("topology-uuid:t",))
        connections = [f"k{n}" for n in range(chance.randrange(2, 6))]
        for connection in connections:
            body = named(connection, f"connection {connection}", **self._states())
            body["route"] = [
                {"local-id": str(n), "connection-end-point": self._route(links, ports)}
                for n in range(chance.choice((0, 1, 1, 2)))
            ]
            self._add("CONNECTION", body)
        for n in range(chance.randrange(1, 5)):
            body = named(f"v{n}", f"service {n}", **self._states())
            served = chance.sample([*connections, "elsewhere"], chance.randrange(0, 3))
            body["connection"] = [{"connection-uuid": one} for one in served]
            size = self._size(chance.choice((10, 100.5, 400)))
            match chance.randrange(4):
                case 0:
                    body["requested-capacity"] = size
                case 1 | 2:
                    body["connectivity-constraint"] = {"requested-capacity": size}
            self._add("CONNECTIVITY_SERVICE", body)

    def _size(self, value: float) -> dict[str, Any]:
        unit = self._chance.choice(("GBPS", "MBPS", "tapi-common:CAPACITY_UNIT_GBPS", "GHz"))
        return {"total-size": {"value": str(value), "unit": unit}}

    def _link(self, uuid: str, ends: list[tuple[str, str]]) -> dict[str, Any]:
        chance = self._chance
        member = chance.choice(("node-edge-point", "node-edge-point", "link-end"))
        body = named(uuid, f"line {uuid}", **self._states())
        body |= {member: [end(one) for one in ends], "layer-protocol-name": ["DSR", "ODU"]}
        if direction := chance.choice(("", "BIDIRECTIONAL", "UNIDIRECTIONAL")):
            body["direction"] = direction
        if chance.random() < 0.7:
            body["total-potential-capacity"] = self._size(400)
            body["available-capacity"] = self._size(chance.choice((100.5, 0, 400)))
        return body

    def _route(
        self, links: list[tuple[str, list[tuple[str, str]]]], ports: list[tuple[str, str]]
    ) -> list[dict[str, str]]:
        """Some links passed from end to end, and now and then a point on no link between."""
        passed: list[tuple[str, str]] = []
        for _, ends in self._chance.sample(links, self._chance.randrange(1, min(4, len(links)))):
            passed += self._chance.sample(ends, 2)
            if self._chance.random() < 0.3:
                passed.append(self._chance.choice(ports))
        if self._chance.random() < 0.2:
            del passed[self._chance.randrange(len(passed))]
        return [
            {**end(port), "connection-end-point-uuid": f"e{n}"} for n, port in enumerate(passed)
        ]

    def _states(self) -> dict[str, str]:
        chance = self._chance
        states = {
            "operational-state": chance.choice(("ENABLED", "ENABLED", "DISABLED")),
            "lifecycle-state": chance.choice(("INSTALLED", "INSTALLED", "PLANNED")),
        }
        return {name: value for name, value in states.items() if chance.random() < 0.9}

    def _add(self, entity_class: str, body: dict[str, Any], parents: tuple[str, ...] = ()) -> None:
        self._entities[body["uuid"]] = Entity(entity_class, body, parents)

    def _step(self) -> None:
        chance = self._chance
        us = chance.choice((0, 999_999, 20_000_001, 180_000_000, 700_000_000, 1_800_000_003))
        for stream in (self._net, self._alarms):
            stream.wait(us)
        key = chance.choice(list(self._entities))
        entity = self._entities[key]
        seen = chance.random() < 0.85
        match chance.random():
            case x if x < 0.25:
                body = {**entity.body, **self._states()}
                self._entities[key] = entity = replace(entity, body=body)
                self._net.state(key, entity, seen=seen)
            case x if x < 0.35:
                body = {**entity.body, **named(key, f"renamed {chance.randrange(9)}")}
                self._entities[key] = entity = replace(entity, body=body)
                self._net.state(key, entity, seen=seen)
            case x if x < 0.42:
                self._net.delete(key, seen=seen)
            case x if x < 0.48:
                unreadable = chance.choice(("", "LINK", "CONNECTION"))
                self._net.realign(unreadable)
            case x if x < 0.52:
                self._alarms.realign()
            case _:
                count = chance.choice((1, 1, 1, 40))
                self._alarms.slow = count == 1
                for _ in range(count):
                    self._alarm()

    def _sees(self, share: float) -> bool:
        """Whether the consumer reads what is stated now; of a lossy one, that share."""
        return self._chance.random() < share

    def _alarm(self) -> None:
        chance = self._chance
        measured = chance.choice(self._places[: self.places_alarmed])
        condition = chance.choice(("LOS", "LOF", "FAN", "TEMP"))
        key = f"{condition} {measured}"
        known = self._entities.get(measured)
        seen = self._sees(0.9)
        state = chance.choice(("ACTIVE", "ACTIVE", "CLEAR", "DELETE"))
        if state == "DELETE":
            self._alarms.delete(key, seen=seen)
            return
        severity = chance.choice(("MINOR", "CRITICAL", "WARNING"))
        detail = {
            "alarm-detector-state": f"ALARM_DETECTOR_STATE_{state}",
            "legacy-properties": {"perceived-severity": severity},
        }
        body: dict[str, Any] = {
            "tapi-streaming:alarm-condition-detector-detail": detail,
            "condition-native-name": condition,
            "measured-entity-uuid": measured,
        }
        if known is not None:
            body["measured-entity-class"] = known.entity_class
        entity = Entity("CONDITION_DETECTOR", body, known.parents if known else ())
        self._alarms.wait(chance.choice((1, 1, 30_000_000)))
        self._alarms.state(key, entity, ends=state == "CLEAR", seen=seen)


class Outages(Network):
    """A network whose consumer loses nothing while it is connected, and is away now and then: it
    misses all until it reads again what there is, of all classes or of all but one. Now and then,
    the provider has lost its logs by then.
    """

    places_alarmed = 2

    def __init__(self, seed: int) -> None:
        self._away = False
        super().__init__(seed)

    @property
    def truth(self) -> list[tuple[str, int, dict[str, Any]]]:
        return self._net.truth

    @property
    def alarms(self) -> list[tuple[str, int, dict[str, Any]]]:
        """The alarms that stood, by the times of the events."""
        return self._alarms.events

    def _step(self) -> None:
        chance = self._chance
        us = chance.choice((1, 999_999, 20_000_001, 180_000_000, 400_000_003))
        for stream in (self._net, self._alarms):
            stream.wait(us)
        if chance.random() < 0.2:
            if self._away:
                self._return(chance.choice(("", "", "LINK")), lost=chance.random() < 0.4)
            self._away = not self._away
            return
        key = chance.choice(list(self._entities))
        if chance.random() < 0.1:
            self._net.delete(key, seen=not self._away)
            return
        if chance.random() < 0.4:
            self._alarms.slow = chance.random() < 0.3
            self._alarm()
            return
        entity = self._entities[key]
        body = {**entity.body, **self._states()}
        if chance.random() < 0.2:
            body |= named(key, f"renamed {chance.randrange(9)}")
        self._entities[key] = entity = replace(entity, body=body)
        self._net.state(key, entity, seen=not self._away)

    def _return(self, unreadable: str, *, lost: bool) -> None:
        for stream in (self._net, self._alarms):
            if lost:
                stream.lose_log()
            stream.realign(unreadable)

    def _sees(self, share: float) -> bool:
        del share
        return not self._away


def land(rows: list[Statement]) -> list[tuple[Any, ...]]:
    """The rows as `changes` has them."""
    landed = []
    for row in rows:
        control = row.kind in ("ATTEMPT", "SWEEP")
        body = json.dumps(row.body) if row.body else None
        if row.kind == "SWEEP":
            body = None if row.readable is None else json.dumps({"readable": row.readable})
        landed.append(
            (
                *(row.consumer, row.stream, row.ordinal, row.key, row.kind),
                "" if control else f"t{row.offset}",
                *("" if control else "p", row.offset),
                *((None, None) if control else (row.appended_at, row.event_at)),
                "" if control or row.kind == "DELETE" else row.entity_class,
                json.dumps(row.parents) if row.parents else None,
                *(row.attempt, row.lineage, True, row.ends, "", body, None, None, row.committed_at),
            )
        )
    return landed


def facts(rows: list[Statement], *, told: bool) -> list[tuple[Any, ...]]:
    """The rows of `stream_facts` that go with these: what attempts have proven, and, where it is
    `told`, why they have not met a class. The provider of every third consumer offers `alarms` no
    more, and of every fifth one a stream `gone` was retired.
    """
    consumer = rows[0].consumer
    number = int(consumer[1:])
    found: list[tuple[Any, ...]] = []
    for row in rows:
        if row.kind == "SWEEP":
            kind = "attempt" if row.readable is None else "baseline"
            found.append((consumer, row.stream, "PROOF", kind, row.attempt, None, row.committed_at))
            for name in unmet(rows, row) if told else ():
                why = f"unreadable-element {name.lower()}"
                about = ("UNPROVEN", name, row.attempt, why, row.committed_at)
                found.append((consumer, row.stream, *about))
    since = {"alarms": withdrawn_us(number), "gone": START_US + 1}
    for stream in ("net", "alarms", *(["gone"] if number % 5 == 0 else [])):
        stated: dict[str, Any] = {"id": stream}
        if number % 2:
            stated["compaction_delay_s"] = COMPACTION_US / 1e6
        found.append((consumer, stream, "STREAM", "", 0, json.dumps(stated), START_US))
        if since.get(stream):
            stated["not_offered_since_us"] = since[stream]
            body = json.dumps(stated, separators=(",", ":"))
            found.append((consumer, stream, "STREAM", "", 0, body, START_US + 2))
        if stream == "gone":
            found.append((consumer, stream, "RETIRED", "", 0, None, START_US + 3))
    return found


def withdrawn_us(number: int) -> int:
    """Since when the provider of a consumer offers `alarms` no more; 0: it does."""
    return START_US + number if number % 3 == 0 else 0


def unmet(rows: list[Statement], sweep: Statement) -> set[str]:
    """The classes that the attempt of a sweep could not read."""
    if sweep.readable is None:
        return set()
    known = {r.entity_class for r in rows if r.stream == sweep.stream and r.entity_class}
    return known - {*sweep.readable}
