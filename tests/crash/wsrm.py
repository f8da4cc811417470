"""Kills an RM destination with SIGKILL, again and again, while many sources send, cancel and fill.

The way to the destination loses messages and answers, doubles and shuffles. A source goes on until
each of its numbers is settled: acknowledged, or promised never to be accepted. Then exactly the
acknowledged messages must have had one effect each, in order, and no promise may be broken.

The sources are written by hand from the specifications, and share nothing with the destination.

Run by hand at full size: `python -m tests.crash.wsrm --sources 20 --messages 5000`.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lxml import etree

from tests.crash import soap_source_kit
from tests.crash.messages import WINDOW, LinkFaults
from tests.crash.soap_source_kit import Link, SoapSource, run_from_command_line, run_killed

DESTINATION = [sys.executable, "-m", "tests.crash.soap_receiver", "wsrm"]
SOAP = "http://www.w3.org/2003/05/soap-envelope"
WSA = "http://www.w3.org/2005/08/addressing"
RM = {
    "1.0": "http://schemas.xmlsoap.org/ws/2005/02/rm",
    "1.1": "http://docs.oasis-open.org/ws-rx/wsrm/200702",
}
CANCELLED, FILLED = 0.04, 0.04
"""Shares of the numbers: some are in doubt and then cancelled, some are never used."""


@dataclass
class Report(soap_source_kit.Report):
    """The result of a run."""

    cancelled: int = 0
    """Numbers that the destination promised never to accept."""
    accepted_despite_cancel: int = 0
    """Numbers that it had accepted when they were to be cancelled."""


class Source(SoapSource):
    """One sequence."""

    report: Report

    def __init__(
        self, place: int, link: Link, link_faults: LinkFaults, seed: int, report: Report
    ) -> None:
        super().__init__(place, link, link_faults, seed, report)
        self.version = "1.1" if place % 2 else "1.0"
        self.name = ""
        self.acknowledged: set[int] = set()
        self.cancelled: set[int] = set()
        self.filled: set[int] = set()

    async def run(self, last: int) -> None:
        while not self.name:
            anonymous = f"<w:AcksTo><a:Address>{WSA}/anonymous</a:Address></w:AcksTo>"
            root = await self._transmit("", f"<w:CreateSequence>{anonymous}</w:CreateSequence>")
            if root is not None:
                self.name = root.findtext(f".//{{{RM[self.version]}}}Identifier") or ""
        numbers = range(1, last + 1)
        to_cancel = {n for n in numbers if self.rng.random() < CANCELLED}
        self.filled = {n for n in numbers if n not in to_cancel and self.rng.random() < FILLED}
        order = sorted(numbers, key=lambda number: number + self.rng.uniform(0, WINDOW))
        for start in range(0, last, WINDOW):
            part = order[start : start + WINDOW]
            await asyncio.gather(*(self._settle(n, cancel=n in to_cancel) for n in part))
        await self._end(last)

    async def _settle(self, number: int, *, cancel: bool) -> None:
        """Until the number is acknowledged, or promised never to be accepted."""
        doubt = cancel
        while number not in self.acknowledged and number not in self.cancelled:
            if number in self.filled:
                await self._ask("SequenceFill", number)
            elif doubt and self.rng.random() < 0.5:
                await self._ask("SequenceCancel", number)
            elif not doubt or self.rng.random() < 0.3:
                await self._send(number)
        if number in self.cancelled:
            self.report.cancelled += 1
            if self.rng.random() < 0.5:
                await self._send(number)
        elif doubt:
            self.report.accepted_despite_cancel += 1

    async def _end(self, last: int) -> None:
        wanted = set(range(1, last + 1))
        while True:
            self.acknowledged.clear()
            await self._ask("AckRequested")
            if self.acknowledged | self.cancelled >= wanted:
                break
        if self.version == "1.1":
            stated = f"<w:LastMsgNumber>{last}</w:LastMsgNumber>"
            final = None
            while final is None:
                root = await self._transmit("", self._about("CloseSequence", stated))
                final = None if root is None else root.find(f".//{{{RM['1.1']}}}Final")
        if self.acknowledged | self.cancelled != wanted:
            self.report.broken_promises.append(f"source {self.place}: other numbers at the end")

    async def _send(self, number: int) -> None:
        stated = f"<w:MessageNumber>{number}</w:MessageNumber>"
        body = f'<m xmlns="urn:crash" sender="{self.place}" number="{number}"/>'
        await asyncio.gather(
            *(self._transmit(self._about("Sequence", stated), body) for _ in range(self.copies))
        )

    async def _ask(self, local: str, number: int = 0) -> None:
        part = f'<w:MessageRange Lower="{number}" Upper="{number}"/>' if number else ""
        await self._transmit(self._about(local, part), "")

    def _about(self, local: str, more: str) -> str:
        return f"<w:{local}><w:Identifier>{self.name}</w:Identifier>{more}</w:{local}>"

    async def _transmit(self, headers: str, body: str) -> etree._Element | None:
        """Send an envelope; None: no answer came."""
        raw = (
            f'<s:Envelope xmlns:s="{SOAP}" xmlns:a="{WSA}" xmlns:w="{RM[self.version]}"><s:Header>'
            f"<a:Action>urn:crash</a:Action>{headers}</s:Header><s:Body>{body}</s:Body>"
            "</s:Envelope>"
        ).encode()
        root = await self.transmit(raw)
        if root is not None:
            self._read(root)
        return root

    def _read(self, root: etree._Element) -> None:
        space = RM[self.version]
        received = numbers_of(root.find(f".//{{{space}}}SequenceAcknowledgement"))
        cancelled = numbers_of(root.find(f".//{{{space}}}SequenceCancelAcknowledgement"))
        found = []
        if received & cancelled:
            found.append(f"acknowledged and cancelled: {sorted(received & cancelled)}")
        if received & self.cancelled:
            found.append(f"acknowledged after the promise: {sorted(received & self.cancelled)}")
        if cancelled & self.acknowledged:
            found.append(f"cancelled after it was acknowledged: {cancelled & self.acknowledged}")
        self.report.broken_promises += [f"source {self.place}: {one}" for one in found]
        self.acknowledged |= received
        self.cancelled |= cancelled


def numbers_of(block: etree._Element | None) -> set[int]:
    """The numbers of an acknowledgement, by its ranges."""
    found: set[int] = set()
    for one in block if block is not None else ():
        if one.get("Lower"):
            found |= set(range(int(one.get("Lower", "")), int(one.get("Upper", "")) + 1))
    return found


def compare(found: list[tuple[int, int]], sources: Sequence[Source], report: Report) -> None:
    """Hold the user's table against what the sources were told."""
    counts = Counter(found)
    report.doubled += [f"{one}: {count}" for one, count in counts.items() if count > 1]
    for source in sources:
        numbers = [number for of, number in found if of == source.place]
        wanted = source.acknowledged - source.filled
        report.missing += [f"{(source.place, n)}" for n in sorted(wanted - set(numbers))]
        report.broken_promises += [
            f"source {source.place}: {n} had an effect" for n in sorted(set(numbers) - wanted)
        ]
        if numbers != sorted(numbers):
            report.disordered.append(f"source {source.place}")


async def run(
    count: int,
    last: int,
    *,
    seed: int,
    kill_every_s: float,
    link_faults: LinkFaults | None = None,
) -> Report:
    """Send everything over the faulty link to a destination that is killed again and again."""
    report = Report()
    await run_killed(
        DESTINATION,
        lambda place, link, faults: Source(place, link, faults, seed, report),
        lambda found, sources: compare(found, sources, report),
        report,
        count=count,
        last=last,
        kill_every_s=kill_every_s,
        expected=lambda source: len(source.acknowledged - source.filled),
        link_faults=link_faults,
    )
    return report


if __name__ == "__main__":
    run_from_command_line(__doc__, run, first_number=1)
