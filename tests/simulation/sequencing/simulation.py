"""Numbered sequences in virtual time: senders, a link that loses, repeats and reorders, a store
that fails, and a receiver that crashes at any await. One seed makes all of it.

First everything goes wrong for a while; then the link and the store are healed, and every message
must have been delivered once, in order, unless its sender cancelled or filled its number.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from instep import ConsumerSettings, IntakeSettings, Message, SequencerSettings
from instep.errors import InstepError
from instep.model import Ranges
from instep.ports import Intake, ReceiptOutcome
from instep.sequencing import Cancel, FaultPolicy, Fill, SequenceRefusedError, SequencerState
from tests.simulation.database_files import new_database
from tests.simulation.loop import VirtualLoop
from tests.simulation.sequencing.process import Process

__all__ = [
    "WATCHED",
    "SequencesFailedError",
    "World",
    "crash_at_times",
    "owed",
    "simulate_sequences",
]

_HEAL_WITHIN_S = 1_000.0
WATCHED = """
    CREATE TABLE effects (scope TEXT, number INTEGER, body TEXT);
    CREATE TABLE decided (number INTEGER, scope TEXT, effect TEXT);
    CREATE TRIGGER deciding AFTER INSERT ON instep_obligation
    BEGIN INSERT INTO decided VALUES (NEW.number, NEW.scope, NEW.effect); END;
