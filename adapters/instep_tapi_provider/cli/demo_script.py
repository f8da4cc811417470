"""The steps of `instep demo`; each step prints what it does and checks the result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from instep.alignment.settings import AlignmentSettings
from instep.cli.output import Format, json_line
from instep.config.plugins import open_reader, store_plugin
from instep.runtime.consumer import Consumer
from instep.runtime.settings import ConsumerSettings
from instep_tapi.options import read_options
from instep_tapi.source import TapiSource
from instep_tapi_provider import Provider, ProviderSettings
from instep_tapi_provider.cli.demo_sides import PATIENCE_S, Phantom, Sides
from instep_tapi_provider.topology import topology_context

__all__ = ["DemoScript"]

_TIME_SCALE: Final = 1_800.0
"""Ten minutes of compaction delay pass in a third of a second, four hours of retention in eight."""
_SETTINGS: Final = ConsumerSettings(
    reconnect_initial_s=0.2,
    reconnect_max_s=0.5,
    poll_state_s=0.5,
    alignment=AlignmentSettings(quiet_s=1.0, unreached_quiet_s=3.0),
)
_ALARMS: Final = 200
_STORM_S: Final = 4
_SHORT_LOSS_S: Final = 1.5
_NAMES_SHOWN: Final = 2
_COUNTS: Final = ("provider", "store", "equal", "missing", "stale", "phantom")
"""What is counted of each class at the end."""


class DemoScript:
    """Runs the demo: drives both sides and prints what they do."""

    def __init__(
        self,
        console: Console,
        *,
        topology: str,
        seed: int,
        store: str,
        output: Format = Format.TABLE,
    ) -> None:
        """With `Format.JSONL`, each fact is a JSON object a line of stdout, and `console` is left
        alone.
        """
        self._console = console
        self._output = output
        self._step = ""
        self._topology = topology
        self._provider = Provider(
            topology_context(topology), ProviderSettings(time_scale=_TIME_SCALE, seed=seed)
        )
        self._provider.raise_alarms(_ALARMS)
        self._url = store
        self._kept = True

    async def run(self, changes_per_s: float) -> bool:
        """Run all steps. Returns True when each step succeeded and both sides are equal."""
        sink = store_plugin(self._url).build({"url": self._url}, "--store")
        async with self._provider:
            options = read_options({"endpoints": [self._provider.url]}, "demo")
            source = TapiSource(options, "demo")
            await self._discovery(source)
            consumer = Consumer("demo", source, sink, _SETTINGS)
            async with consumer, open_reader(self._url) as reader:
                sides = Sides(self._provider, consumer, reader)
                await self._initial_alignment(sides)
                await self._storm(sides, changes_per_s)
                await self._short_loss(sides, changes_per_s)
                await self._long_loss(sides)
                await self._comparison(sides)
        return self._kept

    # -- the steps -------------------------------------------------------------------------------

    async def _discovery(self, source: TapiSource) -> None:
        self._heading("Discovery", "read the stream context and choose (TR-548 ST-0.1, ST-0.2)")
        survey = await source.survey()
        infos = {info.id: info for info in await source.discover()}
        self._print(f"{self._topology} at {survey.address.context}")
        for choice in survey.choices:
            chosen = "chosen" if choice.chosen else "not chosen"
            self._print(f"stream {choice.id}: {chosen}, since {choice.reason}")
            if choice.id in infos:
                info = infos[choice.id]
                type_ = choice.stream.type
                assert type_ is not None
                self._print(f"  {type_.storage_strategy} log of {', '.join(info.classes)}")
                self._print(
                    f"  compaction delay {info.compaction_delay_s or 0:.2g} s, tombstone retention "
                    f"{info.tombstone_retention_s or 0:.2g} s (hours, made to pass fast)"
                )

    async def _initial_alignment(self, sides: Sides) -> None:
        self._heading("Initial alignment", "no token: from the oldest record (TR-548 ST-2.1)")
        with self._console.status("aligning"):
            await sides.consumer.aligned(PATIENCE_S)
        for stream in sides.consumer.health().streams:
            self._print(
                f"stream {stream.stream}: {stream.phase} in attempt {stream.attempt}, "
                f"{stream.records:,} records committed"
            )

    async def _storm(self, sides: Sides, changes_per_s: float) -> None:
        self._heading("Event storm", f"{changes_per_s:,.0f} changes a second for {_STORM_S} s")
        before = sides.counts()
        last_s, last = time.monotonic(), before
        await self._provider.start_storm(changes_per_s)
        for _ in range(_STORM_S):
            with self._console.status("storm"):
                await asyncio.sleep(1)
            now_s, now = time.monotonic(), sides.counts()
            rate = now.since(last).received / (now_s - last_s)
            last_s, last = now_s, now
            streams = sides.consumer.health().streams
            slowest = max(streams, key=lambda stream: stream.read_delay_s)
            self._print(
                f"{rate:,.0f} records/s, read delay {slowest.read_delay_s * 1e3:.0f} ms: "
                f"{slowest.fidelity}"
            )
        await self._provider.stop_storm()
        await sides.agreement()
        did = sides.counts().since(before)
        self._check(
            did.received == did.sent <= did.appended,
            f"{did.appended:,} records appended, {did.sent:,} sent, {did.received:,} committed",
        )

    async def _short_loss(self, sides: Sides, changes_per_s: float) -> None:
        self._heading("Short loss", f"{_SHORT_LOSS_S} s without connection while changes go on")
        before, attempts = sides.counts(), sides.attempts()
        await sides.disconnect()
        await self._provider.start_storm(changes_per_s)
        with self._console.status("no connection"):
            await asyncio.sleep(_SHORT_LOSS_S)
        await self._provider.stop_storm()
        sides.reconnect()
        await sides.agreement()
        did = sides.counts().since(before)
        streams = len(self._provider.streams)
        self._check(
            did.resumes == streams, f"{did.resumes} of {streams} streams resumed after their token"
        )
        # A probe is sent the oldest records, of which it reads one.
        sent = did.received if did.from_oldest else did.sent
        self._check(
            did.received == sent <= did.appended,
            f"nothing was read again: {did.appended:,} appended, {sent:,} sent, "
            f"{did.received:,} received",
        )
        self._check(sides.attempts() == attempts, "no new alignment attempt")

    async def _long_loss(self, sides: Sides) -> None:
        retention_s = max(
            stream.log.settings.tombstone_retention_s for stream in self._provider.streams
        )
        self._heading("Long loss", f"longer than the tombstone retention of {retention_s:.2g} s")
        attempts = sides.attempts()
        await sides.disconnect()
        site, ended = sides.remove_site()
        self._print(f"while nobody listens, {site} is taken down: {ended:,} entities end")
        with self._console.status("no connection"):
            await asyncio.sleep(retention_s + 1.5)
        phantoms = await sides.phantoms()
        forgotten = sum(map(sides.forgotten, phantoms))
        self._print(f"the store holds {len(phantoms):,} phantoms:")
        self._name(phantoms)
        self._check(
            bool(phantoms) and forgotten == len(phantoms),
            f"the log has forgotten the end of {forgotten:,} of them: no record will remove them",
        )
        sides.reconnect()
        with self._console.status("aligning"):
            await sides.until(
                lambda: all(now > attempts[id_] for id_, now in sides.attempts().items()),
                "a new alignment attempt",
            )
            await sides.consumer.aligned(PATIENCE_S)
        most = max(now - attempts[id_] for id_, now in sides.attempts().items())
        # Where the last record before the loss was an end, the log ends before it now: it might be
        # another log, and is read once more (A3).
        how = "one new attempt" if most == 1 else "two new attempts"
        restarted = f"{how}: restarted from the oldest record, marked what it met"
        self._check(most in {1, 2}, restarted)
        left = len(await sides.phantoms())
        self._check(left == 0, f"swept the rest: {left} of {len(phantoms):,} phantoms are left")

    async def _comparison(self, sides: Sides) -> None:
        self._heading("Comparison", "provider and store, entity by entity")
        await sides.agreement()
        table = Table(box=None)
        table.add_column("Class")
        for heading in _COUNTS:
            table.add_column(heading.capitalize(), justify="right")
        equal, agrees = 0, True
        for entity_class, one in (await sides.compared()).items():
            differing = (len(one.missing), len(one.stale), len(one.phantom))
            counts = (one.stated, one.held, one.equal, *differing)
            table.add_row(entity_class, *(f"{count:,}" for count in counts))
            if self._output is Format.JSONL:
                named = {"counts": dict(zip(_COUNTS, counts, strict=True))}
                json_line({"step": self._step, "class": entity_class, **named}, flush=True)
            equal, agrees = equal + one.equal, agrees and one.agrees
        if self._output is Format.TABLE:
            self._console.print(table)
        self._check(
            agrees and equal > 0,
            f"{equal:,} entities are equal, provider and store {'' if agrees else 'dis'}agree",
        )

    # -- output -----------------------------------------------------------------------------------

    def _heading(self, title: str, text: str) -> None:
        self._step = title
        if self._output is Format.JSONL:
            json_line({"step": title, "text": text}, flush=True)
            return
        self._console.print()
        self._console.print(Text(title, style="bold"), Text(text, style="dim"), sep=": ")

    def _print(self, text: str) -> None:
        if self._output is Format.JSONL:
            json_line({"step": self._step, "text": text.strip()}, flush=True)
            return
        self._console.print(Text(f"  {text}"), soft_wrap=True)

    def _check(self, kept: bool, text: str) -> None:
        self._kept = self._kept and kept
        if self._output is Format.JSONL:
            json_line({"step": self._step, "text": text, "kept": kept}, flush=True)
            return
        mark = Text("  ✓ " if kept else "  ✗ ", style="bold green" if kept else "bold red")
        self._console.print(mark + Text(text, style=""), soft_wrap=True)

    def _name(self, phantoms: Sequence[Phantom]) -> None:
        names: dict[str, list[str]] = {}
        for phantom in phantoms:
            names.setdefault(phantom.entity_class, []).append(phantom.name)
        for entity_class, known in names.items():
            more = len(known) - _NAMES_SHOWN
            rest = f" and {more:,} more" if more > 0 else ""
            self._print(f"  {entity_class}: {', '.join(known[:_NAMES_SHOWN])}{rest}")
