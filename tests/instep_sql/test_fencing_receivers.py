"""Receivers that share a lease: one that lost it writes no row and acknowledges nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from instep import InstepError, Message, Receiver
from instep.coordination.lease import Role
from instep.ports import Receipt
from instep.ports.listener import Intake
from instep.ports.message_store import HandlerConnection
from instep_sql import SqlStore
from tests.instep.runtime.messages.intake_kit import (
    ACCEPTED,
    DUPLICATE,
    Speaker,
    claims,
    message,
    outcomes,
    quick,
    receive_together,
    until,
)

pytestmark = pytest.mark.asyncio

LEASE_S = 3.0


class Contender:
    """A receiver of a pair, its listener, and what its handler was given."""

    def __init__(self, url: str, name: str, *, handled: bool = False) -> None:
        self.speaker = Speaker()
        self.store = SqlStore(url, lease_s=LEASE_S, holder=name)
        self.handled: list[int] = []
        self.entered = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()
        self.receiver = Receiver(
            "east", self.speaker, self.store, quick(), handler=self._handle if handled else None
        )

    async def _handle(self, message: Message, connection: HandlerConnection) -> None:
        self.entered.set()
        await self.go.wait()
        await connection.execute("CREATE TABLE IF NOT EXISTS effects (n INTEGER)")
        await connection.execute("INSERT INTO effects VALUES (:n)", {"n": message.number})
        self.handled.append(message.number)

    @property
    def intake(self) -> Intake:
        assert self.speaker.intake is not None
        return self.speaker.intake

    @property
    def role(self) -> Role | None:
        pair = self.receiver.health().pair
        return pair.role if pair else None

    async def receives(self) -> None:
        async def there() -> bool:
            return self.role is Role.ACTIVE and bool(self.speaker.address)

        await until(there, 30)

    async def rows(self, query: str) -> list[tuple[Any, ...]]:
        return await self.store.reader.database.run(
            lambda connection: [tuple(row) for row in connection.exec_driver_sql(query)]
        )


async def superseded(by: SqlStore) -> None:
    """The lease is taken while its holder, as far as it knows, has it."""
    await by.open("east")
    assert by.lease is not None
    while await by.lease.acquire(await by.lease.read()) is None:
        pass


async def test_a_zombie_neither_writes_nor_answers(database: str) -> None:
    a = Contender(database, "a")
    async with a.receiver, SqlStore(database, lease_s=LEASE_S, holder="b") as b:
        await a.receives()
        zombie = a.intake
        assert outcomes([await zombie.receive(message(1))]) == [ACCEPTED]
        await superseded(b)
        answers: list[Receipt | InstepError] = []
        waiting = [asyncio.create_task(zombie.receive(message(n))) for n in (1, 2, 4)]
        zombie.submit(message(3), answers.append)
        # Not even what was received before: another receiver may have been asked to forget it.
        assert all(
            isinstance(one, InstepError)
            for one in await asyncio.gather(*waiting, return_exceptions=True)
        )
        # The commit found the lease gone, or the loss was noticed before and nothing is committed.
        await until(lambda: asyncio.sleep(0, answers))
        assert isinstance(answers[0], InstepError)
        assert await a.rows("SELECT number FROM instep_message") == [(1,)]
        assert await a.rows("SELECT number FROM instep_inbox") == []

        async def stands_by() -> bool:
            return a.role is Role.STANDBY and a.receiver.address == ""

        await until(stands_by)
        # Nor does what still has the old intake in its hands.
        with pytest.raises((InstepError, TimeoutError)):
            async with asyncio.timeout(1):
                await zombie.receive(message(2))
        assert await a.rows("SELECT number FROM instep_message") == [(1,)]


async def test_a_zombies_handler_has_no_effect(database: str) -> None:
    a = Contender(database, "a", handled=True)
    async with a.receiver, SqlStore(database, lease_s=LEASE_S, holder="b") as b:
        await a.receives()
        await a.intake.receive(message(1))
        await until(lambda: asyncio.sleep(0, a.handled))
        await superseded(b)
        # The message was received before; its handler is called with the next look.
        await b._database.run(
            lambda connection: connection.exec_driver_sql(
                "UPDATE instep_sequence SET deliver_at_us = 1"
            )
        )

        async def stands_by() -> bool:
            return a.role is Role.STANDBY

        await until(stands_by, 30)
        assert a.handled == [1]
        assert await a.rows("SELECT n FROM effects") == [(1,)]


async def test_the_other_takes_over_and_goes_on_in_order(database: str) -> None:
    a, b = Contender(database, "a", handled=True), Contender(database, "b", handled=True)
    async with a.receiver:
        await a.receives()
        await receive_together(a.intake, [message(n) for n in (1, 2, 4)])
        async with b.receiver:
            assert b.receiver.address == ""
            handing_over = asyncio.create_task(a.receiver.handover())
            await b.receives()
            await handing_over
            assert a.receiver.address == ""
            assert outcomes([await b.intake.receive(message(n)) for n in (2, 3, 5)]) == [
                DUPLICATE,
                ACCEPTED,
                ACCEPTED,
            ]

            async def all_there() -> bool:
                return await b.rows("SELECT n FROM effects ORDER BY n") == [
                    (n,) for n in range(1, 6)
                ]

            await until(all_there)
            # Undone by the handover, a call is made again; its effect is there once.
            assert a.handled == [1, 2][: len(a.handled)]
            assert b.handled[-3:] == [3, 4, 5]
            assert str((await claims(b.intake)).acknowledged()) == "1-5"
