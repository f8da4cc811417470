"""What a running consumer has found of its peer, as its store has it: `instep conformance report`,
and the part of `instep status` about it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from instep.cli.conformance.printing import (
    HtmlOption,
    JunitOption,
    ReportFormat,
    ReportFormatOption,
    facts,
    print_report,
)
from instep.cli.output import Format, json_line, plain, stamp
from instep.cli.store import ConfigArgument, ConsumerOption, StoreOption, open_stores
from instep.conformance import ConformanceReport, RuleStatus
from instep.errors import ConfigurationError
from instep.ports.reader import StoreReader

__all__ = ["report", "show_conformance"]


def report(
    file: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    output: ReportFormatOption = ReportFormat.TABLE,
    html: HtmlOption = None,
    junit: JunitOption = None,
) -> None:
    """Print what a consumer with `conformance = true` has found of its peer since it was started.

    Ends with 1 where a MUST is broken.

    Example: instep conformance report --consumer east --format json
    """
    found = asyncio.run(_stored(file, store, consumer))
    if len(found) != 1:
        names = " or ".join(sorted(found))
        raise ConfigurationError(
            "several consumers have their peers judged" if found else "no peer was judged yet",
            where="conformance report",
            hint=f"--consumer {names}" if found else "write conformance = true below its name",
        )
    print_report(next(iter(found.values())), output, html_file=html, junit_file=junit)


async def _stored(file: Any, store: Any, consumer: Any) -> dict[str, ConformanceReport]:
    async with open_stores(file, store, consumer, "conformance report") as places:
        return {
            name: one
            for place in places
            for name, one in (await place.reader.conformance()).items()
            if place.has(name)
        }


async def show_conformance(reader: StoreReader, consumers: Collection[str], output: Format) -> int:
    """Show what was found of the peers of these consumers, or of all; returns how many."""
    found = {
        name: one
        for name, one in (await reader.conformance()).items()
        if not consumers or name in consumers
    }
    for name, one in found.items():
        if output is Format.JSONL:
            json_line({"consumer": name, "conformance_report": _seen(one)})
        else:
            _print(name, one)
    return len(found)


def _seen(found: ConformanceReport) -> dict[str, Any]:
    """The report without what was not seen."""
    told = facts(found)
    unseen = {one.rule for one in found.results if one.status is RuleStatus.NOT_SEEN}
    return told | {"rules": [one for one in told["rules"] if one["rule"] not in unseen]}


def _print(name: str, found: ConformanceReport) -> None:
    console = Console(highlight=False)
    console.print(Text(plain(f"{name}: {found.title}"), style="bold"))
    seen = sum(one.status is not RuleStatus.NOT_SEEN for one in found.results)
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=12)
    table.add_column(overflow="fold")
    told = f"of {len(found.results)} {seen} seen, {len(found.broken)} broken"
    if found.edition:
        told += f", edition {found.edition}"
    table.add_row("  rules", Text(plain(told)))
    judged = f"{found.messages:,} judged, {found.messages_skipped:,} not"
    table.add_row("  messages", f"{judged}, since {stamp(found.began_at_us)}")
    for one in found.broken:
        what = f"{one.rule} × {one.broken:,}: {one.text} ({one.clause}) {one.reason}"
        table.add_row(f"  {one.level}", Text(plain(what)))
    console.print(table)
    if found.broken:
        console.print("  `instep conformance report` shows the evidence")
