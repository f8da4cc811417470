"""The sequencer alone, in a transaction of the user's: once and in order, whatever is killed."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, select

from instep.sequencing import GapPolicy, SequencerSettings

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WAIT = SequencerSettings(gap_policy=GapPolicy.WAIT, gap_deadline_s=3600.0)


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("own_inbox", EXAMPLES / "own_inbox.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


own_inbox = load()


class Killed(BaseException):
    """The program ends here."""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = create_engine(f"sqlite:///{tmp_path}/own.db")
    yield made
    made.dispose()


def ignore(scope: str, effect: object) -> None:
    pass


@pytest.mark.parametrize("seed", range(20))
def test_killed_before_or_after_the_commit_each_message_is_booked_once(
    engine: Engine, seed: int
) -> None:
    rng = random.Random(seed)
    danger = [0.0]

    def book(connection: Any, scope: str, number: int, body: bytes) -> None:
        own_inbox.book(connection, scope, number, body)
        if rng.random() < danger[0]:
            raise Killed

    @event.listens_for(engine, "commit")
    def before_commit(_: Any) -> None:
        if rng.random() < danger[0]:
            raise Killed

    def start() -> Any:
        danger[0] = 0.0
        made = own_inbox.OwnInbox(engine, book, WAIT, ignore)
        danger[0] = 0.1
        return made

    inbox = start()
    wanted = [(lot, number) for lot in "ab" for number in range(1, 31)]
    order = sorted(wanted, key=lambda one: one[1] + rng.uniform(0, 8))
    for lot, number in order:
        while True:
            try:
                told = inbox.receive(lot, number, b'{"amount": %d}' % number)
                assert told in ("accepted", "copy")
                if rng.random() < 0.9:
                    break
                # The answer is lost: it comes again.
            except Killed:
                if rng.random() < 0.5:
                    inbox = start()
    danger[0] = 0.0
    with engine.connect() as connection:
        found = connection.execute(
            select(own_inbox.orders).order_by(own_inbox.orders.c.place)
        ).all()
        assert connection.execute(select(own_inbox.waiting)).all() == []
    for lot in "ab":
        assert [row.number for row in found if row.lot == lot] == list(range(1, 31))
    assert inbox.missing() == {}


def test_s14_a_gap_ends_by_the_clock_also_after_a_restart(engine: Engine) -> None:
    told: list[tuple[str, str]] = []
    now = [0]
    settings = SequencerSettings(gap_policy=GapPolicy.SKIP, gap_deadline_s=10.0)

    def start() -> Any:
        return own_inbox.OwnInbox(
            engine,
            own_inbox.book,
            settings,
            lambda scope, effect: told.append((scope, type(effect).__name__)),
            lambda: now[0],
        )

    inbox = start()
    assert inbox.receive("a", 2, b'{"amount": 2}') == "accepted"
    assert inbox.missing() == {"a": [(1, 1)]}
    now[0] += 1_000_000
    inbox = start()
    inbox.tick()
    assert told == []
    now[0] += 60_000_000
    inbox.tick()
    assert told == [("a", "ReportLoss")]
    assert own_inbox.booked(engine) == ["a 2: 2"]
    assert inbox.receive("a", 1, b'{"amount": 1}') == "given-up"
    assert inbox.receive("a", 2, b'{"amount": 9}') == "changed"
