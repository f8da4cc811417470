"""The store against a model: a dict that takes records one by one (A3 to A7)."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from instep.model.batches import SweepStep
from instep.model.entities import ChangeKind
from instep.model.records import Record
from instep_sql import SqlStore
from tests.instep_sql.store_kit import Stage, create_update, end_record, stream_info
from tests.properties_kit import few

RECORDS = st.lists(
    st.tuples(
        st.sampled_from("abcde"), st.integers(0, 9), st.sampled_from(["say", "say", "same", "end"])
    ),
    max_size=12,
)


class Row(NamedTuple):
    at: int
    lineage: int
    attempt: int
    body: bytes


class StoreMachine(RuleBasedStateMachine):
    """Commits, attempts, other lineages, sweeps and restarts in any order."""

    def __init__(self, database: str, numbers: count[int]) -> None:
        super().__init__()
        number = next(numbers)
        self.options: dict[str, Any] = {"url": f"{database}{number}"}
        if database.startswith("postgresql"):
            self.options = {"url": database, "schema": f"s{number}"}
        self.runner = asyncio.Runner()
        self.model: dict[str, Row] = {}
        self.attempt = self.lineage = 1
        self.open()

    def open(self) -> None:
        async def start() -> Stage:
            store = SqlStore(**self.options, journal="previous", synchronous="normal")
            await store.open("east")
            return Stage(store, await store.position(stream_info()))

        self.at = self.runner.run(start())
        self.at.attempt, self.at.lineage = self.attempt, self.lineage

    @rule(given=RECORDS)
    def commit(self, given: list[tuple[str, int, str]]) -> None:
        records: list[Record] = []
        for key, at, what in given:
            if what == "end":
                records.append(end_record(key, at))
            else:
                records.append(create_update(key, at, b"same" if what == "same" else b"%d" % at))
            stored = self.model.get(key)
            if stored is not None and stored.lineage == self.lineage and stored.at > at:
                continue
            if what == "end":
                self.model.pop(key, None)
            else:
                self.model[key] = Row(at, self.lineage, self.attempt, records[-1].body)
        self.runner.run(self.at.commit(*records))

    @rule(other_log=st.booleans())
    def begin_attempt(self, other_log: bool) -> None:
        self.attempt += 1
        self.lineage += other_log
        self.at.attempt, self.at.lineage = self.attempt, self.lineage

    @rule(limit=st.integers(1, 4))
    def sweep(self, limit: int) -> None:
        cursor, done = 0, False
        while not done:
            step = SweepStep(self.attempt, cursor, limit)
            result = self.runner.run(self.at.commit(sweep=step))
            cursor, done = result.sweep_cursor, result.sweep_done
        self.model = {k: row for k, row in self.model.items() if row.attempt >= self.attempt}

    @rule()
    def restart(self) -> None:
        ordinal = self.at.position.ordinal
        self.runner.run(self.at.store.close())
        self.open()
        assert self.at.position.ordinal == ordinal

    @invariant()
    def the_store_holds_what_the_model_holds(self) -> None:
        entities = self.runner.run(self.at.entities())
        assert {
            key: Row(entity.appended_at_us, self.model[key].lineage, entity.attempt, entity.body)
            for key, entity in entities.items()
            if key in self.model
        } == self.model
        assert entities.keys() == self.model.keys()

    @invariant()
    def the_journal_replays_to_the_same_state(self) -> None:
        replayed: dict[str, bytes] = {}
        for change in self.runner.run(self.at.changes()):
            assert change.previous == replayed.get(change.key)
            if change.change in {ChangeKind.DELETED, ChangeKind.SWEPT}:
                del replayed[change.key]
            else:
                assert (change.change is ChangeKind.CREATED) == (change.key not in replayed)
                replayed[change.key] = change.body
        assert replayed == {key: row.body for key, row in self.model.items()}

    def teardown(self) -> None:
        self.runner.run(self.at.store.close())
        self.runner.close()


@pytest.mark.hypothesis
def test_the_store_is_the_model(database: str) -> None:
    examples = 20 if database.startswith("sqlite") else 5
    run_state_machine_as_test(
        partial(StoreMachine, database, count()),  # type: ignore[arg-type]  # any factory will do
        settings=few(examples, many=500, stateful_step_count=15),
    )
