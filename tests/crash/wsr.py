"""Kills a WS-Reliability receiver with SIGKILL, again and again, while many senders send.

The way to the receiver loses messages and answers, doubles and shuffles. A sender goes on until
each of its messages is acknowledged. Then each message must have had one effect, in an ordered
group in order.

The senders are written by hand from the specification, and share nothing with the receiver.

Run by hand at full size: `python -m tests.crash.wsr --sources 20 --messages 5000`.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from lxml import etree

from tests.crash.messages import WINDOW, LinkFaults
from tests.crash.soap_source_kit import Link, Report, SoapSource, run_from_command_line, run_killed

RECEIVER = [sys.executable, "-m", "tests.crash.soap_receiver", "wsr"]
SOAP = "http://www.w3.org/2003/05/soap-envelope"
WSR = "http://docs.oasis-open.org/wsrm/2004/06/ws-reliability-1.1.xsd"
FEATURES = "<w:AckRequested/><w:DuplicateElimination/>"


class Source(SoapSource):
    """One group."""

    def __init__(
        self, place: int, link: Link, link_faults: LinkFaults, seed: int, report: Report
    ) -> None:
        super().__init__(place, link, link_faults, seed, report)
        self.group = f"mid:{seed}.{place}@crash.example"
        self.ordered = place % 3 != 0
        self.pattern = "Poll" if place % 4 == 1 else "Response"
        self.expires = (datetime.now(UTC) + timedelta(days=1)).isoformat()
        self.acknowledged: set[int] = set()
        self.ever_acknowledged: set[int] = set()
        self.faulted: dict[int, str] = {}

    async def run(self, last: int) -> None:
        order = sorted(range(last + 1), key=lambda number: number + self.rng.uniform(0, WINDOW))
        for start in range(0, last + 1, WINDOW):
            part = order[start : start + WINDOW]
            while left := self.left(part, last):
                await asyncio.gather(*(self._send(n, last=n == last) for n in left))
                if self.pattern == "Poll":
                    await self._poll()

    def left(self, part: list[int], last: int) -> list[int]:
        """What of a part is not settled, and what it waits for."""
        open_ = [n for n in part if n not in self.acknowledged]
        if not self.ordered or not open_:
            return open_
        # A message is acknowledged when all before it have come, and some may be of a later part.
        return [n for n in range(min(last, max(open_)) + 1) if n not in self.acknowledged]

    async def _send(self, number: int, *, last: bool) -> None:
        end = ' last="true"' if last else ""
        order = "<w:MessageOrder/>" if self.ordered else ""
        header = (
            f'<w:Request s:mustUnderstand="true"><w:MessageId groupId="{self.group}">'
            f'<w:SequenceNum number="{number}"{end}/></w:MessageId>'
            f"<w:ExpiryTime>{self.expires_of(number)}</w:ExpiryTime>"
            f"<w:ReplyPattern><w:Value>{self.pattern}</w:Value></w:ReplyPattern>"
            f"{FEATURES}{order}</w:Request>"
        )
        body = f'<m xmlns="urn:crash" sender="{self.place}" number="{number}"/>'
        await asyncio.gather(*(self._transmit(header, body) for _ in range(self.copies)))

    def expires_of(self, number: int) -> str:  # noqa: ARG002 - the simulation has others
        return self.expires

    async def _poll(self) -> None:
        header = (
            f'<w:PollRequest s:mustUnderstand="true"><w:RefToMessageIds groupId="{self.group}"/>'
            "</w:PollRequest>"
        )
        await self._transmit(header, "")

    async def _transmit(self, headers: str, body: str) -> None:
        raw = (
            f'<s:Envelope xmlns:s="{SOAP}" xmlns:w="{WSR}"><s:Header>{headers}</s:Header>'
            f"<s:Body>{body}</s:Body></s:Envelope>"
        ).encode()
        root = await self.transmit(raw)
        if root is not None:
            self.read(root)

    def read(self, root: etree._Element) -> None:
        """Read the replies of a response."""
        for one in root.iter(f"{{{WSR}}}ReplyRange"):
            numbers = set(range(int(one.get("from", "")), int(one.get("to", "")) + 1))
            fault = one.get("fault", "").rpartition(":")[2]
            if not fault:
                self.acknowledged |= numbers
                self.ever_acknowledged |= numbers
            elif fault != "MessageProcessingFailure":
                self.acknowledged -= numbers
                self.faulted |= dict.fromkeys(numbers, fault)


def compare(found: list[tuple[int, int]], sources: Sequence[Source], report: Report) -> None:
    """Hold the user's table against what the senders were told."""
    counts = Counter(found)
    report.doubled += [f"{one}: {count}" for one, count in counts.items() if count > 1]
    for source in sources:
        numbers = [number for of, number in found if of == source.place]
        lost = source.acknowledged - set(numbers)
        report.missing += [f"{(source.place, n)}" for n in sorted(lost)]
        report.broken_promises += [
            f"source {source.place}: {n} has {fault}" for n, fault in source.faulted.items()
        ]
        if source.ordered and numbers != sorted(numbers):
            report.disordered.append(f"source {source.place}")


async def run(
    count: int,
    last: int,
    *,
    seed: int,
    kill_every_s: float,
    link_faults: LinkFaults | None = None,
) -> Report:
    """Send everything over the faulty link to a receiver that is killed again and again."""
    report = Report()

    def hold(found: list[tuple[int, int]], sources: Sequence[Source]) -> None:
        compare(found, sources, report)
        for source in sources:
            if source.acknowledged != set(range(last + 1)):
                report.broken_promises.append(f"source {source.place}: not all is acknowledged")

    await run_killed(
        RECEIVER,
        lambda place, link, faults: Source(place, link, faults, seed, report),
        hold,
        report,
        count=count,
        last=last,
        kill_every_s=kill_every_s,
        expected=lambda source: len(source.acknowledged),
        link_faults=link_faults,
    )
    return report


if __name__ == "__main__":
    run_from_command_line(__doc__, run, first_number=0)
