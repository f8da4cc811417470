"""Numbers that end in every way, with kills and a full dead letter, in virtual time (S13).

Senders lose, cancel, fill, let expire and close; gaps are given up or fail their sequence; an
operator gives up, resumes, resets, closes, replays and drops. Then
`tests.simulation.sequencing.ends_oracle` judges the tables, the record and what senders were told.
"""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
from contextlib import closing, suppress
from typing import Any

import msgspec

from instep import IntakeSettings, Message, SequencerSettings
from instep.errors import InstepError, SourceError
from instep.ports import Intake, ReceiptOutcome
from instep.sequencing import (
    Cancel,
    Close,
    FaultPolicy,
    Fill,
    GapPolicy,
    IncompleteBehavior,
    LastResort,
    ReportFault,
    SequenceEffect,
    Terminate,
)
from instep_sql import SqlStore
from tests.simulation.database_files import CONSUMER
from tests.simulation.loop import VirtualLoop
from tests.simulation.sequencing.ends_oracle import Told, judge
from tests.simulation.sequencing.process import Process
from tests.simulation.sequencing.simulation import Faults, SequencesFailedError, World

__all__ = ["EndingsWorld", "simulate_endings"]

_TOP = 12
_ACTIONS = ("give-up", "resume", "reset", "close", "replay", "drop")
_ASK = "INSERT INTO instep_sequence_request (sequence_no, action, number) VALUES (?, ?, ?)"
_DEAD = "SELECT id, sequence_no, CAST(body AS TEXT) AS body FROM instep_inbox WHERE stage = 3"
_DROP = "DELETE FROM instep_inbox WHERE id = ? AND stage = 3 RETURNING id"


class EndingsWorld(World):
    """Sequences whose numbers end in every way."""

    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        super().__init__(seed, loop)
        rng = self.rng
        # The operator of this world waits for the transaction of each handler.
        self.faults.handler_slow_p = 0.0
        self.faults.expiry_p, self.faults.loss_p = rng.choice((0, 0.2)), rng.choice((0, 0.3))
        self.faults.cancel_p, self.faults.fill_p = rng.choice((0, 0.2)), rng.choice((0, 0.2))
        self.sequencing = SequencerSettings(
            gap_policy=rng.choice((GapPolicy.WAIT, GapPolicy.SKIP, GapPolicy.FAIL)),
            gap_deadline_s=rng.choice((1, 5, 20)),
            gap_repeat_s=1,
            gap_attempts=rng.choice((1, 5)),
            gap_last_resort=rng.choice((LastResort.SKIP, LastResort.FAIL)),
            fault_policy=rng.choice(list(FaultPolicy)),
            incomplete=rng.choice(list(IncompleteBehavior)),
            limit_messages=rng.choice((3, 1_000)),
            keep_ended_s=rng.choice((10, 1_000)),
            keep_copies_s=0,
        )
        self.limits = {
            "limit_dead_messages": rng.choice((5, 1_000)),
            "limit_dead_messages_per_sender": rng.choice((3, 100)),
        }
        intake = msgspec.structs.asdict(self.settings.intake) | self.limits | {"poll_s": 4.0}
        self.settings = msgspec.structs.replace(self.settings, intake=IntakeSettings(**intake))
        self.reachable = rng.random() < 0.8
        """Whether there is a way to tell the senders of a fault."""
        self.told = Told()
        self.parties = [EndingsSender(self, f"s{place}") for place in range(rng.randint(1, 3))]
        self.senders = []

    async def rows(self, query: str, *given: Any) -> list[sqlite3.Row]:
        """What another process reads and writes. It waits while a handler has the transaction."""
        while (rows := self._rows_now(query, given)) is None:
            await asyncio.sleep(0.01)
        return rows

    def _rows_now(self, query: str, given: tuple[Any, ...]) -> list[sqlite3.Row] | None:
        with closing(sqlite3.connect(self.path, timeout=0)) as connection:
            connection.row_factory = sqlite3.Row
            try:
                rows = connection.execute(query, given).fetchall()
                connection.commit()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                    raise
                return None
            return rows

    async def operate(self) -> None:
        """What an operator asks for, whatever the sequences are like."""
        rng = random.Random(self.rng.getrandbits(64))
        while not self.over:
            await asyncio.sleep(rng.uniform(3, 20))
            action = rng.choice(_ACTIONS)
            if action in ("replay", "drop"):
                dead = await self.rows(_DEAD)
                if dead:
                    await self._act_on_dead(action, rng.choice(dead))
                continue
            sequences = await self.rows("SELECT id FROM instep_sequence WHERE state <> ''")
            if sequences:
                await self.rows(_ASK, rng.choice(sequences)["id"], action, None)

    async def _act_on_dead(self, action: str, one: sqlite3.Row) -> None:
        """Deliver or forget a message of the dead letter, as the commands ask for it."""
        if action == "replay":
            await self.rows(_ASK, one["sequence_no"], "replay", one["id"])
        elif await self.rows(_DROP, one["id"]):
            self.told.dropped.add(one["body"])
            await self.rows(_ASK, one["sequence_no"], "recount", None)


