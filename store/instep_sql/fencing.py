"""Fencing: each transaction of a writer begins with a check that this process may still write.

- The lease of a consumer is a row of `instep_lease`. Its epoch grows with each holder, its nonce is
  new with each take. It is taken by compare-and-set; `instep.coordination.lease` explains why that
  is safe. Raises `LeaseLostError`.
- The position of a stream is in a row of `instep_stream`. Its ordinal grows with each commit, and a
  commit names the ordinal that it follows. Raises `FencedError`.
- The receiver of a consumer is a row of `instep_receiver`, which names the process that receives.
  The last process that took it over is the owner. Raises `FencedError`.

Each check is an UPDATE, which locks its row until the transaction ends, so a successor waits for
the commit under way. The lease is locked first, then the stream or the receiver.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from typing import Final, Literal
from uuid import uuid4

import msgspec
from sqlalchemy import Connection, TextClause, text

from instep.coordination.lease import LeaseState
from instep.errors import FencedError, LeaseLostError, SinkError
from instep.model.batches import Batch
from instep.model.position import Phase, Position, decode_position
from instep.model.storable import without_nul
from instep_sql.engine.database import Database
from instep_sql.engine.dialect import Dialect
from instep_sql.status_rows import LEASE_COLUMNS, LEASES, lease_state

_END_ONE: Final = "end one of them; or set lease_s in the sinks of both: then one stands by"

__all__ = [
    "ReceiverRow",
    "SqlLease",
    "advance_stream",
    "ask_to_hand_over",
    "check_receiver",
    "count_deviations",
    "dump_position",
    "leases",
    "lock_stream",
    "receiver_is_at",
    "set_position",
    "stream_is_at",
    "take_over",
]

_LOCK_STREAM: Final = text("""
    UPDATE instep_stream SET ordinal = ordinal WHERE consumer = :consumer AND stream = :stream
""")
# A connection may go on for a while when its stream is not offered any more (A20).
_ADVANCE_STREAM: Final = f"""
    UPDATE instep_stream SET position = ?, token = ?, appended_at_us = ?,
                             phase = CASE WHEN phase = '{Phase.NOT_OFFERED.value}' THEN phase
                                     ELSE ? END,
                             attempt = ?, ordinal = ?, records = ?, updated_at_us = ?
    WHERE id = ? AND ordinal = ?
"""
_SET_POSITION: Final = text("UPDATE instep_stream SET position = :position WHERE id = :no")
_POSITION: Final = text("SELECT position FROM instep_stream WHERE id = :no")
_STREAM_IS_AT: Final = text("""
    SELECT position FROM instep_stream WHERE id = :no AND updated_at_us = :now_us
""")

_TAKE_OVER: Final = text("""
    INSERT INTO instep_receiver (consumer, kind, owner, commits, messages, deviations,
                                 updated_at_us)
    VALUES (:consumer, :kind, :owner, 0, 0, '{}', :now_us)
    ON CONFLICT (consumer) DO UPDATE
    SET kind = excluded.kind, owner = excluded.owner, commits = 0,
        updated_at_us = excluded.updated_at_us
""")
_RECEIVER: Final = text("SELECT id FROM instep_receiver WHERE consumer = :consumer")
_CHECK_RECEIVER: Final = text("""
    UPDATE instep_receiver
    SET commits = :commits, messages = messages + :messages, updated_at_us = :now_us
    WHERE id = :no AND owner = :owner
""")
_LOCK_RECEIVER: Final = text("UPDATE instep_receiver SET commits = commits WHERE id = :no")
_RECEIVER_IS_AT: Final = text("""
    SELECT count(*) FROM instep_receiver
    WHERE id = :no AND owner = :owner AND commits = :commits
""")

_READ: Final = text(f"SELECT {LEASE_COLUMNS} FROM instep_lease WHERE consumer = :consumer")
_MAKE: Final = text("""
    INSERT INTO instep_lease (consumer, epoch, nonce, beat, holder, lease_s, taken_at_us,
                              asked_epoch)
    VALUES (:consumer, 0, '', 0, '', 0, 0, -1) ON CONFLICT (consumer) DO NOTHING
""")
_ACQUIRE: Final = text("""
    UPDATE instep_lease SET epoch = epoch + 1, nonce = :nonce, beat = beat + 1, holder = :holder,
                            lease_s = :lease_s, taken_at_us = :now_us
    WHERE consumer = :consumer AND epoch = :epoch AND nonce = :seen_nonce AND beat = :beat
""")
_CHECK: Final = text("""
    UPDATE instep_lease SET beat = beat + 1
    WHERE consumer = :consumer AND epoch = :epoch AND nonce = :nonce
""")
_RELEASE: Final = text("""
    UPDATE instep_lease SET epoch = epoch + 1, nonce = '', beat = beat + 1, holder = ''
    WHERE consumer = :consumer AND epoch = :epoch AND nonce = :nonce
