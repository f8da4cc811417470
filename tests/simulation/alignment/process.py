"""The consumer as a process: started on what is durable, stopped, or crashed at any await."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable
from pathlib import Path

from instep import AlignmentSettings, Consumer, ConsumerSettings
from instep.ports import Source
from instep.runtime.retry import Environment
from tests.simulation.alignment.network import SimSource
from tests.simulation.alignment.store import SimStore, Worker
from tests.simulation.alignment.world import World
from tests.simulation.database_files import CONSUMER

__all__ = ["Process", "consumer_settings", "work_here"]

_worker: contextvars.ContextVar[Worker] = contextvars.ContextVar("worker")


def work_here(world: World) -> None:
    """Let every process's store work by that process's own worker."""
    world.loop.worker = lambda executor, work: _worker.get().run(executor, work)


def consumer_settings(rng: random.Random) -> ConsumerSettings:
    """Small bounds, so that they are reached."""
    return ConsumerSettings(
        # Nobody asks here how fresh the streams are: to say that it lives would be a third of what
        # the process commits.
        stale_after_s=3_600.0,
        batch_records=rng.choice((8, 50, 1_000)),
        poll_state_s=rng.choice((2.0, 5.0)),
        reconnect_initial_s=0.5,
        reconnect_max_s=8.0,
        healthy_after_s=10.0,
        alignment=AlignmentSettings(
            quiet_s=4.0,
            unreached_quiet_s=30.0,
            assumed_compaction_delay_s=30.0,
            sweep_guard_records=rng.choice((4, 100)),
            sweep_step_records=rng.choice((3, 12, 1_000)),
            rebaseline_min_s=20.0,
            lost_retry_s=5.0,
            lost_retry_max_s=40.0,
        ),
    )


class Process:
    """One life of the consumer."""

    def __init__(
        self,
        world: World,
        path: Path,
        settings: ConsumerSettings,
        make_source: Callable[[], Source] | None = None,
    ) -> None:
        self._world = world
        self._path = path
        self._settings = settings
        self._make_source = make_source or (lambda: SimSource(world))
        self._worker = Worker(world)
        self._stop = asyncio.Event()
        self.crashed = False
        self.consumer: Consumer | None = None
        context = contextvars.copy_context()
        context.run(_worker.set, self._worker)
        self.task = asyncio.get_running_loop().create_task(self._main(), context=context)
        self.task.add_done_callback(world.task_ended)

    async def _main(self) -> None:
        world = self._world
        store = SimStore(self._path, world, self._worker)
        consumer = Consumer(
            CONSUMER,
            self._make_source(),
            store,
            self._settings,
            environment=Environment(
                now=world.consumer_now,
                monotonic=world.loop.time,
                rng=random.Random(world.rng.getrandbits(64)),
                measure_lag_s=0,
            ),
        )
        await consumer.__aenter__()
        self.consumer = consumer
        stopped = asyncio.create_task(self._stop.wait())
        failed = asyncio.create_task(consumer.wait())
        try:
            await asyncio.wait({stopped, failed}, return_when=asyncio.FIRST_COMPLETED)
            if failed.done():
                await failed
            failed.cancel()
            await consumer.__aexit__(None, None, None)
        finally:
            failed.cancel()
            stopped.cancel()

    async def stop(self) -> None:
        """Stop as a program does that was asked to end."""
        self._stop.set()
        await self.task

    async def crash(self) -> None:
        """Crash: from now on nothing of the process reaches the store or the provider."""
        self._worker.die()
        self.crashed = True
        tasks = [self.task]
        if self.consumer is not None and self.consumer._task is not None:
            tasks.append(self.consumer._task)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def ended(self) -> None:
        """Raise what it failed with, if it did."""
        if not self.crashed:
            await self.task
