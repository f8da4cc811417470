"""Random CHANGE_ONLY logs (TR-548 3.8.2.2) as they land in `changes` and in a SQL store."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from instep.model.batches import SweepStep
from instep.model.records import Record, RecordType
from tests.instep_spark.lake.log_kit import CONTROL, START_US, Change, Row
from tests.instep_sql.store_kit import CHANGE_ONLY, STREAM, stage

ENTITIES = ("u0", "u1", "u2", "alarm")
PARTS = ("/a", "/b", "/port/1", "/port/2")


class ChangeOnly:
    """One stream of changes and what its consumer lands of it."""

    def __init__(self, seed: int, stream: str = STREAM) -> None:
        self._random = random.Random(f"{seed} {stream}")
        self._stream = stream
        self._at = 0
        self._attempt = 1
        self._state: dict[str, Change] = {}
        self._log: list[Change] = []
        self.rows: list[Row] = []
        self._land(Change("c", stream, 0, "ATTEMPT"))

    def run(self, steps: int) -> list[Row]:
        """Some steps more; all rows so far."""
        for _ in range(steps):
            match self._random.random():
                case x if x < 0.78:
                    self._state_one()
                case x if x < 0.86:
                    for row in self._log[-self._random.randrange(1, 5) :]:
                        self._land(row)
                case x if x < 0.90:
                    self._land(Change("c", self._stream, 0, "POSITION"))
                case _:
                    self._realign()
        return self.rows

    def _state_one(self, *, seen: bool = True) -> None:
        chance = self._random
        self._at += chance.choice((1, 1, 5))
        entity = chance.choice(ENTITIES)
        key = entity
        if entity in self._state:
            key = chance.choice((*(entity + part for part in ("", *PARTS)), f"other-{entity}"))
        ends = chance.random() < 0.25
        row = Change(
            "c",
            self._stream,
            0,
            chance.choice(("DELETE", "TOMBSTONE")) if ends else "CREATE_UPDATE",
            key,
            f"t{self._at}",
            "p",
            self._at,
            START_US + self._at,
            START_US + self._at,
            ends=ends,
            detector=entity == "alarm",
            whole=ends,
            content=None if ends else json.dumps(self._content(entity, key)),
        )
        self._log.append(row)
        if ends:
            self._state = {k: v for k, v in self._state.items() if not k.startswith(key)}
        else:
            self._state[key] = row
        if seen:
            self._land(row)

    def _content(self, entity: str, key: str) -> dict[str, Any]:
        chance = self._random
        ports = [{"local-id": str(n), "speed": chance.randrange(9)} for n in (1, 2)]
        content: dict[str, Any] = {"uuid": entity, "value": chance.randrange(9)}
        if key == entity:
            return content | {"port": ports, "a": {"x": 1, "y": 2}}
        return content | chance.choice(({"port": ports[:1]}, {"a": {"x": 7}}, {"new": [1]}))

    def _realign(self) -> None:
        """Miss some changes, then read the compacted log from its oldest record."""
        for _ in range(self._random.randrange(3)):
            self._state_one(seen=False)
        self._attempt += 1
        self._land(Change("c", self._stream, 0, "ATTEMPT"))
        for row in sorted(self._state.values(), key=lambda row: row.offset):
            self._land(row)
        if self._random.random() < 0.5:
            self._state_one()
        self._land(Change("c", self._stream, 0, "SWEEP"))

    def _land(self, row: Change) -> None:
        at_us = START_US + self._at + 500
        landed = replace(row, ordinal=len(self.rows) + 1, committed_at=at_us)
        self.rows.append(replace(landed, attempt=self._attempt))


class ChangeRecords(ChangeOnly):
    """A stream of whole entities and CHANGE records, as v3.2 of TR-548 has them (5.2)."""

    def __init__(self, seed: int, stream: str = STREAM) -> None:
        self.truth: dict[str, Any] = {}
        """What each entity is, by its key."""
        super().__init__(seed, stream)

    def _state_one(self, *, seen: bool = True) -> None:
        chance = self._random
        self._at += chance.choice((1, 1, 5))
        key = chance.choice(ENTITIES[:3])
        known, kind = self.truth.get(key), "CREATE_UPDATE"
        content: dict[str, Any] | None = self._whole(key)
        match chance.random():
            case x if x < 0.2:
                kind, content = chance.choice(("DELETE", "TOMBSTONE")), None
            case x if known is not None and x < 0.7:
                kind, content = "CHANGE", {"uuid": key} | self._some_of(self._whole(key))
        at_us = START_US + self._at
        row = Change("c", self._stream, 0, kind, key, f"t{self._at}", "p", self._at, at_us, at_us)
        after = content if kind != "CHANGE" else _changed(known, content)
        self._state.pop(key, None)
        self.truth.pop(key, None)
        if after is not None:
            self.truth[key] = after
            # Where the log was compacted, the provider sends whole entities.
            self._state[key] = replace(row, kind="CREATE_UPDATE", content=json.dumps(after))
        row = replace(
            row,
            ends=content is None,
            whole=kind != "CHANGE",
            content=None if content is None else json.dumps(content),
        )
        self._log.append(row)
        if seen:
            self._land(row)

    def _whole(self, key: str) -> dict[str, Any]:
        chance = self._random
        ports = [{"local-id": str(n), "speed": chance.randrange(9)} for n in range(3)]
        return {
            "uuid": key,
            "value": chance.randrange(9),
            "state": {name: chance.randrange(9) for name in chance.sample("abc", 2)},
            "port": ports[: chance.randrange(4)],
            "tags": chance.sample("xyz", 2),
            chance.choice("pqr"): 1,
        }

    def _some_of(self, content: dict[str, Any]) -> dict[str, Any]:
        names = self._random.sample(sorted(content), 2)
        return {name: content[name] for name in names}


def _changed(entity: Any, change: Any) -> Any:
    """An entity after a CHANGE: a leaf or a list is as it is stated, a container by its members."""
    if not (isinstance(entity, dict) and isinstance(change, dict)):
        return change
    return {
        name: _changed(entity.get(name), change[name]) if name in change else entity[name]
        for name in entity | change
    }


async def bodies_of_a_store(rows: Sequence[Row], batch_rows: int) -> dict[str, bytes]:
    """Return the bodies in a SQL store that was given the same rows, by entity-key."""
    async with stage(stream=CHANGE_ONLY) as at:
        waiting: list[Record] = []
        for row in rows:
            if row.kind in CONTROL or len(waiting) == batch_rows:
                await at.commit(*waiting)
                waiting = []
            at.attempt, at.lineage = row.attempt, row.lineage
            if row.kind == "SWEEP":
                await at.commit(sweep=SweepStep(row.attempt))
            elif row.kind not in CONTROL:
                waiting.append(record(row))
        await at.commit(*waiting)
        return await at.bodies()


def record(row: Row) -> Record:
    """The record that was landed."""
    return Record(
        row.stream,
        row.key,
        RecordType[row.kind],
        row.token,
        row.appended_at,
        row.partition,
        row.offset,
        "" if row.ends else "NODE",
        (row.body or "").encode(),
        ends=row.ends,
        uuid=row.uuid,
        whole=row.whole,
    )
