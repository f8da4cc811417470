"""`instep lake …`: runs and looks after the tables of the pipeline."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from instep.cli.output import Format, FormatOption, json_line
from instep.cli.store import ConfigArgument
from instep.config.file import ConsumerConfiguration, default_path, load
from instep.errors import ConfigurationError
from instep_spark.lake.lake import Lake, RunProgress
from instep_spark.lake.pipeline import FOLLOWERS, LakeSettings, PipelineStep, check_tables
from instep_spark.lake.verify import Comparison
from instep_spark.options import DeltaOptions
from instep_spark.place import LakePlace
from instep_spark.session import open_session

__all__ = ["lake"]

_LINE_S: Final = 5.0
"""Where there is no terminal, a step is told this long after the last line."""


class Verb(StrEnum):
    """What to do with a lake."""

    RUN = "run"
    OPTIMIZE = "optimize"
    VACUUM = "vacuum"
    REBUILD = "rebuild"
    FEED = "feed"
    HISTORY = "history"
    VERIFY = "verify"
    AUDIT = "audit"
    MESSAGES = "messages"


def lake(
    verb: Annotated[Verb, typer.Argument(help="What to do.", show_default=False)],
    config: ConfigArgument = None,
    *,
    once: Annotated[
        bool, typer.Option("--once", help="run: end when all that has landed is in the tables.")
    ] = False,
    tables: Annotated[
        str,
        typer.Option(
            "--tables",
            metavar="A,B",
            help="run: the tables beside `entities`. rebuild, feed: these.",
        ),
    ] = ",".join(FOLLOWERS),
    retain_hours: Annotated[
        float, typer.Option("--retain-hours", min=0, help="vacuum: for readers of older versions.")
    ] = 168.0,
    limit: Annotated[int, typer.Option("--limit", min=1, help="history: commits a table.")] = 10,
    reading: Annotated[
        str | None,
        typer.Option("--reading", metavar="URL", help="audit: a lake with a new reading."),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="URL", help="messages: the SQL store that has them."),
    ] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Make tables of state, history and alarms in a lake.

    They are brought up to what has landed, and looked after.

    run: from `changes` to the tables. optimize: join small files. vacuum: delete files that no
    version needs. rebuild: make tables again from `changes`, beside the old ones, and replace
    these. feed: let Delta keep a change data feed of tables, for readers that follow them.
    history: the last commits. verify: recompute `entities` from `changes` and
    compare. audit: compare `entities` with another reading of the same logs. messages: copy what a
    SQL store has delivered. Verify and audit end with 1 where something is wrong.
    """
    console = Console(stderr=True, highlight=False)
    names = [name for name in tables.split(",") if name]
    check_tables(names, "--tables")
    found = list(_lakes(config))
    if verb is Verb.RUN and not once and len(found) > 1:
        raise ConfigurationError(
            f"the configuration names {len(found)} lakes",
            where="lake run",
            hint="give each a configuration and a process of its own, or run them with --once",
        )
    for options, settings in found:
        stop = threading.Event()
        with _answering_alone(stop, verb):
            spark = open_session(options.spark, app="instep lake")
        with _view(console, output) as view:
            made = Lake(
                options.url,
                spark,
                database=options.database,
                managed=options.managed,
                tables=names,
                settings=settings,
                report=view.step,
                report_run=view.run,
            )
            if verb is Verb.RUN:
                made.run(once=once, stop=stop)
                continue
            wrong = _do(made, verb, retain_hours, limit, reading, store, output)
        if wrong:
            raise typer.Exit(1)


@contextmanager
def _answering_alone(stop: threading.Event, verb: Verb) -> Iterator[None]:
    """Within this, a JVM that starts ignores SIGTERM for good: a supervisor sends it to all
    processes of a service, and Spark would go away under a micro-batch. What comes meanwhile is
    answered behind it.
    """

    def asked(number: int, _frame: object) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)  # the next one ends it at once

    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    answer = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        if verb is Verb.RUN:
            signal.signal(signal.SIGINT, asked)
        signal.signal(signal.SIGTERM, asked if verb is Verb.RUN else answer)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _lakes(config: Any) -> Iterator[tuple[DeltaOptions, LakeSettings]]:
    """The lakes of a configuration, each once."""
    path = config or default_path()
    seen: set[LakePlace] = set()
    for consumer in load(path).consumers:
        alignment = consumer.settings.alignment
        for options in _deltas(consumer):
            if options.place not in seen:
                seen.add(options.place)
                yield (
                    options,
                    LakeSettings(
                        sweep_guard_share=alignment.sweep_guard_share,
                        sweep_guard_records=alignment.sweep_guard_records,
                    ),
                )
    if not seen:
        raise ConfigurationError(
            "no consumer has a delta sink",
            where=str(path),
            hint='give one [consumers.sink] with kind = "delta"',
        )


