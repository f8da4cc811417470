"""`instep audit`: holds a store against its provider's log, and repairs what is proven wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column

from instep.alignment.audit import AuditReport, Finding
from instep.cli.output import Format, FormatOption, Listing, counted, json_line
from instep.cli.signals import until_signalled
from instep.cli.store import ConfigArgument, ConsumerOption, StreamOption, configured
from instep.config.file import ConsumerConfiguration
from instep.config.plugins import build_sink, build_source
from instep.errors import ConfigurationError
from instep.ports.listener import Listener
from instep.runtime.clock import steady_now
from instep.runtime.streams.audit import audit_stream
from instep.runtime.tee import TeeSink

__all__ = ["audit"]


def audit(
    config: ConfigArgument = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Correct entities that are proven wrong, by the log.")
    ] = False,
    consumer: ConsumerOption = None,
    stream: StreamOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Compare stores with the logs of their providers over a second connection (TR-548 ST-2.3).

    The consumers go on meanwhile, in this process or another. If none runs, entities that the
    store has not reached yet stay undecided. Ends with 1 if an entity is wrong and was not
    repaired.

    Example: instep audit --repair --consumer east
    """
    reports: list[AuditReport] = []
    consumers = configured(config, consumer)
    until_signalled(_audit(consumers, stream, repair, output, reports))
    if not all(report.clean for report in reports):
        raise typer.Exit(1)


async def _audit(
    consumers: Sequence[ConsumerConfiguration],
    stream: str | None,
    repair: bool,
    output: Format,
    reports: list[AuditReport],
) -> None:
    view = _Table() if output is Format.TABLE else _Lines()
    for consumer in consumers:
        await _audit_consumer(consumer, stream, repair, view, reports)
    if stream is not None and not reports:
        raise ConfigurationError("no consumer has such a stream", where=stream)


async def _audit_consumer(
    consumer: ConsumerConfiguration,
    wanted: str | None,
    repair: bool,
    view: _Lines | _Table,
    reports: list[AuditReport],
) -> None:
    source, sink = build_source(consumer.source), build_sink(consumer.sink)
    if isinstance(source, Listener):
        raise ConfigurationError(
            "messages that were received cannot be read again, so there is nothing to audit",
            where=consumer.source.where,
        )
    try:
        for one in sink.sinks if isinstance(sink, TeeSink) else (sink,):
            try:
                await one.open(consumer.name)
                # As the consumer last found them, because those are the ones that it reads.
                for stream in await one.known_streams():
                    if wanted in (None, stream.id):
                        report = await audit_stream(
                            source,
                            one,
                            stream,
                            settings=consumer.settings.alignment,
                            now=steady_now,
                            repair=repair,
                            found=view.found,
                        )
                        view.report(consumer.name, report)
                        reports.append(report)
            finally:
                await one.close()
    finally:
        await source.close()


class _Lines:
    """Print one JSON object a line: each finding, and a report for each stream."""

    def found(self, finding: Finding) -> None:
        json_line(
            {
                "stream": finding.stream,
                "key": finding.key,
                "class": finding.entity_class,
                "verdict": finding.verdict,
                "token": finding.token,
                "repaired": finding.repaired,
            }
        )

    def report(self, consumer: str, report: AuditReport) -> None:
        json_line({"consumer": consumer, "stream": report.stream, "report": report}, flush=True)


class _Table:
    """Print findings and reports as text for people."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        columns = [Column("Verdict", width=8), Column("Repaired", width=8)]
        columns += [Column("Class", ratio=1), Column("Key", ratio=2), Column("Stream", ratio=1)]
        self._listing = Listing(self._console, columns)

    def found(self, finding: Finding) -> None:
        repaired = "yes" if finding.repaired else "no"
        self._listing.add(
            finding.verdict, repaired, finding.entity_class, finding.key, finding.stream
        )

    def report(self, consumer: str, report: AuditReport) -> None:
        if self._listing.rows:
            self._listing.flush()
        counts = report.counts
        self._console.print(
            f"{consumer} / {report.stream}: {counts.right:,} right, {counts.stale:,} stale,"
            f" {counts.bogus:,} bogus, {counts.missing:,} missing, {counts.repaired:,} repaired,"
            f" {counts.undecided:,} undecided; {counted(report.records, 'records')} read",
            markup=False,
        )
        if counts.undecided:
            self._console.print(
                "  undecided: the store has not come to where the log states them;"
                " audit while `instep run` follows"
            )
        if counts.unproven:
            self._console.print(
                f"  {counts.unproven:,} of classes that no GET shows are not judged"
            )
        if report.unreadable:
            self._console.print(
                f"  {report.unreadable:,} of them could not be read, or told apart:"
                " nothing was called bogus"
            )