""")
_ASK: Final = text("""
    UPDATE instep_lease SET asked_epoch = epoch WHERE consumer = :consumer AND holder <> ''
""")


def lock_stream(connection: Connection, consumer: str, stream: str) -> None:
    """Lock the stream against other commits until the transaction ends.

    Waits for a commit under way, also for one whose connection was lost on the client's side only.
    """
    connection.execute(_LOCK_STREAM, {"consumer": consumer, "stream": stream})


def advance_stream(
    connection: Connection, dialect: Dialect, no: int, batch: Batch, now_us: int
) -> int:
    """Advance the stream `no` to the position of the batch, and count its deviations (A1, A10).
    Returns how many entities an audit or a replay has proven since the consumer's last commit.

    Raises `FencedError` if the stream is no longer at the ordinal that the batch expects.
    """
    position = batch.position
    if position.ordinal <= batch.expects_ordinal:
        raise ValueError(
            f"a commit leads beyond ordinal {batch.expects_ordinal}, not to {position.ordinal}"
        )
    proven = 0
    if position.unproven:
        stored: str = connection.execute(_POSITION, {"no": no}).scalar_one()
        proven = position.unproven - decode_position(stored).unproven
    row = (
        dump_position(position),
        None if position.token is None else without_nul(position.token),
        position.appended_at_us,
        position.phase.value,
        position.attempt,
        position.ordinal,
        position.records,
        now_us,
        no,
        batch.expects_ordinal,
    )
    if dialect.execute_many(connection, _ADVANCE_STREAM, [row]) != 1:
        raise FencedError(
            f"another process has committed on stream {batch.stream!r}",
            where=dialect.where,
            hint=_END_ONE,
            stream=batch.stream,
            expected=batch.expects_ordinal,
        )
    if batch.deviations:
        count_deviations(connection, dialect, "instep_stream", no, batch.deviations)
    return proven


def set_position(connection: Connection, no: int, position: Position) -> None:
    """Store what the commit itself has found out, with the position that was just stored."""
    connection.execute(_SET_POSITION, {"no": no, "position": dump_position(position)})


def stream_is_at(connection: Connection, no: int, position: Position, now_us: int) -> bool:
    """Whether the last commit on the stream was the one that led to this position at that time.

    Call `lock_stream` first: a COMMIT whose response was lost may still be under way.
    """
    stored = connection.execute(_STREAM_IS_AT, {"no": no, "now_us": now_us}).scalar_one_or_none()
    return stored is not None and _as_given(decode_position(stored)) == _as_given(position)


def dump_position(position: Position) -> str:
    """A position as the store keeps it: JSON text, equal where positions are equal."""
    return msgspec.json.encode(position).decode()


def _as_given(position: Position) -> Position:
    """The same position without what a commit adds to it."""
    return msgspec.structs.replace(position, baseline_pending=True, unknown={}, unproven=0)


def count_deviations(
    connection: Connection,
    dialect: Dialect,
    table: Literal["instep_stream", "instep_receiver"],
    no: int,
    deviations: Mapping[str, int],
) -> None:
    """Add to the counts of departures from the specification in a row, by kind (A10).

    The transaction has locked the row, so no other count is lost.
    """
    read = f"SELECT deviations FROM {table} WHERE id = :no"
    ((stored,),) = dialect.execute(connection, read, {"no": no})
    counts: dict[str, int] = json.loads(stored)
    for kind, count in deviations.items():
        counts[kind] = counts.get(kind, 0) + count
    dialect.execute(
        connection,
        f"UPDATE {table} SET deviations = :counts WHERE id = :no",
        {"no": no, "counts": json.dumps(counts)},
    )


class ReceiverRow(msgspec.Struct, frozen=True):
    """The receiver of a consumer, as this process has taken it over."""

    no: int
    """The id of its row."""
    owner: str
    """Identifies this process, and no other."""


def take_over(
    connection: Connection, consumer: str, owner: str, kind: str, now_us: int
) -> ReceiverRow:
    """Make `owner` the process that receives for the consumer; the owner before it is fenced.

    `kind` is that of the listener. The new owner counts its transactions from 1.
    """
    values = {"consumer": consumer, "owner": owner, "kind": kind, "now_us": now_us}
    connection.execute(_TAKE_OVER, values)
    no: int = connection.execute(_RECEIVER, {"consumer": consumer}).scalar_one()
    return ReceiverRow(no, owner)


def check_receiver(
    connection: Connection,
    dialect: Dialect,
    receiver: ReceiverRow,
    *,
    commits: int,
    messages: int,
    now_us: int,
) -> None:
    """Begin a transaction of the owner that commits `messages` messages.

    `commits` is the owner's own number for the transaction, used once: `receiver_is_at` identifies
    the transaction by it. Raises `FencedError` if another process has taken over.
    """
    values = {
        "no": receiver.no,
        "owner": receiver.owner,
        "commits": commits,
        "messages": messages,
        "now_us": now_us,
    }
    if connection.execute(_CHECK_RECEIVER, values).rowcount != 1:
        raise FencedError(
            "another process receives for this consumer",
            where=dialect.where,
            hint=_END_ONE,
        )


def receiver_is_at(connection: Connection, receiver: ReceiverRow, commits: int) -> bool:
    """Whether the last transaction of the receiver is the owner's transaction with this number.

    Waits for a commit under way, also for one whose connection was lost on the client's side only.
    """
    connection.execute(_LOCK_RECEIVER, {"no": receiver.no})
    values = {"no": receiver.no, "owner": receiver.owner, "commits": commits}
    return bool(connection.execute(_RECEIVER_IS_AT, values).scalar_one())


class SqlLease:
    """Implements `instep.ports.lease.Lease` for the consumer of a store."""

    def __init__(
        self,
        writer: Database,
        reader: Callable[[], Database],
        dialect: Dialect,
        *,
        consumer: Callable[[], str],
        clock_us: Callable[[], int],
        lease_s: float,
        holder: str | None,
    ) -> None:
        self.holder = holder or f"{socket.gethostname()}:{os.getpid()}"
        self.lease_s = lease_s
        self._writer, self._reader, self._dialect = writer, reader, dialect
        self._consumer, self._clock_us = consumer, clock_us
        self._taken: LeaseState | None = None
        """The lease as this process took it last."""
        writer.guard = self.check

    def check(self, connection: Connection) -> None:
        """Begin a transaction of the holder. Raises `LeaseLostError` if another process holds the
        lease.
        """
        if not self._ours(connection, _CHECK):
            raise LeaseLostError(
                "another process holds the lease, or nobody",
                where=self._dialect.where,
                hint="this process stands by until it gets the lease",
                consumer=self._consumer(),
                epoch=self._taken.epoch if self._taken else None,
            )

    async def read(self) -> LeaseState:
        """See `instep.ports.lease.Lease`."""
        return await self._reader().run(self._read)

    async def acquire(self, seen: LeaseState) -> LeaseState | None:
        """See `instep.ports.lease.Lease`."""
        values = {
            "consumer": self._consumer(),
            "holder": self.holder,
            "lease_s": self.lease_s,
            "now_us": self._clock_us(),
            "epoch": seen.epoch,
            "seen_nonce": seen.nonce,
            "beat": seen.beat,
            "nonce": uuid4().hex,
        }

        def work(connection: Connection) -> LeaseState | None:
            if seen.epoch == 0:
                connection.execute(_MAKE, {"consumer": self._consumer()})
            self._dialect.end_silent_holder(
                connection, self._consumer(), seen.lease_s or self.lease_s
            )
            taken = connection.execute(_ACQUIRE, values).rowcount == 1
            return self._read(connection) if taken else None

        # If the response to the COMMIT is lost, this process may hold the lease without knowing it.
        # The lease then expires like that of any silent holder: the holder's name is no proof.
        taken = await self._writer.run(work, guarded=False)
        if taken is not None:
            self._taken = taken
        return taken

    def adopt(self, taken: LeaseState) -> None:
        """See `instep.ports.lease.Lease`."""
        self._taken = taken

    async def renew(self) -> LeaseState:
        """See `instep.ports.lease.Lease`."""
        return await self._writer.run(self._read)

    async def release(self) -> None:
        """See `instep.ports.lease.Lease`."""

        def work(connection: Connection) -> None:
            self.check(connection)
            self._ours(connection, _RELEASE)

        await self._writer.run(work, guarded=False)
        self._taken = None

    def _read(self, connection: Connection) -> LeaseState:
        row = connection.execute(_READ, {"consumer": self._consumer()}).one_or_none()
        return LeaseState() if row is None else lease_state(row)

    def _ours(self, connection: Connection, statement: TextClause) -> bool:
        taken = self._taken
        if taken is None:
            return False
        values = {"consumer": self._consumer(), "epoch": taken.epoch, "nonce": taken.nonce}
        return connection.execute(statement, values).rowcount == 1


def leases(connection: Connection) -> dict[str, LeaseState]:
    """The leases of a store, by consumer."""
    return {row.consumer: lease_state(row) for row in connection.execute(text(LEASES))}


def ask_to_hand_over(connection: Connection, consumer: str, where: str) -> LeaseState:
    """Ask the holder to release the lease at its next renewal. Raises `SinkError` if there is no
    holder.
    """
    if connection.execute(_ASK, {"consumer": consumer}).rowcount != 1:
        raise SinkError(
            f"nobody holds a lease for the consumer {consumer!r}",
            where=where,
            hint="see `instep status` for the holders; without lease_s there is no lease",
        )
    return lease_state(connection.execute(_READ, {"consumer": consumer}).one())
