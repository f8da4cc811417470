"""Random logs of a provider as they land in `changes`: updates, ends, redeliveries, new attempts
with their sweeps, lost and rebuilt logs. From one seed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import write_deltalake

from instep_spark.landing_schema import CHANGES, arrow_schema

START_US = 1_790_000_000_000_000
CONTROL = {"ATTEMPT", "SWEEP", "POSITION"}


@dataclass(frozen=True)
class Row:
    """One row of `changes`; times in microseconds."""

    consumer: str
    stream: str
    ordinal: int
    kind: str
    key: str = ""
    token: str = ""
    partition: str = ""
    offset: int = -1
    appended_at: int = 0
    event_at: int = 0
    attempt: int = 1
    lineage: int = 1
    ends: bool = False
    detector: bool = False
    state: str = ""
    severity: str | None = None
    value: int = 0
    uuid: str = ""
    committed_at: int = START_US
    readable: tuple[str, ...] | None = None
    whole: bool = True
    envelope: str | None = None
    entity_class: str = ""
    """As stated; empty: NODE, or CONDITION_DETECTOR."""
    parents: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    """What it is about, where its key does not tell: names that the provider has for it."""

    @property
    def at(self) -> tuple[str, str, str]:
        """Whose the entity is, and its key, or name."""
        return self.consumer, self.stream, (self.entities or (self.key,))[0]

    @property
    def node(self) -> str | None:
        """The node that it is, or is below."""
        if self.entity_class in ("", "NODE"):
            return self.uuid or self.key
        return self.parents[1].rpartition(":")[2] if len(self.parents) > 1 else None

    @property
    def each(self) -> list[Row]:
        """The row for each entity that it is about."""
        return [replace(self, entities=(one,)) for one in self.entities] or [self]

    @property
    def shown(self) -> bool:
        """Whether a baseline states it."""
        return not self.token and not self.ends

    @property
    def body(self) -> str | None:
        if self.kind == "SWEEP":
            return None if self.readable is None else json.dumps({"readable": self.readable})
        if self.kind in CONTROL or (self.ends and self.kind != "CREATE_UPDATE"):
            return None
        if not self.detector:
            return json.dumps({"uuid": self.uuid or self.key, "value": self.value})
        legacy = {} if self.severity is None else {"perceived-severity": self.severity}
        detail = {
            "alarm-detector-state": f"ALARM_DETECTOR_STATE_{self.state}",
            "legacy-properties": legacy,
        }
        return json.dumps(
            {
                "tapi-streaming:alarm-condition-detector-detail": detail,
                "detector-native-id": self.key,
                "condition-native-name": 'a "quoted" name',
                "measured-entity-class": "NODE",
                "measured-entity-uuid": f"node-{self.key}",
                "value": self.value,
            }
        )

    @property
    def cells(self) -> tuple[object, ...]:
        control = self.kind in CONTROL
        whole_end = self.ends and self.kind != "CREATE_UPDATE"
        name = self.entity_class or ("CONDITION_DETECTOR" if self.detector else "NODE")
        stated = not control and (not whole_end or bool(self.uuid))
        parents = json.dumps(self.parents, separators=(",", ":")) if self.parents else None
        moment = None if control else self.appended_at
        return (
            *(self.consumer, self.stream, self.ordinal, self.key, self.kind, self.token),
            *(self.partition, self.offset, moment, None if control else self.event_at),
            *(name if stated else "", parents if stated else None),
            *(self.attempt, self.lineage, self.whole, self.ends, self.uuid, self.body),
            *(self.envelope, None, self.committed_at),
        )


@dataclass(frozen=True)
class Change(Row):
    """A row with a body of its own."""

    content: str | None = None

    @property
    def body(self) -> str | None:
        return super().body if self.kind in CONTROL else self.content

    @property
    def detail(self) -> str | None:
        """The body that a row of a detector has of itself."""
        return super().body


def table(rows: Sequence[Row]) -> pa.Table:
    """The rows as `changes` has them."""
    schema = arrow_schema(CHANGES)
    columns = zip(*(row.cells for row in rows), strict=True)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)


def land(lake: Path, rows: Sequence[Row]) -> None:
    """Append the rows to `changes` in one commit."""
    write_deltalake(lake / "changes", table(rows), mode="append")


class Provider:
    """One stream of a provider and what its consumer lands of it."""

    def __init__(
        self,
        seed: int,
        stream: str = "s",
        *,
        keys: int = 8,
        offsets: bool = True,
        behind_us: int = 0,
        baseline: bool = False,
    ) -> None:
        """`behind_us`: how far event times lie behind append times. `baseline`: it is realigned
        from current state, and its clock may be set back after a sweep (A14).
        """
        self._random = random.Random(f"{seed} {stream}")
        self.stream = self._stream = stream
        self.names: dict[str, str] = {}
        """Keys, and the entities that they mean, where these have other names."""
        self._keys = [f"{kind}{number}" for kind in ("alarm", "node") for number in range(keys)]
        self._offsets = offsets
        self._behind_us = behind_us
        self._baseline = baseline
        self._now_us = START_US
        self._offset = 0
        self._alive: dict[str, Row] = {}
        self._log: list[Row] = []
        self._attempt, self._lineage = 1, 1
        self.rows: list[Row] = []
        self._control("ATTEMPT")

    @property
    def alive(self) -> list[Row]:
        """What the provider has now, whoever saw it."""
        return list(self._alive.values())

    @property
    def statements(self) -> list[Row]:
        """The rows that have landed, with whole entities in place of changes."""
        return self.rows

    def content(self, body: str | None) -> str | None:
        """A body as this provider's are compared."""
        return body

    def run(self, steps: int) -> list[Row]:
        """Some steps more; all rows so far."""
        for _ in range(steps):
            match self._random.random():
                case x if x < 0.80:
                    self._state(self._random.choice(self._keys))
                case x if x < 0.88:
                    self._redeliver()
                case x if x < 0.91:
                    self._control("POSITION")
                case x if x < 0.96:
                    self.realign()
                case _:
                    self._lose_log()
        return self.rows

    def _state(self, key: str, *, seen: bool = True) -> None:
        chance = self._random
        self._advance()
        detector = key.startswith("alarm")
        ends = chance.random() < 0.3
        kind = chance.choice(("DELETE", "TOMBSTONE", "CREATE_UPDATE" if detector else "DELETE"))
        row = Row(
            "c",
            self._stream,
            0,
            kind if ends else "CREATE_UPDATE",
            key,
            *self._place(),
            ends=ends,
            detector=detector,
            state="CLEAR" if ends else chance.choice(("ACTIVE", "ACTIVE", "INTERMITTENT")),
            severity=chance.choice((None, "MINOR", "CRITICAL", "WARNING")),
            value=chance.randrange(3),
        )
        self._log.append(row)
        if ends:
            self._alive.pop(key, None)
        else:
            self._alive[key] = row
        if seen:
            self._land(row)

    def _advance(self) -> None:
        self._now_us += self._random.choice((0, 1_000, 5_000_000, 400_000_000))
        self._offset += self._random.choice((1, 1, 7))

    def _place(self) -> tuple[str, str, int, int, int]:
        """Token, partition, offset, append time and event time of what is stated now."""
        return (
            f"t{self._lineage}.{self._offset}",
            "p" if self._offsets else "",
            self._offset if self._offsets else -1,
            self._now_us,
            self._now_us - self._behind_us - self._random.choice((0, 1_000_000)),
        )

    def _redeliver(self) -> None:
        for row in self._log[-self._random.randrange(1, 8) :]:
            self._land(row)

    def realign(self) -> None:
        """Miss some changes, then read the log again from its oldest record: all of it, or what
        compaction has left of it.
        """
        for key in self._random.sample(self._keys, self._random.randrange(1, 4)):
            self._state(key, seen=False)
        self._attempt += 1
        self._now_us += 1_000
        self._control("ATTEMPT")
        alive = sorted(self._alive.values(), key=lambda row: row.appended_at)
        if self._baseline:
            self._show(alive)
            return
        for row in self._readable(alive):
            self._land(row)
        if self._random.random() < 0.5:
            self._state(self._random.choice(self._keys))
        self._control("SWEEP")

    def _readable(self, alive: list[Row]) -> Sequence[Row]:
        """What the log has at that moment."""
        return self._random.choice((alive, self._log)) if self._offsets else alive

    def _show(self, alive: Sequence[Row]) -> None:
        """Current state, dated by the provider's clock; what comes meanwhile; and the sweep."""
        if self._random.random() < 0.4:
            # Broken off, and begun anew by a clock that was set back in the meantime (A14).
            ahead_us = self._random.choice((1_000_000, 3_600_000_000))
            for row in alive[: self._random.randrange(len(alive) + 1)]:
                wrong = replace(row, value=(row.value + 1) % 3)
                self._land_shown(wrong, self._now_us + ahead_us)
            self._attempt += 1
            self._control("ATTEMPT")
        for row in alive:
            self._land_shown(row, self._now_us)
        if self._random.random() < 0.5:
            self._state(self._random.choice(self._keys))
            self._control("SWEEP")
            return
        self._control("SWEEP")
        # Only the baseline states what there is, so the clock may go back. Nothing of before that
        # is sent again: by the clock, it would be newer than what comes.
        if back_us := self._random.choice((0, 1_000_000, 3_600_000_000)):
            self._now_us -= back_us
            self._log = []

    def _land_shown(self, row: Row, at_us: int) -> None:
        shown: dict[str, Any] = {"token": "", "partition": "", "offset": -1}
        self._land(replace(row, uuid=row.uuid or row.key, appended_at=at_us, **shown))

    def _lose_log(self) -> None:
        """The provider builds its log anew: other offsets, other times, another lineage."""
        self._lineage += 1
        self._offset = 0
        self._log = []
        for key in list(self._alive):
            self._offset += 1
            token = f"t{self._lineage}.{self._offset}"
            offset = self._offset if self._offsets else -1
            self._alive[key] = replace(
                self._alive[key], token=token, offset=offset, appended_at=self._now_us
            )
            self._log.append(self._alive[key])
        self.realign()

    def _land(self, row: Row) -> None:
        landed = replace(row, ordinal=len(self.rows) + 1, committed_at=self._now_us + 500)
        self.rows.append(replace(landed, attempt=self._attempt, lineage=self._lineage))

    def _control(self, kind: str) -> None:
        self._land(Row("c", self._stream, 0, kind))