def _deltas(consumer: ConsumerConfiguration) -> list[DeltaOptions]:
    """The delta sinks of a consumer: its own, or those of its tee."""
    part = consumer.sink
    places: dict[str, Any] = {part.where: {**part.options, "kind": part.kind}}
    if part.kind == "tee":
        sinks = part.options.get("sinks", [])
        places = {f"{part.where}.sinks[{n}]": sink for n, sink in enumerate(sinks)}
    try:
        return [
            DeltaOptions.read(options, where)
            for where, options in places.items()
            if isinstance(options, dict) and options.get("kind") == "delta"
        ]
    except ConfigurationError as error:
        raise part.redact(error) from None


class _View:
    """Shows how a run goes on: lines, and on a terminal what is being done; or JSON lines."""

    def __init__(self, output: Format, progress: Progress | None) -> None:
        self._json = output is Format.JSONL
        self._lines = Console(highlight=False)
        self._progress = progress
        self._task = progress.add_task("waiting for changes", total=None) if progress else None
        self._begun_s = self._shown_s = time.monotonic()
        self._rows: Counter[str] = Counter()
        self._seconds: dict[str, float] = defaultdict(float)

    def step(self, step: PipelineStep) -> None:
        """A table was moved."""
        self._rows[step.table] += step.rows
        self._seconds[step.table] += step.seconds
        if self._json:
            streams = {"swept": step.swept, "held": step.held}
            named = {name: [stream for _, stream in keys] for name, keys in streams.items()}
            facts = {"table": step.table, "rows": step.rows, "seconds": round(step.seconds, 3)}
            json_line({**facts, **named}, flush=True)
            return
        for _, stream in step.held:
            self._print(f"{stream}: a sweep is held; see: instep sweep release")
        told = f"{step.table}: {step.rows:,} rows in {step.seconds:.1f} s"
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=told)
        elif time.monotonic() - self._shown_s >= _LINE_S:
            self._print(told)

    def run(self, run: RunProgress) -> None:
        """Tell how far the run is; at its end, what it has done."""
        spent_s = time.monotonic() - self._begun_s
        rows = max(self._rows.values(), default=0)
        if self._json:
            json_line(
                {
                    "rows": rows,
                    "seconds": round(spent_s, 3),
                    "rows_per_s": round(rows / spent_s),
                    "rows_behind": run.rows_behind,
                    "next_run_s": run.next_run_s,
                    "seconds_by_table": {n: round(s, 3) for n, s in self._seconds.items()},
                },
                flush=True,
            )
            return
        tables = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self._seconds.items())
        following = "end" if run.next_run_s is None else f"next run in {run.next_run_s:.0f} s"
        self._print(
            f"{rows:,} rows in {spent_s:.0f} s ({rows / spent_s:,.0f} rows/s), "
            f"{run.rows_behind:,} behind; {tables or 'no table was moved'}; {following}"
        )

    def _print(self, line: str) -> None:
        self._shown_s = time.monotonic()
        console = self._progress.console if self._progress is not None else self._lines
        console.print(line, markup=False, soft_wrap=True)


@contextmanager
def _view(console: Console, output: Format) -> Iterator[_View]:
    if output is Format.JSONL or not console.is_terminal:
        yield _View(output, None)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield _View(output, progress)


def _do(
    made: Lake,
    verb: Verb,
    retain_hours: float,
    limit: int,
    reading: str | None,
    store: str | None,
    output: Format,
) -> bool:
    """Carry out the verb. Returns whether something was found to be wrong."""
    match verb:
        case Verb.OPTIMIZE:
            removed = made.optimize()
            rows = [{"table": name, "files_removed": count} for name, count in removed.items()]
            _print(rows, output)
        case Verb.VACUUM | Verb.FEED:
            names = made.feed() if verb is Verb.FEED else made.vacuum(retain_hours)
            _print([{"table": name} for name in names], output)
        case Verb.REBUILD:
            rows = [{"table": name, "rows": count} for name, count in made.rebuild().items()]
            _print(rows, output)
        case Verb.HISTORY:
            _print(made.history(limit), output)
        case Verb.VERIFY:
            return _compared(made.verify(), output)
        case Verb.AUDIT:
            if reading is None:
                raise ConfigurationError(
                    "audit needs another reading of the logs",
                    where="--reading",
                    hint="land one with a second consumer, and give the URL of its lake",
                )
            return _compared(made.audit(reading), output)
        case Verb.MESSAGES:
            if store is None:
                raise ConfigurationError(
                    "messages are copied from a store", where="--store", hint="give its URL"
                )
            _print([{"table": "messages", "rows": made.take_messages(store)}], output)
    return False


def _compared(found: Comparison, output: Format) -> bool:
    counts = {name: getattr(found, name) for name in ("right", "stale", "bogus", "missing")}
    if output is Format.JSONL:
        for one in found.examples:
            json_line(one)
        json_line({"report": counts}, flush=True)
    else:
        _print(list(found.examples), output)
        report = ", ".join(f"{count:,} {name}" for name, count in counts.items())
        Console(highlight=False).print(report)
    return not found.clean


def _print(rows: list[dict[str, Any]], output: Format) -> None:
    if output is Format.JSONL:
        for row in rows:
            json_line(row)
    elif rows:
        names = [name for name in rows[0] if name != "metrics"]
        table = Table(*names)
        for row in rows:
            table.add_row(*(str(row[name]) for name in names))
        Console(highlight=False).print(table)
