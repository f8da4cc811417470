"""The lease of a consumer, a row of `instep_lease`: taken by compare-and-set, and checked in each
transaction of its holder (`instep.coordination.lease` says why that is safe).

The check is an update, so it holds the row until the transaction ends: a successor waits for what
is being committed, and sees by the beat that its holder lives after all.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection, Row, TextClause, text

from instep.coordination.lease import LeaseState
from instep.errors import LeaseLostError, SinkError
from instep_sql.engine.database import Database
from instep_sql.engine.dialect import Dialect

__all__ = ["SqlLease", "ask_to_hand_over", "leases"]

_COLUMNS: Final = "consumer, epoch, beat, holder, lease_s, asked_epoch = epoch AS asked"
_ALL: Final = text(f"SELECT {_COLUMNS} FROM instep_lease ORDER BY consumer")  # noqa: S608
_READ: Final = text(f"SELECT {_COLUMNS} FROM instep_lease WHERE consumer = :consumer")  # noqa: S608
_MAKE: Final = text("""
    INSERT INTO instep_lease (consumer, epoch, beat, holder, lease_s, taken_at_us, asked_epoch)
    VALUES (:consumer, 0, 0, '', 0, 0, -1) ON CONFLICT (consumer) DO NOTHING
""")
_ACQUIRE: Final = text("""
    UPDATE instep_lease SET epoch = epoch + 1, beat = beat + 1, holder = :holder,
                            lease_s = :lease_s, taken_at_us = :now_us
    WHERE consumer = :consumer AND epoch = :epoch AND beat = :beat
""")
_CHECK: Final = text("""
    UPDATE instep_lease SET beat = beat + 1 WHERE consumer = :consumer AND epoch = :epoch
""")
_RELEASE: Final = text("""
    UPDATE instep_lease SET epoch = epoch + 1, beat = beat + 1, holder = ''
    WHERE consumer = :consumer AND epoch = :epoch
""")
_ASK: Final = text("""
    UPDATE instep_lease SET asked_epoch = epoch WHERE consumer = :consumer AND holder <> ''
""")


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
        self._epoch: int | None = None
        """Of the lease that we took last."""
        writer.guard = self.check

    def check(self, connection: Connection) -> None:
        """Begin a transaction of the holder. Raises `LeaseLostError` where it is another by now."""
        if self._epoch is None or not self._ours(connection, _CHECK):
            raise LeaseLostError(
                "another process holds the lease, or nobody",
                where=self._dialect.where,
                hint="this process stands by until it is given to it",
                consumer=self._consumer(),
                epoch=self._epoch,
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
            "beat": seen.beat,
        }

        def work(connection: Connection) -> LeaseState | None:
            if seen.epoch == 0:
                connection.execute(_MAKE, {"consumer": self._consumer()})
            self._dialect.end_silent_holder(
                connection, self._consumer(), seen.lease_s or self.lease_s
            )
            taken = connection.execute(_ACQUIRE, values).rowcount == 1
            return self._read(connection) if taken else None

        # Where the answer to its COMMIT is lost, the lease may be ours without our knowing: then it
        # ends as that of any silent holder. To guess by the name would be to trust the name.
        taken = await self._writer.run(work, guarded=False)
        if taken is not None:
            self._epoch = taken.epoch
        return taken

    async def renew(self) -> LeaseState:
        """See `instep.ports.lease.Lease`."""
        return await self._writer.run(self._read)

    async def release(self) -> None:
        """See `instep.ports.lease.Lease`."""

        def work(connection: Connection) -> None:
            self.check(connection)
            self._ours(connection, _RELEASE)

        await self._writer.run(work, guarded=False)
        self._epoch = None

    def _read(self, connection: Connection) -> LeaseState:
        row = connection.execute(_READ, {"consumer": self._consumer()}).one_or_none()
        return LeaseState() if row is None else _state(row)

    def _ours(self, connection: Connection, statement: TextClause) -> bool:
        values = {"consumer": self._consumer(), "epoch": self._epoch}
        return connection.execute(statement, values).rowcount == 1


def leases(connection: Connection) -> dict[str, LeaseState]:
    """The leases of a store, by consumer."""
    return {row.consumer: _state(row) for row in connection.execute(_ALL)}


def ask_to_hand_over(connection: Connection, consumer: str, where: str) -> LeaseState:
    """Ask the holder to give the lease up at its next beat. Raises `SinkError` where nobody is."""
    if connection.execute(_ASK, {"consumer": consumer}).rowcount != 1:
        raise SinkError(
            f"nobody holds a lease for the consumer {consumer!r}",
            where=where,
            hint="see `instep status` for who does; without lease_s nobody does",
        )
    return _state(connection.execute(_READ, {"consumer": consumer}).one())


def _state(row: Row[tuple[object, ...]]) -> LeaseState:
    return LeaseState(
        epoch=row.epoch,
        beat=row.beat,
        holder=row.holder,
        lease_s=row.lease_s,
        asked=bool(row.asked),
    )
