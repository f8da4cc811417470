"""Numbered entities in virtual time: a provider that numbers its messages, a link that loses,
repeats and reorders them, a store that fails, a consumer that crashes at any await. One seed makes
all of it.

First everything goes wrong for a while; then all is healed, and the store must agree with the
provider entity by entity. Meanwhile it never goes back, never lacks what lives, and confirms only
what is durable, or will be before the store says that it is aligned.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, cast

from instep import ConsumerSettings
from instep.errors import SweepHeldError
from instep.model.batches import Batch
from instep.model.streams import SweepEstimate
from instep.runtime.streams.sequenced_feed import SequencedFeedSettings
from tests.instep.runtime.streams.numbered_entities_kit import (
    Answer,
    Content,
    Fault,
    Notification,
    NumberedSource,
    Provider,
    Session,
)
from tests.simulation.alignment.options import FaultOptions
from tests.simulation.alignment.process import Process, consumer_settings, work_here
from tests.simulation.alignment.world import T0_S
from tests.simulation.alignment.world import World as AlignmentWorld
from tests.simulation.database_files import new_database
from tests.simulation.loop import VirtualLoop
from tests.simulation.sequenced_feed.checks import NumberedChecks, Stored, UnkeptPromiseError

__all__ = ["NumberedFailedError", "World", "simulate_numbered"]

_HEAL_WITHIN_S: Final = 400.0
_LINES_KEPT: Final = 60
_BREAKING: Final = frozenset(Fault) - {Fault.COPY, Fault.ANSWER_LOST, Fault.SWAP}
"""What ends a session; the others cost nothing."""


class NumberedFailedError(AssertionError):
    """A promise was broken; the seed is in the text."""


@dataclass(frozen=True)
class Options:
    """What a seed makes. Chances are by message or transaction, periods are virtual seconds."""

    faults: dict[Fault, float]
    store: FaultOptions
    feed: SequencedFeedSettings
    latency_s: float
    renews: bool
    snapshot_takes_s: float
    change_every_s: float
    duration_s: float
    events: dict[str, float]
    """Mean time between the events of this name."""

    @property
    def store_fails(self) -> bool:
        """Whether a connection may end because of the store, at any time."""
        return self.store.locked_p > 0 or "store_down" in self.events

    @classmethod
    def drawn(cls, rng: random.Random) -> Options:
        share = rng.choice((0.0, 0.15, 0.4))
        most = rng.choice((0.01, 0.05, 0.2))
        latency_s = rng.choice((0.005, 0.05))
        limit = rng.choice((4, 60, 10_000))
        failing = rng.random() < share
        events = {
            name: rng.uniform(4, 30)
            for name in ("crash", "restart", "snapshot", "refuse", "store_down", "clock", "burst")
            if rng.random() < share
        }
        return cls(
            {fault: rng.uniform(0, most) for fault in Fault if rng.random() < 2 * share},
            FaultOptions(
                store_latency_s=rng.choice((0.002, 0.05, 0.3)),
                locked_p=rng.uniform(0, 0.05) if failing else 0.0,
                disk_full_p=rng.uniform(0, 0.05) if failing else 0.0,
                serialization_p=rng.uniform(0, 0.05) if failing else 0.0,
                outcome_unknown_p=rng.uniform(0, 0.05) if failing else 0.0,
            ),
            SequencedFeedSettings(
                reorder_window_s=rng.choice((0.5, 3.0)),
                limit_messages=limit,
                answer_within_s=rng.choice((0.5, 10.0)),
                chunk_records=rng.choice((1, 5, 1_000)),
                apply_ahead=rng.random() < 0.5,
                confirm_while_baselining=rng.random() < 0.3,
            ),
            latency_s,
            rng.random() < 0.5,
            rng.choice((0.0, 0.5, 4.0)),
            rng.choice((0.15, 0.6, 3.0)),
            rng.uniform(8, 30),
            events,
        )


class World:
    """All that is outside the consumer. The store and the process of the simulated alignment live
    in it, too: it has what they use of theirs.
    """

    command = "--sequenced-feed-seed"
    checks_type = NumberedChecks
    source_type = NumberedSource
    counts_baselines = True
    """Whether a baseline that nothing excuses is a fault."""

    def __init__(self, seed: int, loop: VirtualLoop, report: Callable[[str], None] | None) -> None:
        self.rng = random.Random(f"numbered {seed}")
        self.loop = loop
        self.options = Options.drawn(self.rng)
        self.settings: ConsumerSettings = consumer_settings(self.rng)
        self.path = new_database()
        self.store_checks = self.checks_type(
            self.path, confirms_early=self.options.feed.confirm_while_baselining
        )
        self.provider = Provider(
            random.Random(self.rng.getrandbits(64)), latency_s=self.options.latency_s
        )
        self.provider.faults = self.options.faults
        self.provider.snapshot_takes_s = self.options.snapshot_takes_s
        self.provider.renews = self.options.renews
        self.provider.injected = self._injected
        self.provider.answered = self._answered
        self.excused: set[int] = set()
        """Sessions in which something happened after which a new baseline is no surprise."""
        self.failed_baselines = 0
        """How many baselines at most have begun in the store and then failed."""
        self.skew_s = 0.0
        """How far somebody has set the clock that stamps what arrives."""
        self.source: NumberedSource | None = None
        self.process: Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._error: BaseException | None = None
        self._broken: asyncio.Future[None] | None = None
        self._report = report
        self._digest = blake2b(digest_size=8)
        self.lines: deque[str] = deque(maxlen=_LINES_KEPT)
        # What the store and the process of the other simulation look at:
        self.faults = self.options.store
        self.store_down = False
        self.checks = self

    # -- for the store and the process -----------------------------------------------------------

    def consumer_now(self) -> float:
        return T0_S + self.loop.time()

    def stamping_now(self) -> float:
        return self.consumer_now() + self.skew_s

    def store_stall_s(self) -> float:
        return 0.0

    def counted(self, attempt: int, estimate: SweepEstimate) -> None:
        """A sweep was estimated."""

    def after_commit(self, batch: Batch, failed: BaseException | None) -> None:
        """A transaction is over."""
        position = batch.position
        self.store_checks.after_transaction(failed=failed is not None)
        self.trace(
            f"commit {position.ordinal} {position.phase} attempt={position.attempt} "
            f"{position.token} records={len(batch.records)} {failed or ''}"
        )

    def task_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.broke(error)

    # -- what is reported --------------------------------------------------------------------------

    def note_exception(self, _loop: object, context: dict[str, Any]) -> None:
        self.broke(context.get("exception") or AssertionError(context["message"]))

    def broke(self, error: BaseException) -> None:
        if self._error is None:
            self.trace(f"broken: {error!r}")
        self._error = self._error or error
        if self._broken is not None and not self._broken.done():
            self._broken.set_result(None)

    def raise_broken(self) -> None:
        if self._error is not None:
            raise self._error

    def trace(self, line: str) -> None:
        text = f"{self.loop.time():10.3f} {line}"
        self._digest.update(text.encode())
        self.lines.append(text)
        if self._report is not None:
            self._report(text)

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def _injected(self, fault: Fault, session: Session) -> None:
        if fault in _BREAKING:
            self.excused.add(session.ordinal)
        self.trace(f"{fault} at {session.number}")

    def _answered(self, session: Session, sent: Notification, answer: Answer) -> None:
        content = sent.content
        self.trace(f"message {sent.number} of {content.version}: {answer}")
        if answer is Answer.CONFIRMED:
            try:
                for key, value, version in content.statements:
                    self.store_checks.after_confirmation(key, (content.incarnation, version), value)
            except UnkeptPromiseError as error:
                self.broke(error)
        elif answer is Answer.FAULT:
            # What is refused for want of room may leave a gap open for longer than the window.
            self.excused.add(session.ordinal)

    def _excuse(self) -> None:
        """Something happened to whatever session is open."""
        self.excused.add(self.provider.opened)

    # -- what happens ----------------------------------------------------------------------------

    def begin(self) -> None:
        keys = [f"n{n}" for n in range(self.rng.randint(1, 12))]
        self._state(self.provider.change(*keys))
        self.start()
        self._go(self._change(keys))
        for name, every_s in self.options.events.items():
            self._go(self._repeat(every_s, getattr(self, f"_{name}")))

    def start(self) -> None:
        def make_source() -> NumberedSource:
            self.source = self.source_type(
                self.provider, self.options.feed, clock=self.stamping_now, page_records=3
            )
            return self.source

        world = cast("AlignmentWorld", self)
        self.process = Process(world, self.path, self.settings, make_source)

    def _go(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(self.task_ended)
        self._tasks.append(task)

    async def _repeat(self, every_s: float, event: Callable[[], Awaitable[None]]) -> None:
        rng = random.Random(self.rng.getrandbits(64))
        while True:
            await asyncio.sleep(rng.expovariate(1 / every_s))
            self.trace(event.__name__.strip("_"))
            await event()

    def _state(self, content: Content) -> None:
        state = (content.incarnation, content.version)
        for statement in content.statements:
            self.store_checks.stated(statement.key, state, statement.value)

    async def _change(self, keys: list[str]) -> None:
        rng = random.Random(self.rng.getrandbits(64))
        while True:
            await asyncio.sleep(rng.expovariate(1 / self.options.change_every_s))
            some = rng.sample(keys, rng.randint(0, min(3, len(keys))))
            make = self.provider.delete if rng.random() < 0.2 else self.provider.change
            self._state(make(*some))

    async def _crash(self) -> None:
        turned = asyncio.Event()
        self.loop.after_turns(self.rng.randint(1, 60), turned.set)
        await turned.wait()
        assert self.process is not None
        await self.process.ended() if self.process.task.done() else None
        self._excuse()
        await self.process.crash()
        await asyncio.sleep(self.rng.uniform(0, 5))
        self.start()

    async def _restart(self) -> None:
        self._excuse()
        self.provider.restart()
        state = (self.provider.incarnation, self.provider.version)
        for key, (value, _) in self.provider.entities.items():
            self.store_checks.stated(key, state, value)

    async def _snapshot(self) -> None:
        self._excuse()
        self.provider.snapshot_fails = self.rng.randint(1, 2)
        if self.options.feed.confirm_while_baselining:
            self.failed_baselines += self.provider.snapshot_fails
        for session in list(self.provider.sessions):
            session.end()

    async def _refuse(self) -> None:
        self._excuse()
        if self.source is not None:
            self.source.refused = self.rng.randint(1, 2)
        for session in list(self.provider.sessions):
            session.end()

    async def _store_down(self) -> None:
        self.store_down = True
        await asyncio.sleep(self.rng.uniform(0, 10))
        self.store_down = False

    async def _clock(self) -> None:
        """Set the clock to another time."""
        self.skew_s += self.rng.uniform(-3_600, 3_600)

    async def _burst(self) -> None:
        keys = list(self.provider.entities)
        for _ in range(self.rng.randint(5, 25)):
            if keys:
                self._state(self.provider.change(self.rng.choice(keys)))

    async def heal(self) -> None:
        """End every fault; whatever runs goes on."""
        for task in self._tasks[1:]:
            task.cancel()
        await asyncio.gather(*self._tasks[1:], return_exceptions=True)
        self.provider.faults = {}
        self.provider.snapshot_fails = 0
        self.faults = FaultOptions()
        self.store_down = False
        if self.source is not None:
            self.source.refused = 0
        if self.process is None or self.process.crashed:
            self.start()
        self.trace("healed")

    async def converge(self) -> None:
        """The store comes to agree with a provider that goes on for a while, then rests."""
        # What was lost last shows only by what comes after it.
        await asyncio.sleep(5)
        self._state(self.provider.change("last"))
        self._tasks[0].cancel()
        try:
            async with asyncio.timeout(_HEAL_WITHIN_S):
                while not await self._agrees():
                    await asyncio.sleep(2.0)
        except TimeoutError:
            self.raise_broken()
            raise UnkeptPromiseError(
                f"not equal {_HEAL_WITHIN_S:g} s after all was healed: {self._difference()}"
            ) from None
        attempts = self.store_checks.attempt
        reasons = len(self.excused) + self.failed_baselines
        counted = self.counts_baselines and not self.options.store_fails
        if counted and attempts > 1 + reasons:
            raise UnkeptPromiseError(f"{attempts} baselines, {reasons} with a reason")

    async def _agrees(self) -> bool:
        self.raise_broken()
        consumer = self.process.consumer if self.process else None
        if consumer is None or not consumer.health().streams:
            return False
        try:
            await consumer.aligned()
        except SweepHeldError:
            for stream in consumer.health().streams:
                consumer.release_sweep(stream.stream)
            return False
        return not self._difference()

    def _difference(self) -> str:
        incarnation = self.provider.incarnation
        entities = self.provider.entities.items()
        truth = {key: Stored((incarnation, at), value) for key, (value, at) in entities}
        return self.store_checks.difference(truth)

    async def run(self) -> None:
        self._broken = asyncio.get_running_loop().create_future()
        try:
            self.begin()
            await asyncio.wait([self._broken], timeout=self.options.duration_s)
            self.raise_broken()
            await self.heal()
            await self.converge()
            self.raise_broken()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if self.process is not None:
                await self.process.crash()


def simulate_numbered(
    seed: int, report: Callable[[str], None] | None = None, world_type: type[World] = World
) -> str:
    """Run one seed; what happened. Raises `NumberedFailedError`."""
    loop = VirtualLoop()
    world = world_type(seed, loop, report)
    work_here(cast("AlignmentWorld", world))
    loop.set_exception_handler(world.note_exception)
    checks = world.store_checks
    try:
        loop.run_until_complete(world.run())
    except Exception as error:
        lines = "\n".join(world.lines)
        raise NumberedFailedError(
            f"seed {seed}: {error!r}\nreplay it with: python -m tests.simulation "
            f"{world.command} {seed}\n{world.options}\nthe last events:\n{lines}"
        ) from error
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.wait(left) if left else asyncio.sleep(0))
        loop.close()
        checks.close()
    return (
        f"seed {seed}: {loop.time():,.0f} virtual s, {checks.commits} commits, "
        f"{checks.confirmed} confirmed, {world.provider.opened} sessions, {world.digest}"
    )
