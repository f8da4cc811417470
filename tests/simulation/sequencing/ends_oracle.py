"""Judges what became of every number, by the specification alone: it imports nothing of instep.

It reads the tables, and compares three things: where the bodies are, what the record says, and what
senders and operator were told. Each body is sent once and says whose it is: "scope number copy".
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

__all__ = ["EndsFailedError", "Told", "judge"]

Number = tuple[str, int]
"""Scope and number."""
_STAGES: Final = ("held", "waiting", "quarantined", "dead")
_DELIVERED: Final = frozenset({"delivered", "waiting", "quarantined"})
"""Released: to the store, or to a handler that has not taken it yet."""


class EndsFailedError(AssertionError):
    """A number or a message of which the tables, the record and the answers do not agree."""


@dataclass
class Told:
    """What the parties of a story were told."""

    accepted: set[str] = field(default_factory=set)
    """Bodies that were answered as durable."""
    acknowledged: dict[str, set[int]] = field(default_factory=dict)
    """Scope → numbers, when all was over."""
    cancelled: dict[str, set[int]] = field(default_factory=dict)
    faults: set[Number] = field(default_factory=set)
    """Numbers of which the senders got a fault."""
    dropped: set[str] = field(default_factory=set)
    """Bodies that the operator has removed from the dead letter."""


def judge(
    path: Path,
    records: dict[str, list[dict[str, Any]]],
    told: Told,
    *,
    limit: int,
    limit_each: int,
    discards: bool,
) -> Counter[str]:
    """Compare all; returns how many numbers ended in which way. Raises `EndsFailedError`.

    `records`: scope → what a reader says of its numbers. `discards`: the sequences may discard what
    they have accepted behind a gap, which is trimmed once the dead letter is full.
    """
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        tables = _Tables(connection)
    _judge_bodies(tables, told, limit, limit_each, discards=discards)
    _judge_tables(tables, told)
    for scope, record in records.items():
        _judge_scope(tables, scope, record, told)
    return Counter({end: count for end, count in tables.totals.items() if count})


class _Tables:
    """What the store holds, as its page describes it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.places: dict[str, list[str]] = defaultdict(list)
        """Body → where it is."""
        handled = connection.execute("SELECT body FROM effects").fetchall()
        stored = connection.execute("SELECT CAST(body AS TEXT) AS body FROM instep_message")
        for row in [*handled, *stored.fetchall()]:
            self.places[row["body"]].append("delivered")
        self.inbox = connection.execute(
            "SELECT CAST(i.body AS TEXT) AS body, i.stage, i.number, i.epoch, i.ending, i.reason, "
            "i.discarded, q.scope FROM instep_inbox AS i "
            "JOIN instep_sequence AS q ON q.id = i.sequence_no"
        ).fetchall()
        for row in self.inbox:
            self.places[row["body"]].append(_STAGES[row["stage"]])
        self.rows = connection.execute("SELECT * FROM instep_number_end ORDER BY id").fetchall()
        states = connection.execute("SELECT scope, state FROM instep_sequence WHERE state <> ''")
        self.states: dict[str, Any] = {row[0]: json.loads(row[1]) for row in states}
        self.totals = dict(connection.execute("SELECT ending, numbers FROM instep_number_total"))
        self.undone = connection.execute(
            "SELECT * FROM instep_sequence_request WHERE outcome IS NULL"
        ).fetchall()

    def places_of(self, number: Number) -> list[str]:
        """Where all messages are that came under this number, in whichever count."""
        start = f"{number[0]} {number[1]} "
        return [p for body, places in self.places.items() if body.startswith(start) for p in places]


def _fail(text: str) -> None:
    raise EndsFailedError(text)


def _judge_bodies(
    tables: _Tables, told: Told, limit: int, limit_each: int, *, discards: bool
) -> None:
    """Accepted = delivered + held + dead + dropped, each body once; the dead within bounds."""
    for body, where in tables.places.items():
        if len(where) > 1:
            _fail(f"{body!r} is in {where}")
        if body in told.dropped:
            _fail(f"{body!r} was dropped, and is {where}")
    for body in told.accepted - told.dropped - tables.places.keys():
        if not discards or not _failed_once(tables, body):
            _fail(f"{body!r} was accepted, and is in no table")
    dead = [row for row in tables.inbox if row["stage"] == 3]
    places = [row["scope"] for row in tables.inbox if row["stage"] == 0]
    places += [row["scope"] for row in dead if not row["discarded"]]
    if len(places) > limit or any(count > limit_each for count in Counter(places).values()):
        _fail(f"the dead letter holds more than {limit}, or {limit_each} of one: {places}")
    if any(row["discarded"] for row in dead) and not discards:
        _fail("nothing may be discarded here")
    if tables.undone:
        _fail(f"an operator still waits: {[dict(row) for row in tables.undone]}")


def _failed_once(tables: _Tables, body: str) -> bool:
    scope, number, _ = body.split()
    return any(
        row["scope"] == scope
        and row["low"] <= int(number) <= row["high"]
        and row["ending"] == "failed"
        for row in tables.rows
    )


