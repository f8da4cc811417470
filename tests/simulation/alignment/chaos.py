"""What happens in the safety phase: the network changes, and everything fails that the options
name.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path

from instep import ConsumerSettings, Phase
from instep.model import StreamState
from instep.model.state_machine import IllegalTransition
from tests.simulation.alignment.options import PROVIDER_STEPS_S, SKEWS_S, FaultOptions
from tests.simulation.alignment.process import Process
from tests.simulation.alignment.provider import STREAM, Instance
from tests.simulation.alignment.world import World

__all__ = ["Chaos"]

_MOST_TURNS = 60


class Chaos:
    """Starts the consumer, lets it live in a hostile world, and heals that world again."""

    def __init__(self, world: World, path: Path, settings: ConsumerSettings) -> None:
        self._world = world
        self._path = path
        self._settings = settings
        self._rng = random.Random(world.rng.getrandbits(64))
        self._quiet = 0
        self._paused = 0
        self._unreachable = 0
        self._away = asyncio.Lock()
        self.realigns_after: tuple[int, int] | None = None
        """The attempt that a realignment was asked for after, of the process that is still alive
        (`Checks.attempt`).
        """
        self._tasks: list[asyncio.Task[None]] = []
        self._ending: asyncio.Task[None] | None = None
        self.process = self._start()

    def _start(self) -> Process:
        self._world.checks.process_started()
        return Process(self._world, self._path, self._settings)

    def begin(self) -> None:
        faults = self._world.faults
        self._go(self._change())
        events: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (faults.cut_every_s, self._cut),
            (faults.half_open_every_s, self._half_open),
            (faults.outage_every_s, self._outage),
            (faults.slow_every_s, self._slow),
            (faults.restart_every_s, self._restart_provider),
            (faults.lose_log_every_s, self._lose_log),
            (faults.upgrade_every_s, self._upgrade),
            (faults.fail_over_every_s, self._fail_over),
            (faults.pause_every_s, self._pause),
            (faults.mass_end_every_s, self._mass_end),
            (faults.disaster_every_s, self._disaster),
            (faults.quiet_every_s, self._be_quiet),
            (faults.store_slow_every_s, self._store_slow),
            (faults.store_down_every_s, self._store_down),
            (faults.crash_every_s, self._crash),
            (faults.cancel_every_s, self._cancel),
            (faults.realign_every_s, self._realign),
            (faults.clock_step_every_s, self._set_clock),
            (faults.provider_step_every_s, self._set_provider_clock),
            (faults.restart_open_every_s, self._restart_open),
        ]
        for every_s, event in events:
            if every_s:
                self._go(self._repeat(every_s, event))
        self._go(self._repeat(60.0, self._release))

    def _go(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(self._world.task_ended)
        self._tasks.append(task)

    async def _repeat(self, every_s: float, event: Callable[[], Awaitable[None]]) -> None:
        rng = random.Random(self._rng.getrandbits(64))
        while True:
            await asyncio.sleep(rng.expovariate(1 / every_s))
            self._world.trace(event.__name__.strip("_"))
            await event()

    async def _for(self, longest_s: float) -> None:
        """Wait for up to this time, short more often than long."""
        await asyncio.sleep(longest_s * self._rng.random() ** 2)

    async def heal(self) -> None:
        """End every fault, and have a process that runs."""
        world = self._world
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        world.raise_broken()
        world.trace("heal")
        # Tokens were given out in this order: a log cannot take another one up.
        world.faults = FaultOptions(shuffle_partitions=world.faults.shuffle_partitions)
        world.store_down = False
        world.store_slow_until_s = 0.0
        world.reachable = True
        world.provider.state = StreamState.ACTIVE
        for instance in world.provider.instances:
            if not instance.up:
                instance.come_up()
            if instance.empty:
                instance.fill()
            instance.stream.wake()
        if self._ending is not None:
            await self._ending
        self._tasks.clear()
        if self.process.task.done():
            await self.process.ended()
            self.process = self._start()
        self._go(self._trickle())

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.process.crash()

    # -- the network -----------------------------------------------------------------------------

    async def _change(self) -> None:
        options, rng = self._world.log_options, self._rng
        while True:
            await asyncio.sleep(rng.expovariate(1 / options.change_every_s))
            if not self._quiet:
                for _ in range(rng.choice((1, 1, 1, 3, 12))):
                    self._world.provider.change()

    async def _trickle(self) -> None:
        while True:
            await asyncio.sleep(7.0)
            self._world.provider.update()

    async def _mass_end(self) -> None:
        for _ in range(int(len(self._world.provider.bodies) * self._rng.uniform(0.3, 0.9))):
            self._world.provider.end()

    async def _be_quiet(self) -> None:
        self._quiet += 1
        try:
            await self._for(self._world.faults.quiet_s)
        finally:
            self._quiet -= 1

    async def _cut(self) -> None:
        for feed in list(self._world.feeds):
            feed.cut()

    async def _half_open(self) -> None:
        for feed in list(self._world.feeds):
            feed.half_open()

    async def _outage(self) -> None:
        self._world.reachable = False
        await self._cut()
        try:
            await self._for(self._world.faults.outage_s)
        finally:
            self._world.reachable = True

    async def _disaster(self) -> None:
        world = self._world
        world.reachable = False
        await self._cut()
        await self._mass_end()
        await self._mass_end()
        options = world.log_options
        try:
            keeps_s = max(options.tombstone_retention_s, options.retention_s)
            await asyncio.sleep(keeps_s * self._rng.uniform(0.9, 1.3))
        finally:
            world.reachable = True

    async def _slow(self) -> None:
        world = self._world
        before = world.faults.latency_s
        world.set_latency(self._rng.uniform(0.3, 2.5))
        try:
            await self._for(world.faults.slow_s)
        finally:
            world.set_latency(before)

    # -- the provider ----------------------------------------------------------------------------

    async def _restart_provider(self) -> None:
        await self._down(lambda _: None)

    async def _lose_log(self) -> None:
        faults, chance = self._world.faults, self._rng.random
        # What is drawn only where it counts leaves other seeds as they are.
        ahead = faults.rebuilt_ahead_p > 0 and chance() < faults.rebuilt_ahead_p
        empty = faults.rebuilt_empty_p > 0 and chance() < faults.rebuilt_empty_p
        await self._down(lambda instance: self._rebuild(instance, ahead=ahead, empty=empty))

    def _rebuild(self, instance: Instance, *, ahead: bool, empty: bool) -> None:
        world = self._world
        world.count("log rebuilt" if world.log_options.offsets else "log rebuilt without offsets")
        if ahead and world.log_options.offsets:
            world.count("log rebuilt beyond our offsets")
        if ahead:
            # What a lost log does not state any more has no tombstone.
            for _ in range(1 + len(world.provider.bodies) // 4):
                world.provider.end()
        if empty:
            world.count("log rebuilt empty")
            self._go(self._fill(instance))
        instance.new_log(ahead=ahead, empty=empty)

    async def _fill(self, instance: Instance) -> None:
        await self._for(self._world.faults.down_s)
        if instance.empty:
            instance.fill()

    async def _restart_open(self) -> None:
        for feed in list(self._world.feeds):
            feed.restart()

    async def _upgrade(self) -> None:
        fate = self._rng.randrange(3)
        if fate > 0:
            self._world.count("another uuid under the same name")
        await self._down(lambda instance: instance.upgrade(uuid=fate > 0, log=fate < 2))
        self._go(self._pause())

    async def _down(self, meanwhile: Callable[[Instance], None]) -> None:
        instance = self._world.provider.current
        if not instance.up:
            return
        instance.go_down()
        await self._for(self._world.faults.down_s)
        meanwhile(instance)
        instance.come_up()

    async def _fail_over(self) -> None:
        provider = self._world.provider
        old = provider.current
        other = next(one for one in provider.instances if one is not old)
        if other.up:
            provider.current = other
            old.cut()

    async def _pause(self) -> None:
        provider = self._world.provider
        provider.state = self._rng.choice((StreamState.PAUSED, StreamState.ALIGNING))
        try:
            await self._for(self._world.faults.pause_s)
        finally:
            provider.state = StreamState.ACTIVE
            for instance in provider.instances:
                instance.stream.wake()

    # -- the store and the process ---------------------------------------------------------------

    async def _store_slow(self) -> None:
        world = self._world
        longest_s = world.faults.store_slow_s
        world.store_slow_until_s = world.loop.time() + longest_s * self._rng.random()

    async def _store_down(self) -> None:
        self._world.store_down = True
        try:
            await self._for(self._world.faults.store_down_s)
        finally:
            self._world.store_down = False

    async def _crash(self) -> None:
        await self._end_process(self._crash_now)

    async def _cancel(self) -> None:
        await self._end_process(self._stop_now)

    async def _crash_now(self) -> None:
        await self.process.crash()

    async def _stop_now(self) -> None:
        await self.process.stop()

    async def _end_process(self, end: Callable[[], Coroutine[None, None, None]]) -> None:
        """After some turns of the loop, so that any await of any task is hit."""
        async with self._away:
            hit = asyncio.Event()
            self._world.loop.after_turns(self._rng.randrange(_MOST_TURNS), hit.set)
            await hit.wait()
            if self.process.task.done():
                await self.process.ended()
            self.realigns_after = None
            self._ending = asyncio.create_task(end())
            await asyncio.shield(self._ending)
            if self._rng.random() < 0.3:
                await self._for(self._world.faults.away_s)
            self.process = self._start()

    async def _set_clock(self) -> None:
        self._world.skew_s += self._rng.choice(SKEWS_S)

    async def _set_provider_clock(self) -> None:
        self._world.provider_step_s += self._rng.choice(PROVIDER_STEPS_S)
        self._world.provider_set_s = self._world.loop.time()

    async def _realign(self) -> None:
        self.realign()

    def realign(self) -> None:
        """Ask for a realignment as an operator would; does nothing where the consumer has not
        started yet.
        """
        consumer = self.process.consumer
        alive = not self.process.task.done() and (self._ending is None or self._ending.done())
        if alive and consumer is not None and STREAM in consumer._workers:
            consumer.realign(STREAM, "asked for by the simulation")
            self.realigns_after = self._world.checks.attempt()

    async def _release(self) -> None:
        self.release()

    def release(self) -> None:
        """Let a held sweep go on, as an operator does who has compared both sides."""
        consumer = self.process.consumer
        if consumer is None or STREAM not in consumer._workers:
            return
        worker = consumer._workers[STREAM]
        if worker.sweep_held and worker._core is not None:
            self._world.checks.released(worker._core.position.attempt)
            try:
                consumer.release_sweep(STREAM)
            except IllegalTransition:
                assert worker._core.position.phase is not Phase.SWEEP_HELD
