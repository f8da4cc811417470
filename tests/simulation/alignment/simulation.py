"""One seed: a safety phase in which everything fails, then heal and converge."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from instep.errors import SweepHeldError
from tests.simulation.alignment.chaos import Chaos
from tests.simulation.alignment.checks import Checks, ViolationError
from tests.simulation.alignment.options import (
    FaultOptions,
    LogOptions,
    changed,
    drawn,
    further,
    of_2_6,
    spelled,
    wider,
)
from tests.simulation.alignment.process import consumer_settings, work_here
from tests.simulation.alignment.world import World
from tests.simulation.database_files import new_database
from tests.simulation.loop import VirtualLoop

__all__ = ["SeedFailedError", "SeedResult", "simulate"]

_OF_2_6 = " ARGS='--tapi 2.6'"
_CONVERGES_WITHIN_S = 400.0


@dataclass(frozen=True)
class SeedResult:
    """What a seed did, when all that is promised held."""

    seed: int
    virtual_s: float
    real_s: float
    processor_s: float
    """Of this process, for this seed."""
    commits: int
    swept: int
    turns: int
    digest: str
    counts: dict[str, int]
    """How often each fault of the wider world has happened."""


class SeedFailedError(AssertionError):
    """An invariant was violated; the message has the command that repeats the seed."""

    def __init__(self, seed: int, error: BaseException, world: World) -> None:
        lines = "\n".join(world.lines)
        super().__init__(
            f"seed {seed}: {type(error).__name__}: {error}\n"
            f"replay it with: make simulate SEED={seed}"
            f"{_OF_2_6 if world.log_options.records else ''}\n"
            f"{world.log_options}\nfaults: {changed(world.first_faults)}\n"
            f"the last events:\n{lines}"
        )
        self.seed = seed
        self.error = error


def simulate(
    seed: int,
    *,
    report: Callable[[str], None] | None = None,
    options: tuple[LogOptions, FaultOptions] | None = None,
    as_first: bool = False,
    as_second: bool = False,
    as_third: bool = False,
    tapi_2_6: bool = False,
) -> SeedResult:
    """Run one seed; with `as_first`, `as_second` or `as_third`, without what was added since the
    first, the second or the third seeds were kept; with `tapi_2_6` against a provider that speaks
    it. Raises `SeedFailedError`.
    """
    began_s, processor_s = time.perf_counter(), time.process_time()
    rng = random.Random(seed)
    log_options, faults = options or drawn(rng, seed)
    if not (options or as_first):
        log_options, faults = further(log_options, faults, seed)
        if not as_second:
            log_options, faults = wider(log_options, faults, seed)
            if not as_third:
                log_options, faults = spelled(log_options, faults, seed)
    if tapi_2_6:
        log_options, faults = of_2_6(log_options, faults, seed)
    loop = VirtualLoop()
    world = World(seed, loop, log_options, faults, report)
    settings = consumer_settings(rng)
    path = new_database()
    checks = world.checks = Checks(world, path, settings.alignment.sweep_guard_records)
    work_here(world)
    loop.set_exception_handler(world.note_exception)
    try:
        loop.run_until_complete(_run(world, lambda: Chaos(world, path, settings)))
    except Exception as error:
        raise SeedFailedError(seed, error, world) from error
    finally:
        loop.close()
        checks.close()
    return SeedResult(
        seed,
        loop.time(),
        time.perf_counter() - began_s,
        time.process_time() - processor_s,
        checks.commits,
        checks.swept,
        loop.turns,
        world.digest,
        dict(world.counts),
    )


async def _run(world: World, make: Callable[[], Chaos]) -> None:
    chaos = make()
    try:
        chaos.begin()
        world.broken = asyncio.get_running_loop().create_future()
        await asyncio.wait([world.broken], timeout=world.log_options.duration_s)
        world.raise_broken()
        await chaos.heal()
        await _converge(world, chaos)
        world.raise_broken()
    finally:
        await chaos.end()


async def _converge(world: World, chaos: Chaos) -> None:
    try:
        async with asyncio.timeout(_CONVERGES_WITHIN_S):
            while not await _equal(world, chaos):
                await asyncio.sleep(3.0)
    except TimeoutError:
        world.raise_broken()
        consumer = chaos.process.consumer
        raise ViolationError(
            f"not equal {_CONVERGES_WITHIN_S:g} s after all was healed: {_difference(world)}; "
            f"{consumer!r}; {world.checks.position}"
        ) from None


async def _equal(world: World, chaos: Chaos) -> bool:
    """Aligned, and the store holds what the provider states: entity by entity, body by body."""
    consumer = chaos.process.consumer
    world.raise_broken()
    if consumer is None or not consumer._workers:
        return False
    if world.must_realign:
        # The provider's fault, which no consumer can know of: its operator does.
        world.must_realign = False
        world.reliable_again = True
        chaos.realign()
        return False
    try:
        await consumer.aligned()
    except SweepHeldError:
        chaos.release()
        return False
    return world.checks.attempt() != chaos.realigns_after and not _difference(world)


def _difference(world: World) -> str:
    own = world.provider.own
    stored = {key: own(row.body) for key, row in world.checks.fetch().items()}
    truth = {key: own(body) for key, body in world.provider.bodies.items()}
    missing = [key for key in truth if key not in stored]
    phantom = [key for key in stored if key not in truth]
    stale = [key for key in truth if key in stored and stored[key] != truth[key]]
    found = {"missing": missing, "phantom": phantom, "stale": stale}
    return ", ".join(f"{name} {keys}" for name, keys in found.items() if keys)