def _judge_tables(tables: _Tables, told: Told) -> None:
    """Each row of the record, and each dead message, has its cause."""
    for row in tables.rows:
        numbers = {(row["scope"], number) for number in range(row["low"], row["high"] + 1)}
        if row["told"] == "owed":
            _fail(f"all is over, and a sender is not told yet: {dict(row)}")
        if row["told"] == "sent" and numbers - told.faults:
            _fail(f"the record says that the sender was told: {dict(row)}")
        if row["told"] == "not-sent" and numbers & told.faults and not told.faults:
            _fail(f"the record says that the sender was not told: {dict(row)}")
        if row["ending"] != "delivered" and not row["decided_by"]:
            _fail(f"nobody decided: {dict(row)}")
    of_faults = {
        (row["scope"], number)
        for row in tables.rows
        if row["told"] == "sent"
        for number in range(row["low"], row["high"] + 1)
    }
    if told.faults - of_faults:
        _fail(f"senders were told of {told.faults - of_faults}, and no record says so")
    for one in tables.inbox:
        if one["stage"] == 3 and not any(
            row["scope"] == one["scope"]
            and row["epoch"] == one["epoch"]
            and row["low"] <= one["number"] <= row["high"]
            and row["ending"] == one["ending"]
            and row["reason"] == one["reason"]
            for row in tables.rows
        ):
            _fail(f"no record of a dead message: {dict(one)}")
    _judge_counts(tables)


def _judge_counts(tables: _Tables) -> None:
    """In each count of a sequence a number is delivered once at most; the record says how often."""
    counts: dict[tuple[str, int, int], list[sqlite3.Row]] = defaultdict(list)
    for row in tables.rows:
        counts[row["scope"], row["forgotten_at_us"] or 0, row["epoch"]].append(row)
    for scope, state in tables.states.items():
        counts[scope, 0, state.get("epoch", 0)] += []
    delivered = Counter[Number]()
    for (scope, forgotten, epoch), rows in counts.items():
        state = tables.states.get(scope, {}) if not forgotten else {}
        state = state if state.get("epoch", 0) == epoch else {}
        held = {r["number"] for r in tables.inbox if r["stage"] == 0 and r["scope"] == scope}
        ends = _ends(rows, state, held)
        delivered.update((scope, number) for number, end in ends.items() if end == "delivered")
    there = Counter[Number]()
    for body, where in tables.places.items():
        scope, number, _ = body.split()
        there[scope, int(number)] += len(_DELIVERED & set(where))
    for one in there | delivered:
        if there[one] != delivered[one]:
            _fail(f"{one} was delivered {there[one]} times; the record says {delivered[one]}")


def _ends(rows: list[sqlite3.Row], state: dict[str, Any], held: set[int]) -> dict[int, str]:
    """What became of the numbers of one count: of the rows the last counts, and what was received
    and has no row was delivered.
    """
    ends: dict[int, str] = {}
    replayed = set[int]()
    delivered = _numbers(state.get("received")) - held if state else set[int]()
    for row in rows:
        for number in range(row["low"], row["high"] + 1):
            if row["ending"] == "superseded":
                ends.pop(number, None)
            elif row["ending"] == "delivered":
                (replayed if row["decided_by"] == "operator" else delivered).add(number)
            else:
                ends[number] = row["ending"]
    # Whatever a sender asks for later, what was delivered was delivered.
    ends.update(dict.fromkeys(replayed, "delivered"))
    if state:
        for number in held:
            ends.pop(number, None)
    return dict.fromkeys(delivered, "delivered") | ends


def _numbers(ranges: list[list[int]] | None) -> set[int]:
    lows, highs = ranges or ([], [])
    return {n for low, high in zip(lows, highs, strict=True) for n in range(low, high + 1)}


def _judge_scope(tables: _Tables, scope: str, record: list[dict[str, Any]], told: Told) -> None:
    """The record that a reader gives, and what the sender was told, of the present count."""
    ends: dict[tuple[int, int], str] = {}
    for one in record:
        for number in range(one["low"], one["high"] + 1):
            if (one.get("epoch", 0), number) in ends:
                _fail(f"{scope}: {number} has two ends: {record}")
            ends[one.get("epoch", 0), number] = one["end"]
    state = tables.states.get(scope)
    if state is None:
        return
    epoch = state.get("epoch", 0)
    held = {r["number"] for r in tables.inbox if r["stage"] == 0 and r["scope"] == scope}
    rows = [r for r in tables.rows if r["scope"] == scope and not r["forgotten_at_us"]]
    rows = [r for r in rows if r["epoch"] == epoch]
    mine = {number: end for (count, number), end in ends.items() if count == epoch}
    if mine != _ends(rows, state, held):
        _fail(f"{scope}: the record is {mine}, the tables say {_ends(rows, state, held)}")
    for number in range(1, state["next_number"]):
        if number not in mine and number not in held:
            _fail(f"{scope}: {number} is passed, and has no end")
    for number, end in mine.items():
        if end == "lost" and not _only_of_before(tables, scope, number, epoch):
            _fail(f"{scope}: {number} is lost, and its messages are {tables.places}")
    _judge_claims(scope, mine, held, told)


def _judge_claims(scope: str, mine: dict[int, str], held: set[int], told: Told) -> None:
    """What the sender was told, when all was over, against the record."""
    for number in told.acknowledged.get(scope, ()):
        if number not in held and mine.get(number) in (None, "lost", "cancelled", "refused"):
            _fail(f"{scope}: {number} is acknowledged, and it is {mine.get(number)}")
    for number in told.cancelled.get(scope, ()):
        if mine.get(number) not in ("cancelled", "delivered"):
            _fail(f"{scope}: {number} is cancelled, and it is {mine.get(number)}")
        if number in told.acknowledged.get(scope, ()):
            _fail(f"{scope}: {number} is acknowledged and cancelled")


def _only_of_before(tables: _Tables, scope: str, number: int, epoch: int) -> bool:
    """Whether no message that came under a lost number can be of this count of its sequence."""
    began_anew = epoch or any(r["scope"] == scope and r["forgotten_at_us"] for r in tables.rows)
    return bool(began_anew) or not tables.places_of((scope, number))
