"""WS-ReliableMessaging and WS-Reliability in virtual time: the sources of the crash tests, which
are written by hand, a link that loses, doubles and reorders, a store that fails, and a receiver
that crashes at any await. One seed makes all of it.

First everything goes wrong for a while; then all is healed. In the end every acknowledged message
was delivered once, in order, a cancelled one never, and one that was kept and not delivered is
faulted. No acknowledgement ever covers what is not durable.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import msgspec
from lxml import etree

from instep import SequencerSettings
from instep_wsr import Acknowledge
from instep_wsr.options import DEFAULT_SEQUENCE
from tests.crash import wsr, wsrm
from tests.crash.messages import LinkFaults
from tests.simulation.loop import VirtualLoop
from tests.simulation.sequencing.simulation import WATCHED, World, crash_at_times, owed
from tests.simulation.soap.process import SimulatedWsr, SimulatedWsrm, SoapProcess

__all__ = ["SoapFailedError", "simulate_soap"]

_HEAL_WITHIN_S = 2_000.0
_LISTEN = "http://127.0.0.1:1/rm"


class SoapFailedError(AssertionError):
    """An invariant does not hold; the seed is in the text."""


class SoapWorld(World):
    """What outlives the receiver's process, with the sources of one of the protocols."""

    process: SoapProcess | None

    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        super().__init__(seed, loop)
        rng = self.rng
        self.report = wsrm.Report(exit_code=0)
        self.last = rng.randint(3, 25)
        self.options: SimulatedWsr | SimulatedWsrm
        self.sources: list[_WsrSource] | list[_WsrmSource]
        limit, count = self.sequencing.limit_messages, rng.randint(1, 4)
        link_faults = LinkFaults(self.faults.loss_p, self.faults.duplicate_p)
        if rng.random() < 0.5:
            sequence = msgspec.structs.replace(DEFAULT_SEQUENCE, limit_messages=limit)
            acknowledge = rng.choice(list(Acknowledge))
            self.options = SimulatedWsr(listen=_LISTEN, acknowledge=acknowledge, sequence=sequence)
            self.sources = [_WsrSource(self, place, link_faults, seed) for place in range(count)]
        else:
            sequence = SequencerSettings(
                gap_deadline_s=5, gap_repeat_s=5, gap_attempts=100_000, limit_messages=limit
            )
            self.options = SimulatedWsrm(listen=_LISTEN, sequence=sequence)
            self.sources = [_WsrmSource(self, place, link_faults, seed) for place in range(count)]

    async def post(self, raw: bytes) -> tuple[int, bytes]:
        """The link of the sources."""
        await asyncio.sleep(self.rng.uniform(0.001, 0.5))
        if self.process is None:
            return 0, b""
        status, answer = await self.process.post(raw)
        if status == 200:
            self._check_durable(etree.fromstring(answer))
        await asyncio.sleep(self.rng.uniform(0.001, 0.5))
        return status, answer

    def _check_durable(self, answer: etree._Element) -> None:
        """Hold the acknowledgements of an answer against what another process would read."""
        claimed = [
            (block.findtext("{*}Identifier"), one.get("Lower"), one.get("Upper"))
            for block in answer.iter("{*}SequenceAcknowledgement")
            for one in block.iter("{*}AcknowledgementRange")
        ]
        claimed += [
            (block.get("groupId"), one.get("from"), one.get("to"))
            for block in answer.iter("{*}SequenceReplies")
            for one in block
            if not one.get("fault")
        ]
        for scope, low, high in claimed:
            state = self.durable(scope or "")
            numbers = range(int(low or 0), int(high or 0) + 1)
            if state is None or not all(
                number in state.received or number in state.faulted for number in numbers
            ):
                raise SoapFailedError(f"{scope} claims {low}-{high}, durable is {state}")


class _WsrmSource(wsrm.Source):
    def __init__(self, world: SoapWorld, place: int, faults: LinkFaults, seed: int) -> None:
        super().__init__(place, world, faults, seed, world.report)

    @property
    def scope(self) -> str:
        return self.name

    @property
    def wanted(self) -> set[int]:
        """The numbers that must have been delivered in the end."""
        return self.acknowledged - self.filled


