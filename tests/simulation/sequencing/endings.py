"""Numbers that end in every way, with kills and a full dead letter, in virtual time (S13).

Senders lose, cancel, fill, let expire and close; gaps are given up or fail their sequence; an
operator gives up, resumes, resets, replays. At the end every message that was accepted is in one
place, and the record contradicts neither the places nor what the senders were told. The oracle
reads tables: it imports nothing of what it judges but the reader of the record.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from contextlib import closing, suppress
from typing import Any

import msgspec

from instep import IntakeSettings, Message, SequencerSettings
from instep.errors import InstepError
from instep.model import Ranges
from instep.ports import Intake, ReceiptOutcome
from instep.sequencing import (
    Cancel,
    Close,
    FaultPolicy,
    Fill,
    GapPolicy,
    IncompleteBehavior,
    LastResort,
    RecordedEnd,
    Terminate,
)
from instep_sql import SqlStore
from tests.simulation.database_files import CONSUMER
from tests.simulation.loop import VirtualLoop
from tests.simulation.sequencing.process import Process
from tests.simulation.sequencing.simulation import (
    WATCHED,
    SequencesFailedError,
    World,
    crash_at_times,
)

__all__ = ["simulate_endings"]

_TOP = 12
_ACTIONS = ("give-up", "resume", "reset", "close", "replay")


class EndingsWorld(World):
    """Sequences whose numbers end in every way."""

    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        super().__init__(seed, loop)
        rng = self.rng
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
        intake = msgspec.structs.asdict(self.settings.intake)
        intake |= {"limit_dead_messages": rng.choice((5, 1_000)), "poll_s": 0.5}
        intake |= {"limit_dead_messages_per_sender": rng.choice((3, 100))}
        self.settings = msgspec.structs.replace(self.settings, intake=IntakeSettings(**intake))
        self.senders = [
            EndingsSender(self, f"s{place}")  # type: ignore[misc]
            for place in range(rng.randint(1, 3))
        ]

    def rows(self, query: str, *given: Any) -> list[Any]:
        with closing(sqlite3.connect(self.path)) as connection:
            connection.row_factory = sqlite3.Row
            rows = connection.execute(query, given).fetchall()
            connection.commit()
            return rows

    async def operate(self) -> None:
        """What an operator asks for, whatever the sequences are like."""
        while not self.over:
            await asyncio.sleep(self.rng.uniform(5, 40))
            action = self.rng.choice(_ACTIONS)
            sequences = self.rows("SELECT id FROM instep_sequence")
            dead = self.rows("SELECT id, sequence_no FROM instep_inbox WHERE stage = 3")
            if not sequences or self.over:
                continue
            no, number = self.rng.choice(sequences)["id"], None
            if action == "replay":
                if not dead:
                    continue
                one = self.rng.choice(dead)
                no, number = one["sequence_no"], one["id"]
            ask = "INSERT INTO instep_sequence_request (sequence_no, action, number)"
            self.rows(f"{ask} VALUES (?, ?, ?)", no, action, number)


class EndingsSender:
    """Sends a few numbers again and again, each time as if it were the first."""

    def __init__(self, world: EndingsWorld, scope: str) -> None:
        self.world, self.scope = world, scope
        self.accepted: list[tuple[int, str]] = []
        """Numbers and bodies that were answered as durable."""
        self.renewed: dict[int, int] = {}
        self.sent = 0

    async def run(self) -> None:
        rng = self.world.rng
        while not self.world.over:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(rng.randint(1, 4)):
                    tasks.create_task(self._send(rng.randint(1, _TOP)))
            await self._ask()
            await asyncio.sleep(rng.uniform(0.1, 4.0))

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
                self.accepted.append((number, body))

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

    def _intake(self) -> Intake | None:
        return self.world.process.intake if self.world.process else None


async def _story(world: EndingsWorld) -> None:
    with closing(sqlite3.connect(world.path)) as connection:
        connection.executescript(WATCHED)
    world.process = Process(world)
    work = asyncio.gather(*[sender.run() for sender in world.senders], world.operate())
    await crash_at_times(world, Process)
    await asyncio.sleep(world.rng.uniform(5, 120))
    world.over = True
    await work
    # What is asked for and owed is done; nothing else comes.
    await asyncio.sleep(60)
    await world.process.crash()


async def _records(world: EndingsWorld) -> dict[str, list[RecordedEnd]]:
    """What the store says of each number, as a command reads it after the process has ended."""
    async with SqlStore(f"sqlite:///{world.path}") as store:
        await store.open("another")
        return {
            sender.scope: await store.reader.numbers(CONSUMER, sender.scope)
            for sender in world.senders
        }


def _judge(world: EndingsWorld, records: dict[str, list[RecordedEnd]]) -> None:
    places = Counter[tuple[str, str]]()
    delivered = "SELECT body FROM effects" if world.handled else "SELECT body FROM instep_message"
    for row in world.rows(delivered):
        places[_text(row["body"]), "delivered"] += 1
    for row in world.rows("SELECT body, stage FROM instep_inbox"):
        places[_text(row["body"]), ("held", "waiting", "failed", "dead")[row["stage"]]] += 1
    found: dict[str, list[str]] = {}
    for (body, place), count in places.items():
        found.setdefault(body, []).extend([place] * count)
    for body, where in found.items():
        if len(where) > 1:
            raise SequencesFailedError(f"{body!r} is in {where}")
    trims = world.sequencing.incomplete is IncompleteBehavior.DISCARD
    for sender in world.senders:
        assert isinstance(sender, EndingsSender)
        for _, body in sender.accepted:
            if body not in found and not trims:
                raise SequencesFailedError(f"{body!r} was accepted, and is in no table")
        _judge_record(world, sender, found, records[sender.scope])


def _judge_record(  # noqa: C901, PLR0912 - one rule a line
    world: EndingsWorld,
    sender: EndingsSender,
    found: dict[str, list[str]],
    record: list[RecordedEnd],
) -> None:
    scope = sender.scope
    rows = world.rows("SELECT state FROM instep_sequence WHERE scope = ? AND state <> ''", scope)
    state: dict[str, Any] = msgspec.json.decode(rows[0]["state"]) if rows else {}
    epoch = state.get("epoch", 0)
    began_anew = world.rows("SELECT id FROM instep_number_end WHERE forgotten_at_us > 0")
    if epoch or began_anew or not state:
        # The numbers were used more than once: of bodies alone it is not known of which count.
        return
    by_number: dict[int, list[str]] = {}
    for body, where in found.items():
        if body.startswith(f"{scope} "):
            by_number.setdefault(int(body.split()[1]), []).extend(where)
    ends: dict[int, RecordedEnd] = {}
    for one in record:
        for number in range(one.low, one.high + 1):
            if number in ends:
                raise SequencesFailedError(f"{scope}: {number} has two ends")
            ends[number] = one
    for number in range(1, state["next_number"]):
        if number not in ends:
            raise SequencesFailedError(f"{scope}: {number} is passed, and has no end")
    gone = world.sequencing.incomplete is IncompleteBehavior.DISCARD
    for number, one in ends.items():
        where, end = by_number.get(number, []), one.end.value
        there = "delivered" in where or "waiting" in where or "failed" in where
        told = f"{scope}: {number} is {end} ({one.reason}), and its bodies are {where}"
        if (end == "delivered") != there:
            raise SequencesFailedError(told)
        if end in ("expired", "failed") and one.at_us and "held" in where:
            raise SequencesFailedError(told)
        if end == "failed" and "dead" not in where and not gone:
            raise SequencesFailedError(told)
        if end == "lost" and where:
            raise SequencesFailedError(told)
    pairs = zip(*state.get("received", [[], []]), strict=True)
    for number in Ranges.of(*[(low, high) for low, high in pairs]):
        held = "held" in by_number.get(number, [])
        # An acknowledgement stands for a message that is kept, or for a number that is filled.
        if not held and (number not in ends or ends[number].end.value in ("lost", "cancelled")):
            raise SequencesFailedError(f"{scope}: {number} is acknowledged: {ends.get(number)}")


def _text(body: bytes | str) -> str:
    return body.decode() if isinstance(body, bytes) else body


def simulate_endings(seed: int) -> str:
    """Run one seed; what happened. Raises `SequencesFailedError`."""
    loop = VirtualLoop()
    try:
        world = EndingsWorld(seed, loop)
        loop.run_until_complete(_story(world))
        _judge(world, asyncio.run(_records(world)))
        totals = world.rows("SELECT ending, sum(numbers) AS n FROM instep_number_total GROUP BY 1")
        ended = ", ".join(f"{row['n']} {row['ending']}" for row in totals)
        return f"seed {seed}: {world.crashes} crashes, {ended}"
    except Exception as error:
        raise SequencesFailedError(f"seed {seed}: {error!r}") from error
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.wait(left) if left else asyncio.sleep(0))
        loop.close()
