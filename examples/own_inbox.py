"""Numbered messages into your own tables: the sequencer alone, with SQLAlchemy.

Three programs use it: `numbers_in_file.py`, `numbers_on_topic.py` and `numbers_over_http.py`. There
is no listener and no store of instep: the state of a sequence, the messages that wait and what you
do with a message are one transaction of your own engine.
"""

import json
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    delete,
    insert,
    select,
)

from instep.sequencing import (
    Claims,
    Decision,
    MessageHeader,
    Sequencer,
    SequencerSettings,
    decode_state,
)

metadata = MetaData()
sequences = Table(
    "sequences",
    metadata,
    Column("scope", String, primary_key=True),
    Column("state", LargeBinary, nullable=False),
    Column("due_us", BigInteger, index=True),
)
waiting = Table(
    "waiting",
    metadata,
    Column("scope", String, primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("body", LargeBinary, nullable=False),
)

orders = Table(
    "orders",
    metadata,
    Column("place", Integer, primary_key=True),
    Column("lot", String, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("amount", BigInteger, nullable=False),
)
"""A table of yours, for the examples."""

Handle = Callable[[Connection, str, int, bytes], None]
"""What you do with a message: connection, scope, number, body."""


def wall_clock_us() -> int:
    return time.time_ns() // 1_000


class OwnInbox:
    """Delivers each message once, in the order of its number. Not thread-safe: one call at a time.

    Args:
        engine: Where the tables are, yours too.
        handle: Called in the transaction that marks the message delivered.
        settings: Of every sequence.
        tell: Called with scope and effect after the commit: a loss, a failed sequence, a request
            for missing numbers.
        now_us: The clock, in microseconds since 1970.
    """

    def __init__(
        self,
        engine: Engine,
        handle: Handle,
        settings: SequencerSettings,
        tell: Callable[[str, object], None] = print,
        now_us: Callable[[], int] = wall_clock_us,
    ) -> None:
        self._engine = engine
        self._handle = handle
        self._settings = settings
        self._tell = tell
        self._now_us = now_us
        self._started_us = now_us()
        self._sequencers: dict[str, Sequencer] = {}
        metadata.create_all(engine)

    def receive(self, scope: str, number: int, body: bytes) -> str:
        """Take a message; it is durable when this returns. What became of it: "accepted", "copy",
        "changed" (another message came under this number before), or why it is refused.
        """
        header = MessageHeader(number, sha256(body).digest()[:16], len(body))
        decision = self._transact(
            scope, lambda one: one.receive([header], self._now_us()), {number: body}
        )
        if decision.refused:
            return str(decision.refused[0][1])
        if decision.deviations:
            return "changed"
        return "copy" if decision.duplicates else "accepted"

    def tick(self) -> float:
        """Act on the time, where it is due: call it again after the seconds that it returns."""
        now_us = self._now_us()
        due = select(sequences.c.scope).where(sequences.c.due_us <= now_us)
        with self._engine.connect() as connection:
            scopes = list(connection.execute(due).scalars())
        for scope in scopes:
            self._transact(scope, lambda one: one.tick(now_us), {})
        following = select(sequences.c.due_us).order_by(sequences.c.due_us).limit(1)
        with self._engine.connect() as connection:
            due_us = connection.execute(following.where(sequences.c.due_us.is_not(None))).scalar()
        return 1.0 if due_us is None else min(1.0, max(0.0, (due_us - self._now_us()) / 1e6))

    def missing(self) -> dict[str, list[tuple[int, int]]]:
        """The numbers that are waited for, as ranges, by scope."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(sequences).order_by(sequences.c.scope)).all()
        found = {
            row.scope: list(Claims(decode_state(row.state), self._settings).missing())
            for row in rows
        }
        return {scope: missing for scope, missing in found.items() if missing}

    def _transact(
        self, scope: str, decide: Callable[[Sequencer], Decision], bodies: Mapping[int, bytes]
    ) -> Decision:
        try:
            with self._engine.begin() as connection:
                sequencer = self._load(connection, scope)
                decision = decide(sequencer)
                self._apply(connection, scope, decision, bodies)
                state = sequencer.checkpoint()
                at_us = sequencer.reclaimable_at_us
                row = {
                    "scope": scope,
                    "state": msgspec.json.encode(state),
                    "due_us": sequencer.due_us() if at_us is None else at_us,
                }
                connection.execute(delete(sequences).where(sequences.c.scope == scope))
                if at_us is None or at_us > self._now_us():
                    connection.execute(insert(sequences), row)
        except BaseException:
            # The transaction may have become durable all the same: only the table knows.
            self._sequencers.pop(scope, None)
            raise
        sequencer.committed(state)
        for effect in decision.effects:
            self._tell(scope, effect)
        return decision

    def _load(self, connection: Connection, scope: str) -> Sequencer:
        found = self._sequencers.get(scope)
        if found is None:
            kept = select(sequences.c.state).where(sequences.c.scope == scope)
            raw = connection.execute(kept).scalar()
            state = None if raw is None else decode_state(raw)
            found = self._sequencers[scope] = Sequencer(self._settings, state)
            if state is not None and state.acted_at_us < self._started_us:
                # The sender is not charged for the time in which this program did not run.
                found.resume(self._started_us)
        return found

    def _apply(
        self, connection: Connection, scope: str, decision: Decision, bodies: Mapping[int, bytes]
    ) -> None:
        """Forget what is dropped, keep what is accepted, deliver what is next: in this order."""
        for number in decision.dropped:
            connection.execute(_kept(delete(waiting), scope, number))
        for message in decision.accepted:
            if message.number not in decision.deliver:
                row = {"scope": scope, "number": message.number, "body": bodies[message.number]}
                connection.execute(insert(waiting), row)
        for number in decision.deliver:
            body = bodies.get(number)
            if body is None:
                body = connection.execute(_kept(select(waiting.c.body), scope, number)).scalar_one()
                connection.execute(_kept(delete(waiting), scope, number))
            self._handle(connection, scope, number, body)


def _kept(statement: Any, scope: str, number: int) -> Any:
    """Of what waits, this message."""
    return statement.where(waiting.c.scope == scope, waiting.c.number == number)


def book(connection: Connection, scope: str, number: int, body: bytes) -> None:
    """What the examples do with a message: a row in a table of yours."""
    row = {"lot": scope, "number": number, "amount": json.loads(body)["amount"]}
    connection.execute(insert(orders), row)


def booked(engine: Engine) -> list[str]:
    """What was booked, in the order in which it was."""
    with engine.connect() as connection:
        rows = connection.execute(select(orders).order_by(orders.c.place)).all()
    return [f"{row.lot} {row.number}: {row.amount}" for row in rows]