"""


class SequencesFailedError(AssertionError):
    """An invariant does not hold; the seed is in the text."""


@dataclass
class Faults:
    """Chances of each thing going wrong; all 0 once healed."""

    loss_p: float
    duplicate_p: float
    expiry_p: float
    cancel_p: float
    fill_p: float
    store_fails_p: float
    outcome_unknown_p: float
    handler_fails_p: float
    report_fails_p: float
    handler_slow_p: float = 0.0
    """The handler then takes so long that several groups of arrivals wait for its transaction."""

    @classmethod
    def drawn(cls, rng: random.Random) -> Faults:
        some = rng.choice((0.02, 0.1, 0.3))
        return cls(*[rng.uniform(0, some) if rng.random() < 0.7 else 0.0 for _ in range(9)])


class World:
    """What outlives the receiver's process: the store's file, the senders, what is checked."""

    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        self.rng = random.Random(seed)
        self.loop = loop
        self.path: Path = new_database()
        self.faults = Faults.drawn(self.rng)
        self.handled = self.rng.random() < 0.5
        # Drawn apart, so that most kept seeds tell the story that they were kept for.
        self.slowness = random.Random(f"slow handler {seed}")
        self.faults.handler_slow_p = self.slowness.choice((0.0, 0.0, 0.05, 0.3))
        self.process: Process | None = None
        self.crashes = 0
        self.sent: set[tuple[str, str]] = set()
        """Scopes, and what was carried out for them, as the store keeps it."""
        self.over = False
        limit = self.rng.choice((3, 20, 1_000))
        self.sequencing = SequencerSettings(
            gap_deadline_s=5,
            gap_repeat_s=5,
            gap_attempts=100_000,
            fault_policy=FaultPolicy.WAIT,
            limit_messages=limit,
        )
        self.settings = ConsumerSettings(
            reconnect_initial_s=0.1,
            reconnect_max_s=1.0,
            intake=IntakeSettings(
                group_messages=self.rng.choice((1, 5, 100)),
                answer_within_s=3.0,
                scopes_in_memory=self.rng.choice((1, 2, 100)),
                deliver_messages=self.rng.choice((1, 3, 100)),
                handler_attempts=1_000_000,
                handler_retry_initial_s=0.1,
                handler_retry_max_s=1.0,
                effects_at_once=self.rng.choice((1, 64)),
                effects_attempts=1_000_000,
                effects_retry_max_s=1.0,
            ),
        )
        self.senders = [Sender(self, f"s{n}") for n in range(self.rng.randint(1, 4))]

    def now(self) -> float:
        return 1_700_000_000.0 + self.loop.time()

    def durable(self, scope: str) -> SequencerState | None:
        """What another process would read now."""
        with closing(sqlite3.connect(self.path)) as connection:
            query = "SELECT state FROM instep_sequence WHERE scope = ?"
            row = connection.execute(query, (scope,)).fetchone()
        return msgspec.json.decode(row[0], type=SequencerState) if row else None

    def delivered(self, scope: str) -> list[tuple[int, str]]:
        """Numbers and contents, in the order of delivery."""
        with closing(sqlite3.connect(self.path)) as connection:
            if self.handled:
                query = "SELECT number, body FROM effects WHERE scope = ? ORDER BY rowid"
            else:
                query = (
                    "SELECT number, CAST(body AS TEXT) FROM instep_message WHERE sequence_no = "
                    "(SELECT id FROM instep_sequence WHERE scope = ?) ORDER BY id"
                )
            return connection.execute(query, (scope,)).fetchall()


class Sender:
    """Sends its messages until each is acknowledged, cancelled or filled."""

    def __init__(self, world: World, scope: str) -> None:
        self.world, self.scope = world, scope
        self.numbers = Ranges.of((1, world.rng.randint(3, 25)))
        self.renewed: dict[int, int] = {}
        """Number → how often its content was replaced after a fault: the report tells."""
        self.settled = Ranges()
        self.filled = Ranges()
        """Numbers that a fill was asked for, whatever became of it."""

    async def run(self) -> None:
        rng = self.world.rng
        # What was acknowledged may expire yet, and be asked for again (S6).
        while not self.world.over:
            await self._learn()
            left = list(self.numbers - self.settled)
            rng.shuffle(left)
            async with asyncio.TaskGroup() as tasks:
                for number in left[:10]:
                    for _ in range(1 + (rng.random() < self.world.faults.duplicate_p)):
                        tasks.create_task(self._send(number))
            await self._ask_something()
            await asyncio.sleep(rng.uniform(0.1, 2.0))

    async def _learn(self) -> None:
        """Ask where we stand."""
        intake = self._intake()
        if intake is None:
            return
        with suppress(InstepError):
            claims = await intake.claims(self.scope)
            if claims is None:
                return
            settled = claims.acknowledged() | claims.cancelled()
            state = self.world.durable(self.scope)
            if settled and (state is None or (settled - state.received) - state.cancelled):
                raise SequencesFailedError(f"{self.scope} claims {settled}, durable is {state}")
            self.settled = settled

    async def _send(self, number: int) -> None:
        world, rng, faults = self.world, self.world.rng, self.world.faults
        await asyncio.sleep(rng.uniform(0.001, 1.0))
        intake = self._intake()
        if intake is None or rng.random() < faults.loss_p:
            return
        expires_at_us = 0
        if number not in self.renewed and rng.random() < faults.expiry_p:
            expires_at_us = int((world.now() + rng.uniform(-0.5, 5.0)) * 1e6)
        message = Message(
            scope=self.scope,
            number=number,
            id=f"{number}",
            body=f"{number}".encode(),
            received_at_us=int(world.now() * 1e6),
            expires_at_us=expires_at_us,
        )
        with suppress(InstepError):
            receipt = await intake.receive(message)
            if receipt.outcome is not ReceiptOutcome.REFUSED:
                state = world.durable(self.scope)
                known = state and (number in state.received or number in state.faulted)
                if not known:
                    raise SequencesFailedError(
                        f"{self.scope}: {number} was {receipt.outcome}, durable is {state}"
                    )

    async def _ask_something(self) -> None:
        rng, faults, intake = self.world.rng, self.world.faults, self._intake()
        if intake is None:
            return
        low = rng.choice(list(self.numbers))
        high = min(low + rng.randint(0, 2), self.numbers.last or low)
        with suppress(InstepError, SequenceRefusedError):
            if rng.random() < faults.cancel_p:
                await intake.apply(self.scope, [Cancel([(low, high)])])
            if rng.random() < faults.fill_p:
                self.filled.add_range(low, high)
                await intake.apply(self.scope, [Fill([(low, high)])])

    def _intake(self) -> Intake | None:
        return self.world.process.intake if self.world.process else None


_WorldT = TypeVar("_WorldT", bound="World")


async def crash_at_times(world: _WorldT, start: Callable[[_WorldT], Process]) -> None:
    """Let all go wrong for a while, with some crashes, each at any await; then heal it."""
    rng = world.rng
    for _ in range(rng.randint(0, 6)):
        turned = asyncio.Event()
        world.loop.after_turns(rng.randint(1, 1_500), turned.set)
        with suppress(TimeoutError):
            async with asyncio.timeout(60):
                await turned.wait()
        assert world.process is not None
        await world.process.crash()
        world.crashes += 1
        await asyncio.sleep(rng.uniform(0, 20))
        world.process = start(world)
    await asyncio.sleep(rng.uniform(0, 60))
    world.faults = Faults(0, 0, 0, 0, 0, 0, 0, 0, 0)


async def _story(world: World) -> None:
    with closing(sqlite3.connect(world.path)) as connection:
        connection.executescript(WATCHED)
    world.process = Process(world)
    sending = asyncio.gather(*[sender.run() for sender in world.senders])
    await crash_at_times(world, Process)
    async with asyncio.timeout(_HEAL_WITHIN_S):
        while not _all_there(world):
            await asyncio.wait({sending}, timeout=0.5)
            if sending.done():
                await sending
        world.over = True
        await sending
    await world.process.crash()


def _all_there(world: World) -> bool:
    """Whether each number was delivered, cancelled or filled. Raises for what never is right."""
    there = True
    for sender in world.senders:
        numbers = [number for number, _ in world.delivered(sender.scope)]
        if numbers != sorted(set(numbers)):
            raise SequencesFailedError(f"{sender.scope}: delivered {numbers}")
        if any(body != str(number) for number, body in world.delivered(sender.scope)):
            raise SequencesFailedError(f"{sender.scope}: contents were mixed up")
        state = world.durable(sender.scope)
        if state is None or state.next_number <= (sender.numbers.last or 0):
            there = False
            continue
        missing = sender.numbers - Ranges.of_numbers(numbers)
        there = there and not (missing - state.cancelled) - sender.filled
    return there and not owed(world)


def owed(world: World) -> bool:
    """Whether something is owed yet. Raises for what is settled and was never sent (S12)."""
    with closing(sqlite3.connect(world.path)) as connection:
        owed = {row[0] for row in connection.execute("SELECT number FROM instep_obligation")}
        decided = connection.execute("SELECT number, scope, effect FROM decided").fetchall()
    for number, scope, effect in decided:
        if number not in owed and (scope, effect) not in world.sent:
            raise SequencesFailedError(f"{scope} is owed {effect}, and was never sent it")
    return bool(owed)


def simulate_sequences(seed: int) -> str:
    """Run one seed; what happened. Raises `SequencesFailedError`."""
    loop = VirtualLoop()
    try:
        world = World(seed, loop)
        loop.run_until_complete(_story(world))
        return f"seed {seed}: {loop.time():,.0f} virtual s, {world.crashes} crashes"
    except Exception as error:
        raise SequencesFailedError(f"seed {seed}: {error!r}") from error
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.wait(left) if left else asyncio.sleep(0))
        loop.close()