class _WsrSource(wsr.Source):
    """A group. Some withhold a message until those behind it have expired."""

    def __init__(self, world: SoapWorld, place: int, faults: LinkFaults, seed: int) -> None:
        super().__init__(place, world, faults, seed, world.report)
        self._world = world
        now_s = world.now()
        self.expires = _stamp(now_s + 86_400)
        self._soon = _stamp(now_s + self.rng.uniform(5, 60))
        withholds = self.ordered and self.rng.random() < 0.3
        self.withheld = self.rng.randint(0, world.last - 1) if withholds else None

    @property
    def scope(self) -> str:
        return self.group

    @property
    def wanted(self) -> set[int]:
        return self.acknowledged

    async def run(self, last: int) -> None:
        await super().run(last)
        if self.withheld is None:
            return
        # What was acknowledged when it came is reported yet, because it could not be delivered.
        while not set(range(self.withheld + 1, last + 1)) <= set(self.faulted):
            await asyncio.sleep(1)
            await self._poll()
        while self.withheld not in self.faulted and self.withheld not in self.acknowledged:
            await self._send(self.withheld, last=False)
            await self._poll()

    def left(self, part: list[int], last: int) -> list[int]:
        settled = self.acknowledged | set(self.faulted)
        if self.withheld is None:
            return super().left(part, last)
        return [n for n in range(last + 1) if n not in settled and n != self.withheld]

    def expires_of(self, number: int) -> str:
        late = self.withheld is not None and number > self.withheld
        return self._soon if late else self.expires

    def check(self) -> None:
        """Check what was not delivered: it is faulted, and nothing else is."""
        if self.withheld is None:
            if self.faulted:
                raise SoapFailedError(f"{self.group}: {self.faulted}")
            return
        # What is delivered ends at the withheld one, or before it: another may not have come
        # before the group was aborted. Where none behind it was kept, the withheld one counts, too.
        delivered = len(self.wanted)
        aborted = set(self.faulted.values()) != {"InvalidExpiryTime"}
        if delivered > self.withheld + (not aborted) or self.wanted != set(range(delivered)):
            raise SoapFailedError(f"{self.group}: acknowledged {self.wanted}")
        if min(self.faulted, default=delivered) < delivered:
            raise SoapFailedError(f"{self.group}: delivered and faulted {self.faulted}")
        self.faulted.clear()


def _stamp(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat()


async def _story(world: SoapWorld) -> None:
    with closing(sqlite3.connect(world.path)) as connection:
        connection.executescript(WATCHED)
    world.process = SoapProcess(world)
    sending = asyncio.gather(*[source.run(world.last) for source in world.sources])
    await crash_at_times(world, SoapProcess)
    for source in world.sources:
        source._faults = LinkFaults(0, 0)
    async with asyncio.timeout(_HEAL_WITHIN_S):
        await sending
        while not _all_there(world):
            await asyncio.sleep(0.5)
    await world.process.crash()


def _all_there(world: SoapWorld) -> bool:
    """Whether all that was acknowledged is delivered. Raises for what never is right."""
    found = []
    for source in world.sources:
        for number, body in world.delivered(source.scope):
            if etree.fromstring(body).get("number") != str(number):
                raise SoapFailedError(f"{source.scope}: contents were mixed up")
            found.append((source.place, number))
    if any((source.place, n) not in found for source in world.sources for n in source.wanted):
        return False
    for source in world.sources:
        if isinstance(source, _WsrSource):
            source.check()
            wsr.compare(found, [source], world.report)
        else:
            wsrm.compare(found, [source], world.report)
    if not world.report.good:
        raise SoapFailedError(str(world.report))
    return not owed(world)


def simulate_soap(seed: int) -> str:
    """Run one seed; what happened. Raises `SoapFailedError`."""
    loop = VirtualLoop()
    try:
        world = SoapWorld(seed, loop)
        loop.run_until_complete(_story(world))
        kind = "wsr" if isinstance(world.options, SimulatedWsr) else "wsrm"
        return f"seed {seed}: {kind}, {loop.time():,.0f} virtual s, {world.crashes} crashes"
    except Exception as error:
        raise SoapFailedError(f"seed {seed}: {error!r}") from error
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.wait(left) if left else asyncio.sleep(0))
        loop.close()
