"""Reports of a BICEPS provider in virtual time, over the wire: what the simulated provider of
numbered entities says travels as envelopes, and a `ReportSession` reads them.

Everything else is as in `tests.simulation.sequenced_feed`: the faults, the crashes, the checks.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import msgspec

from instep.errors import BaselineError, UnreachableError
from instep.model.records import Record
from instep.model.streams import Start, StreamInfo
from instep.runtime.streams.sequenced_feed import SequencedFeed, SequencedFeedSettings
from instep_sdpi.session import ReportSession
from instep_sdpi.wire.mdib import read_mdib
from instep_sdpi.wire.names import CLASSES, MdibPart
from instep_soap import SoapFaultError, SoapRequest, read_envelope
from instep_soap.addressing import read_addressing
from tests.instep.runtime.streams.numbered_entities_kit import (
    Answer,
    Content,
    Notification,
    NumberedSource,
    Statement,
)
from tests.instep_sdpi.sdpi_kit import envelope, report
from tests.simulation.sequenced_feed.checks import NumberedChecks, Stored
from tests.simulation.sequenced_feed.simulation import World, simulate_numbered

__all__ = ["simulate_sdpi"]

_ROWS: Final = "SELECT key, attempt, body FROM instep_entity WHERE key LIKE 'state/%'"
_SEQUENCE: Final = "urn:simulated:"


class SimulatedBiceps(NumberedSource):
    """The source over envelopes."""

    def __init__(
        self,
        provider: object,
        settings: SequencedFeedSettings | None = None,
        *,
        clock: Callable[[], float],
        page_records: int = 3,
    ) -> None:
        super().__init__(provider, settings, clock=clock, page_records=page_records)  # type: ignore[arg-type]
        self.sessions: list[ReportSession] = []

    async def discover(self) -> Sequence[StreamInfo]:
        classes = frozenset[str]().union(*CLASSES.values())
        return [
            msgspec.structs.replace(
                one, classes=tuple(sorted(classes)), readable=classes, absence_stated=classes
            )
            for one in await super().discover()
        ]

    @asynccontextmanager
    async def feed(self, stream: StreamInfo, start: str | Start) -> AsyncIterator[SequencedFeed]:
        self.starts.append(start)
        await self.provider.travel()
        if self.refused:
            self.refused -= 1
            raise UnreachableError("no subscription")
        assert self.settings is not None
        mine = ReportSession(stream.id, frozenset(MdibPart), self.settings, clock=self.clock)
        self.sessions.append(mine)

        async def deliver(notification: Notification) -> Answer:
            raw = _report(notification)
            read = read_envelope(raw)
            request = SoapRequest(read, read_addressing(read.headers), "127.0.0.1", "/", raw)
            try:
                await mine.receive(request)
            except SoapFaultError as fault:
                return Answer.FAULT if fault.status == 503 else Answer.GONE
            return Answer.CONFIRMED

        def ended() -> None:
            mine.feed.fail(UnreachableError("the subscription has ended"))

        session = self.provider.subscribe(deliver, ended)
        try:
            yield mine.feed
        finally:
            self.sessions.remove(mine)
            mine.feed.close()
            session.stop()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(session.task, return_exceptions=True)

    async def baseline(self, stream: StreamInfo, opened_at_us: int) -> AsyncIterator[list[Record]]:
        assert stream.id
        assert opened_at_us
        yield []
        try:
            content = await self.provider.snapshot()
        except ConnectionError as error:
            raise BaselineError(str(error), retriable=True) from error
        mdib = read_mdib(read_envelope(_mdib(content)))
        pages = list(mdib.pages())
        (rows, *_) = [
            [row for page in pages for row in session.baseline(page)] for session in self.sessions
        ]
        for start in range(0, len(rows), self.page_records):
            yield rows[start : start + self.page_records]
        for session in self.sessions:
            session.baseline_read(mdib.version)


def _report(notification: Notification) -> bytes:
    number, content = notification
    body = report(
        "DescriptionModificationReport",
        "".join(_part(one, content.incarnation) for one in content.statements),
        content.version,
        f"{_SEQUENCE}{content.incarnation}",
    )
    return envelope(body, number=str(number))


def _part(statement: Statement, incarnation: int) -> str:
    descriptor = f'xsi:type="dom:NumericMetricDescriptor" Handle="{statement.key}"/>'
    if statement.value is None:
        return (
            f'<msg:ReportPart ModificationType="Del"><msg:Descriptor {descriptor}</msg:ReportPart>'
        )
    return (
        f'<msg:ReportPart ModificationType="Crt" ParentDescriptor="ch"><msg:Descriptor {descriptor}'
        f"<msg:State {_state(statement, incarnation)}</msg:State></msg:ReportPart>"
    )


def _state(statement: Statement, incarnation: int) -> str:
    # What is stated without a change is stored as it was: the value tells the incarnations apart.
    value = f"{incarnation}:{statement.value}"
    return (
        f'xsi:type="dom:NumericMetricState" DescriptorHandle="{statement.key}"'
        f' StateVersion="{statement.version}"><dom:MetricValue Value="{value}"/>'
    )


def _mdib(content: Content) -> bytes:
    metrics = "".join(
        f'<dom:Metric xsi:type="dom:NumericMetricDescriptor" Handle="{one.key}"/>'
        for one in content.statements
    )
    states = "".join(
        f"<dom:State {_state(one, content.incarnation)}</dom:State>" for one in content.statements
    )
    return envelope(
        f'<msg:GetMdibResponse MdibVersion="{content.version}"'
        f' SequenceId="{_SEQUENCE}{content.incarnation}"><msg:Mdib><dom:MdDescription>'
        f'<dom:Mds Handle="mds"><dom:Vmd Handle="vmd"><dom:Channel Handle="ch">{metrics}'
        "</dom:Channel></dom:Vmd></dom:Mds></dom:MdDescription>"
        f"<dom:MdState>{states}</dom:MdState></msg:Mdib></msg:GetMdibResponse>"
    )


class SdpiChecks(NumberedChecks):
    """The same checks, of states as they are stored."""

    def fetch(self) -> dict[str, Stored]:
        rows = {}
        for key, attempt, raw in self._database.execute(_ROWS):
            body = json.loads(raw)
            incarnation, _, value = body["MetricValue"]["Value"].partition(":")
            at = (int(incarnation), int(body["StateVersion"]))
            rows[key.removeprefix("state/")] = Stored(at, value, attempt)
        return rows


class SdpiWorld(World):
    """The numbered entities as an MDIB."""

    command = "--sdpi-seed"
    checks_type = SdpiChecks
    source_type = SimulatedBiceps
    # Descriptors that end behind a gap lead to another baseline.
    counts_baselines = False


def simulate_sdpi(seed: int, report: Callable[[str], None] | None = None) -> str:
    """Run one seed; what happened. Raises `NumberedFailedError`."""
    return simulate_numbered(seed, report, SdpiWorld)