class Twins(Provider):
    """A stream joined with its baseline, of a provider that has one uuid in several places and
    classes. It names entities by keys of its own, or by their whole addresses.
    """

    PLACES: Final = {
        "node-a": ("NODE", "a", ""),
        "link-a": ("LINK", "a", ""),
        "port-b1": ("NODE_EDGE_POINT", "b", "n1"),
        "port-b2": ("NODE_EDGE_POINT", "b", "n2"),
        "port-c1": ("NODE_EDGE_POINT", "c", "n1"),
        "port-c2": ("NODE_EDGE_POINT", "c", "n2"),
        "node-c": ("NODE", "c", ""),
        "node-d": ("NODE", "d", ""),
    }
    """Class, uuid and node of each entity."""

    def __init__(self, seed: int, stream: str = "s", *, offsets: bool = True) -> None:
        super().__init__(seed, stream, offsets=offsets, baseline=True)
        self._keys = list(self.PLACES)
        self._by_address = self._random.random() < 0.5
        self._known: set[str] = set()
        self._owed = False
        for number, name in enumerate(self._keys):
            # All of it is stated once before anything ends, and differently.
            self._alive[name] = self._statement(name, value=10 + number)
        self._show(list(self._alive.values()))

    def _address(self, name: str) -> str:
        entity_class, uuid, node = self.PLACES[name]
        own = f"{entity_class.lower().replace('_', '-')}-uuid:{uuid}"
        return "+".join((*self._parents(node), own))

    def _parents(self, node: str) -> tuple[str, ...]:
        return ("topology-uuid:t", f"node-uuid:{node}") if node else ("topology-uuid:t",)

    def _statement(self, name: str, **facts: Any) -> Row:
        entity_class, uuid, node = self.PLACES[name]
        key = self._address(name) if self._by_address else f"{name}.{self._lineage}"
        about: dict[str, Any] = {"entity_class": entity_class, "parents": self._parents(node)}
        row = Row("c", self._stream, 0, "CREATE_UPDATE", key, uuid=uuid, entities=(name,), **about)
        return replace(row, **facts)

    def _state(self, key: str, *, seen: bool = True) -> None:
        chance = self._random
        self._now_us += chance.choice((0, 1_000, 5_000_000))
        self._offset += chance.choice((1, 1, 7))
        row = self._statement(
            key,
            token=f"t{self._lineage}.{self._offset}",
            partition="p" if self._offsets else "",
            offset=self._offset if self._offsets else -1,
            appended_at=self._now_us,
            event_at=self._now_us,
            value=chance.randrange(2),
        )
        if chance.random() < 0.3:
            uuid = row.uuid if chance.random() < 0.2 else ""
            row = replace(row, kind=chance.choice(("DELETE", "TOMBSTONE")), ends=True, uuid=uuid)
            self._alive.pop(key, None)
        else:
            self._alive[key] = row
        self._log.append(row)
        if seen:
            self._land(row)

    def realign(self) -> None:
        self._owed = False
        super().realign()
        if self._owed:
            self.realign()

    def _show(self, alive: Sequence[Row]) -> None:
        super()._show(self._baseline_of(alive))

    def _baseline_of(self, alive: Sequence[Row]) -> list[Row]:
        """What a baseline states: what is alike once, and what differs once for each place."""
        statements: dict[tuple[str, str], list[Row]] = {}
        for row in alive:
            statements.setdefault((row.entity_class, row.uuid), []).append(row)
        uuids = [uuid for _, uuid in statements]
        rows: list[Row] = []
        for (_, uuid), several in statements.items():
            if len({row.value for row in several}) > 1:
                rows += [replace(row, key=self._address(row.entities[0])) for row in several]
                continue
            first, *others = several
            alone = uuids.count(uuid) == 1
            further = {"further-parent-addresses": [row.parents for row in others]}
            rows.append(
                replace(
                    first,
                    key=uuid if alone else self._address(first.entities[0]),
                    envelope=json.dumps(further, separators=(",", ":")) if others else None,
                    entities=tuple(row.entities[0] for row in several),
                )
            )
        return rows

    def _land(self, row: Row) -> None:
        if row.kind in CONTROL:
            super()._land(row)
            return
        if row.token and not row.ends:
            self._known.add(row.key)
        elif row.token and not row.uuid and not self._by_address and row.key not in self._known:
            # Nothing tells what this key means: nothing ends until a baseline is read again.
            self._owed = True
            row = replace(row, entities=())
        if len(row.entities) == 1:
            self.names.setdefault(row.key, row.entities[0])
        super()._land(row)
