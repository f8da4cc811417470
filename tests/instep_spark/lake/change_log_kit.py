"""Random logs of a provider that states changes only, by the letter of TR-548 3.8.2.2: an entity
has one key for all of it and one for each part, the end of a part is a tombstone of its sub-tree,
and the end of the entity takes all parts. From one seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from tests.instep_spark.lake.change_model_kit import (
    Facts,
    body_of,
    comparable,
    content_of,
    facts_of,
    whole_statements,
)
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
        return whole_statements(self.rows)

    def content(self, body: str | None) -> str | None:
        return comparable(body)

    def _state(self, key: str, *, seen: bool = True) -> None:
        chance = self._random
        base, _, part = key.partition("/")
        if base not in self._has:
            key, part = base, ""
        self._advance()
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
            *self._place(),
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
            if any(part in facts_of(one) for one in self._of(base)):
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
            row = replace(row, content=row.detail if detector else content_of(base, stated))
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
