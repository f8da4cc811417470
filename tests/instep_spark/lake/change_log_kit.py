"""Random logs of a provider that states changes only, by the letter of TR-548 3.8.2.2: an entity
has one key for all of it and one for each part, the end of a part is a tombstone of its sub-tree,
and the end of the entity takes all parts. From one seed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tests.instep_spark.lake.change_model_kit import Facts, whole_statements
from tests.instep_spark.lake.log_kit import Change, Provider, Row

PARTS: Final = ("admin", "port/1", "port/2")


class PartialProvider(Provider):
    """One stream of changes and what its consumer lands of it."""

    def __init__(
        self,
        seed: int,
        stream: str = "s",
        *,
        offsets: bool = True,
        behind_us: int = 0,
        full_history: bool = False,
    ) -> None:
        """`full_history`: nothing is compacted, and a statement of the entity may have one change
        of several.
        """
        super().__init__(seed, stream, offsets=offsets or full_history, behind_us=behind_us)
        self._full_history = full_history
        bases = ("net-0", "net-1")
        self._keys = [*bases, *(f"{base}/{part}" for base in bases for part in PARTS), "alarm0"]
        self._has: dict[str, Facts] = {}
        """What each entity has, by the part that states it; by "" what none states."""

    @property
    def alive(self) -> list[Row]:
        """What the provider has now, as whole entities."""
        alive: list[Row] = []
        for base, facts in self._has.items():
            row = next(one for one in reversed(self._log) if one.key.partition("/")[0] == base)
            assert isinstance(row, Change)
            body = comparable(row.body) if row.detector else body_of(base, facts)
            alive.append(replace(row, key=base, content=body))
        return alive

    @property
    def statements(self) -> list[Row]:
        return whole_statements(self.rows, _facts_of, body_of, comparable)

    def content(self, body: str | None) -> str | None:
        return comparable(body)

    def _state(self, key: str, *, seen: bool = True) -> None:
        chance = self._random
        base, _, part = key.partition("/")
        if base not in self._has:
            key, part = base, ""
        self._now_us += chance.choice((0, 1_000, 5_000_000, 400_000_000))
        self._offset += chance.choice((1, 1, 7))
        detector = key.startswith("alarm")
        has = self._has.get(base, {})
        ends = chance.random() < 0.3 and (not part or part in has)
        kind = chance.choice(("DELETE", "TOMBSTONE", "CREATE_UPDATE" if detector else "DELETE"))
        row = Change(
            "c",
            self._stream,
            0,
            kind if ends else "CREATE_UPDATE",
            key,
            f"t{self._lineage}.{self._offset}",
            "p" if self._offsets else "",
            self._offset if self._offsets else -1,
            self._now_us,
            self._now_us - self._behind_us - chance.choice((0, 1_000_000)),
            ends=ends,
            detector=detector,
            state="CLEAR" if ends else "ACTIVE",
            severity=chance.choice(("MINOR", "CRITICAL")),  # what is not stated has not changed
            value=chance.randrange(3),
            whole=False,
        )
        self._alive.pop(key, None)
        if ends and not part:
            row = replace(row, content=row.detail if kind == "CREATE_UPDATE" else None)
            self._has.pop(base, None)
            # Compaction takes all that is under the key.
            for below in [one for one in self._alive if one.startswith(f"{base}/")]:
                del self._alive[below]
        elif ends:
            del has[part]
            if any(part in _facts_of(one) for one in self._of(base)):
                self._alive[key] = row  # retained: the base still has it
        else:
            stated: Facts = {part: row.value}
            if not part and self._full_history and not detector:
                own = {"": row.value, "label": chance.randrange(3)}
                one = chance.choice(("", "label"))
                stated = {one: own[one]} if has and chance.random() < 0.7 else own
            elif not part and not detector and chance.random() < 0.5:
                stated |= has | {"": row.value}
            self._has[base] = {**has, **stated}
            row = replace(row, content=row.detail if detector else _content(base, stated))
            if not detector:
                row = replace(row, uuid=base)
            self._alive[key] = row
        self._log.append(row)
        if seen:
            self._land(row)

    def _readable(self, alive: list[Row]) -> Sequence[Row]:
        return self._log if self._full_history else super()._readable(alive)

    def _lose_log(self) -> None:
        if self._full_history:
            self.realign()
        else:
            super()._lose_log()

    def _of(self, base: str) -> Iterable[Row]:
        return [row for row in self._alive.values() if row.key.split("/")[0] == base]


def _content(base: str, stated: Facts) -> str:
    """A skeleton of the entity with what is stated."""
    content: dict[str, Any] = {"uuid": base}
    for part, value in stated.items():
        name, _, number = part.partition("/")
        if number:
            content.setdefault(name, []).append({"local-id": number, "speed": value})
        elif part:
            content[name] = {"state": value}
        else:
            content["value"] = value
    return json.dumps(content)


def _facts_of(row: Row) -> Facts:
    """What a row states, by part."""
    if row.body is None or row.detector:
        return {}
    content: Mapping[str, Any] = json.loads(row.body)
    facts: Facts = {f"port/{one['local-id']}": one["speed"] for one in content.get("port", ())}
    facts |= {name: content[name]["state"] for name in ("admin", "label") if name in content}
    if "value" in content:
        facts[""] = content["value"]
    return facts


def body_of(base: str, facts: Facts) -> str | None:
    """The whole entity."""
    return comparable(_content(base, facts))


def comparable(body: str | None) -> str | None:
    """Members and elements of a body have no order, and no elements are no member."""
    if body is None:
        return None
    content = json.loads(body)
    if ports := content.pop("port", None):
        content["port"] = sorted(ports, key=lambda one: str(one["local-id"]))
    return json.dumps(content, sort_keys=True)