class EndingsProcess(Process):
    """Notes which faults the senders got."""

    world: EndingsWorld

    async def carry_out(self, scope: str, effect: SequenceEffect) -> bool | None:  # type: ignore[override]
        rng, world = self.world.rng, self.world
        await asyncio.sleep(rng.uniform(0, 0.5))
        if rng.random() < world.faults.report_fails_p:
            raise SourceError("made by the simulation")
        if isinstance(effect, ReportFault):
            if not world.reachable:
                return False
            world.told.faults |= {
                (scope, number) for low, high in effect.faulted for number in range(low, high + 1)
            }
        return None


class EndingsSender:
    """Sends a few numbers again and again, each time as if it were the first."""

    def __init__(self, world: EndingsWorld, scope: str) -> None:
        self.world, self.scope = world, scope
        self.sent = 0

    async def run(self) -> None:
        rng = self.world.rng
        while not self.world.over:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(rng.randint(1, 4)):
                    tasks.create_task(self._send(rng.randint(1, _TOP)))
            await self._ask()
            await asyncio.sleep(rng.uniform(0.1, 6.0))

    async def _send(self, number: int) -> None:
        world, rng, faults = self.world, self.world.rng, self.world.faults
        await asyncio.sleep(rng.uniform(0.001, 1.0))
        intake = self._intake()
        if intake is None or rng.random() < faults.loss_p:
            return
        self.sent += 1
        body, expires_at_us = f"{self.scope} {number} {self.sent}", 0
        if rng.random() < faults.expiry_p:
            expires_at_us = int((world.now() + rng.uniform(-0.5, 9.0)) * 1e6)
        message = Message(
            scope=self.scope,
            number=number,
            id=f"{self.sent}",
            body=body.encode(),
            received_at_us=int(world.now() * 1e6),
            expires_at_us=expires_at_us,
        )
        with suppress(InstepError):
            receipt = await intake.receive(message)
            if receipt.outcome is ReceiptOutcome.ACCEPTED:
                world.told.accepted.add(body)

    async def _ask(self) -> None:
        rng, faults, intake = self.world.rng, self.world.faults, self._intake()
        if intake is None:
            return
        low = rng.randint(1, _TOP)
        pair = (low, min(_TOP, low + rng.randint(0, 2)))
        with suppress(InstepError):
            if rng.random() < faults.cancel_p:
                await intake.apply(self.scope, [Cancel([pair])])
            if rng.random() < faults.fill_p:
                await intake.apply(self.scope, [Fill([pair])])
            if rng.random() < 0.02:
                await intake.apply(self.scope, [rng.choice((Close(), Terminate()))])

    async def learn(self) -> None:
        """Ask, at the end, what is acknowledged and what is cancelled."""
        intake = self._intake()
        assert intake is not None
        claims = await intake.claims(self.scope)
        if claims is not None:
            self.world.told.acknowledged[self.scope] = set(claims.acknowledged())
            self.world.told.cancelled[self.scope] = set(claims.cancelled())

    def _intake(self) -> Intake | None:
        return self.world.process.intake if self.world.process else None


async def _story(world: EndingsWorld) -> None:
    with closing(sqlite3.connect(world.path)) as connection:
        connection.execute("CREATE TABLE effects (scope TEXT, number INTEGER, body TEXT)")
    rng = world.rng
    world.process = EndingsProcess(world)
    work = asyncio.gather(*[party.run() for party in world.parties], world.operate())
    for _ in range(rng.randint(0, 4)):
        turned = asyncio.Event()
        world.loop.after_turns(rng.randint(1, 1_000), turned.set)
        with suppress(TimeoutError):
            async with asyncio.timeout(30):
                await turned.wait()
        await world.process.crash()
        world.crashes += 1
        await asyncio.sleep(rng.uniform(0, 10))
        world.process = EndingsProcess(world)
    await asyncio.sleep(rng.uniform(3, 20))
    # What is asked for and owed is done; nothing else comes.
    world.over, world.faults = True, Faults(0, 0, 0, 0, 0, 0, 0, 0, 0)
    await work
    await asyncio.sleep(12)
    while await world.rows("SELECT 1 FROM instep_obligation"):
        # What could not be told before is tried again.
        await asyncio.sleep(1)
    for party in world.parties:
        await party.learn()
    await world.process.crash()


async def _records(world: EndingsWorld) -> dict[str, list[dict[str, Any]]]:
    """What the store says of each number, as a command reads it after the process has ended."""
    async with SqlStore(f"sqlite:///{world.path}") as store:
        await store.open("another")
        return {
            party.scope: json.loads(
                msgspec.json.encode(await store.reader.numbers(CONSUMER, party.scope))
            )
            for party in world.parties
        }


def simulate_endings(seed: int) -> str:
    """Run one seed; what happened. Raises `SequencesFailedError`."""
    loop = VirtualLoop()
    try:
        world = EndingsWorld(seed, loop)
        loop.run_until_complete(_story(world))
        records = asyncio.run(_records(world))
        totals = judge(
            world.path,
            records,
            world.told,
            limit=world.limits["limit_dead_messages"],
            limit_each=world.limits["limit_dead_messages_per_sender"],
            discards=world.sequencing.incomplete is IncompleteBehavior.DISCARD,
        )
        ended = ", ".join(f"{count} {end}" for end, count in sorted(totals.items()))
        return f"seed {seed}: {world.crashes} crashes, {ended}"
    except Exception as error:
        raise SequencesFailedError(f"seed {seed}: {error!r}") from error
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.wait(left) if left else asyncio.sleep(0))
        loop.close()
