"""What must hold of the store of numbered entities after every transaction and every answer.

Written from what is promised. It knows what the provider has stated and what the rows of the store
hold, and nothing of what lies between.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["NumberedChecks", "Stored", "UnkeptPromiseError"]

_ENTITIES: Final = "SELECT key, attempt, body FROM instep_entity"
_POSITION: Final = "SELECT position FROM instep_stream"

State = tuple[int, int]
"""Incarnation and version of the provider: they order its states."""


class UnkeptPromiseError(AssertionError):
    """An invariant was violated."""


class Stored(NamedTuple):
    """An entity as stored."""

    state: State
    value: str
    attempt: int = 0
    """The baseline, or the session behind it, that has proven it last."""

    @property
    def stated(self) -> tuple[State, str]:
        return self.state, self.value


class NumberedChecks:
    """Looks at the store through a connection of its own, from outside.

    `confirms_early`: what is confirmed while the store says that it is not aligned need only be
    durable when it says that it is.
    """

    def __init__(self, path: Path, *, confirms_early: bool = False) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._stated: set[tuple[str, State, str]] = set()
        self._ends: dict[str, list[State]] = {}
        """When each key ended, in order."""
        self._reached: dict[str, State] = {}
        """The state of each entity that the store has shown; of one that is gone, its end."""
        self.rows: dict[str, Stored] = {}
        self.attempt = 0
        """How many baselines were begun, as stored."""
        self._aligned = False
        """Whether the store says that it is aligned."""
        self._confirms_early = confirms_early
        self._owed: list[tuple[str, State, str | None]] = []
        """What was confirmed and is not durable yet."""
        self.commits = 0
        self.confirmed = 0

    def close(self) -> None:
        self._database.close()

    def stated(self, key: str, state: State, value: str | None) -> None:
        """The provider is in this state, and it is about this entity."""
        if value is None:
            self._ends.setdefault(key, []).append(state)
        else:
            self._stated.add((key, state, value))

    def fetch(self) -> dict[str, Stored]:
        rows = {}
        for key, attempt, raw in self._database.execute(_ENTITIES):
            body = json.loads(raw)
            rows[key] = Stored((body["incarnation"], body["version"]), body["value"], attempt)
        return rows

    def _read_position(self) -> None:
        row = self._database.execute(_POSITION).fetchone()
        if row is not None:
            position = json.loads(row[0])
            self.attempt, self._aligned = position["attempt"], position["phase"] == "aligned"

    def after_transaction(self, *, failed: bool) -> None:
        """Compare the store with what it was before."""
        before, after = self.rows, self.fetch()
        if failed:
            self._require(before == after, "a failed commit left something")
            return
        self.commits += 1
        for key, row in after.items():
            if before.get(key) != row:
                self._require((key, *row.stated) in self._stated, f"{key} was never {row}")
                reached = self._reached.get(key, (0, 0))
                self._require(row.state >= reached, f"{key} went back from {reached} to {row}")
                self._reached[key] = row.state
        for key in before.keys() - after.keys():
            # What lives is never missing, not while a baseline is read either.
            end = self._end_since(key, before[key].state)
            self._require(end is not None, f"{key} is gone from the store and has not ended")
            assert end is not None
            self._reached[key] = end
        self.rows = after
        self._read_position()
        if self._aligned:
            for one in self._owed:
                self._require_durable(*one)
            self._owed.clear()

    def after_confirmation(self, key: str, state: State, value: str | None) -> None:
        """The consumer has confirmed a message: what it states is durable, or something newer."""
        self.confirmed += 1
        if self._confirms_early and not self._aligned:
            self._owed.append((key, state, value))
        else:
            self._require_durable(key, state, value)

    def _require_durable(self, key: str, state: State, value: str | None) -> None:
        row = self.rows.get(key)
        ended = value is None or self._end_since(key, state) is not None
        if row is None:
            self._require(ended, f"{key} of {state} was confirmed and is not stored")
        elif row.state < state or (value is None and row.state == state):
            # What the baseline no longer shows stays unproven until the sweep removes it.
            unproven = ended and row.attempt < self.attempt
            self._require(unproven, f"{key} of {state} was confirmed: it is {row}")

    def difference(self, truth: dict[str, Stored]) -> str:
        """What the store lacks, has too much, or has of another state; empty where it agrees."""
        stored = self.fetch()
        found = {
            "missing": sorted(truth.keys() - stored.keys()),
            "phantom": sorted(stored.keys() - truth.keys()),
            "stale": sorted(
                k for k in truth.keys() & stored.keys() if truth[k].stated != stored[k].stated
            ),
        }
        return ", ".join(f"{name} {keys}" for name, keys in found.items() if keys)

    def _end_since(self, key: str, state: State) -> State | None:
        return next((end for end in self._ends.get(key, ()) if end > state), None)

    def _require(self, truth: bool, message: str) -> None:
        if not truth:
            raise UnkeptPromiseError(message)
