"""`instep lake …`: runs and looks after the tables of the pipeline."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from instep.cli.log_lines import say
from instep.cli.output import Format, FormatOption, counted, json_line
from instep.cli.signals import outlive_hangup
from instep.cli.store import ConfigArgument
from instep.config.file import ConsumerConfiguration, default_path, load
from instep.errors import ConfigurationError
from instep_spark.answers.dbt_project import write_dbt_project
from instep_spark.cli.lake_port import LakeHealthTracker, serving
from instep_spark.lake.lake import Lake, RunProgress
from instep_spark.lake.pipeline import FOLLOWERS, LakeSettings, PipelineStep, check_tables
from instep_spark.lake.tables.schema import LAKE_TABLES
from instep_spark.lake.typed_views import typed_name
from instep_spark.lake.verify import Comparison
from instep_spark.options import DeltaOptions
from instep_spark.place import LakePlace
from instep_spark.session import delta_source, open_session

__all__ = ["lake"]


_LINE_S: Final = 5.0
"""Where there is no terminal, a step is told this long after the last line."""

_Tables = Annotated[
    str | None,
    typer.Option(
        "--tables",
        metavar="A,B",
        help=f"Only these tables, beside `entities`: of {', '.join(FOLLOWERS)} and those of "
        "`typed_classes`.",
    ),
]


def run(
    config: ConfigArgument = None,
    *,
    once: Annotated[
        bool, typer.Option("--once", help="End when all that has landed is in the tables.")
    ] = False,
    tables: _Tables = None,
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Serve /livez, /readyz, /metrics and the like there; loopback where no host is"
            " named.",
        ),
    ] = "",
    output: FormatOption = Format.TABLE,
) -> None:
    """Make the tables from `changes`, and keep them up to what lands.

    Example: instep lake run --once
    """
    names = _names(tables)
    found = list(_lakes(config))
    if not once and len(found) > 1:
        raise ConfigurationError(
            f"the configuration names {len(found)} lakes",
            where="lake run",
            hint="give each a configuration and a process of its own, or run them with --once",
        )
    if listen and len(found) > 1:
        raise ConfigurationError(
            f"the configuration names {len(found)} lakes",
            where="--listen",
            hint="this command works on one lake: give each a configuration of its own",
        )
    stop = threading.Event()
    watch = LakeHealthTracker(found[0].consumer)

    def keep_up(made: Lake) -> None:
        made.run(once=once, stop=stop, report_lags=watch.lacks)

    with serving(watch, listen) if listen else nullcontext() as address:
        if address:
            say(f"it tells how it does on {address}", logger="instep.operations")
        try:
            _each(found, keep_up, output, names, stop)
        except Exception as error:
            watch.failed(error)
            raise


def optimize(config: ConfigArgument = None, output: FormatOption = Format.TABLE) -> None:
    """Join small files.

    Example: instep lake optimize instep.toml
    """

    def join(made: Lake) -> None:
        removed = made.optimize()
        _print([{"table": name, "files_removed": count} for name, count in removed.items()], output)

    _each(_lakes(config), join, output)


def vacuum(
    config: ConfigArgument = None,
    retain_hours: Annotated[
        float,
        typer.Option(
            "--retain-hours", metavar="HOURS", min=0, help="Kept for readers of older versions."
        ),
    ] = 168.0,
    output: FormatOption = Format.TABLE,
) -> None:
    """Delete files that no version of the last hours needs.

    Example: instep lake vacuum --retain-hours 168
    """

    def delete(made: Lake) -> None:
        _print([{"table": name} for name in made.vacuum(retain_hours)], output)

    _each(_lakes(config), delete, output)


def rebuild(
    config: ConfigArgument = None, tables: _Tables = None, output: FormatOption = Format.TABLE
) -> None:
    """Make tables again from all of `changes`.

    They are made beside the old ones, and replace these.

    Example: instep lake rebuild --tables alarms
    """
    names = _names(tables)

    def make_again(made: Lake) -> None:
        rows = made.rebuild().items()
        _print([{"table": name, "rows": count} for name, count in rows], output)

    _each(_lakes(config), make_again, output, names)


def feed(
    config: ConfigArgument = None, tables: _Tables = None, output: FormatOption = Format.TABLE
) -> None:
    """Let Delta keep a change data feed.

    Readers that follow a table need it.

    Example: instep lake feed --tables entities
    """

    def keep(made: Lake) -> None:
        _print([{"table": name} for name in made.feed()], output)

    _each(_lakes(config), keep, output, _names(tables))


def history(
    config: ConfigArgument = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="Commits of each table.")
    ] = 10,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show the last commits of each table.

    Example: instep lake history --limit 5
    """
    _each(_lakes(config), lambda made: _print(made.history(limit), output), output)


def verify(
    config: ConfigArgument = None, tables: _Tables = None, output: FormatOption = Format.TABLE
) -> None:
    """Compute `entities` again from all of `changes`, and compare.

    Ends with 1 if they differ, or a table lacks rows.

    Example: instep lake verify --tables alarms
    """
    _each(_lakes(config), lambda made: _compared(made.verify(), output), output, _names(tables))


def audit(
    reading: Annotated[
        str,
        typer.Option(
            "--reading",
            metavar="URL",
            help="A lake with another reading of the logs, landed by a second consumer.",
        ),
    ],
    config: ConfigArgument = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Compare `entities` with another reading of the logs.

    The result is appended to the table `reconciliation`. Ends with 1 if they differ.

    Example: instep lake audit --reading file:///var/lib/second
    """
    _each(_lakes(config), lambda made: _compared(made.audit(reading), output), output)


def messages(
    store: Annotated[
        str, typer.Option("--store", metavar="URL", help="The SQL store that has the messages.")
    ],
    config: ConfigArgument = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Copy the messages that a SQL store has delivered.

    What became of each number is copied, too.

    Example: instep lake messages --store sqlite:///inbox.db
    """

    def copy(made: Lake) -> None:
        copied = {"messages": made.take_messages(store)}
        copied["sequence_numbers"] = made.take_numbers(store)
        _print([{"table": table, "rows": rows} for table, rows in copied.items()], output)

    _each(_lakes(config), copy, output)


def dbt(
    folder: Annotated[Path, typer.Argument(help="Where to write it: an empty folder.")],
    output: FormatOption = Format.TABLE,
) -> None:
    """Write a dbt project with all answers, for dbt-duckdb.

    `LAKE_URL` tells `dbt build` which lake to read.

    Example: instep lake dbt answers
    """
    columns = {
        name: {column.name: column.meaning for column in table.columns}
        for name, table in LAKE_TABLES.items()
    }
    written = write_dbt_project(folder, columns)
    _print([{"project": str(folder), "files": len(written)}], output)


lake: Final[Mapping[str, Callable[..., None]]] = {
    "run": run,
    "optimize": optimize,
    "vacuum": vacuum,
    "rebuild": rebuild,
    "feed": feed,
    "history": history,
    "verify": verify,
    "audit": audit,
    "messages": messages,
    "dbt": dbt,
}
"""Make tables of state, history and alarms in a lake."""


def _names(tables: str | None) -> list[str] | None:
    """The names of an option. Raises `ConfigurationError` for one that is no table."""
    if tables is None:
        return None
    names = [name for name in tables.split(",") if name]
    check_tables(names, "--tables")
    return names


def _each(
    found: Iterable[_ConfiguredLake],
    work: Callable[[Lake], None],
    output: Format,
    names: Sequence[str] | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Do this with each lake, in a session of its own, and with these tables; None: with all that
    it has. What is moved is reported meanwhile. With `stop`, SIGTERM and SIGINT set it.
    """
    console = Console(stderr=True, highlight=False)
    for options, settings, _ in found:
        typed = map(typed_name, options.typed_classes)
        tables = [*FOLLOWERS, *typed] if names is None else names
        say(f"starting Spark for {options.url}", logger="instep.lake")
        with _answering_alone(stop):
            spark = open_session(options.session, app="instep lake")
        source = options.redact(delta_source(spark))
        say(f"Spark {spark.version}, Delta: {source}", logger="instep.lake")
        with _view(console, output) as view:
            work(
                Lake(
                    options.url,
                    spark,
                    database=options.database,
                    managed=options.managed,
                    tables=tables,
                    settings=settings,
                    storage_options=options.storage_options,
                    report=view.step,
                    report_run=view.run,
                )
            )


@contextmanager
def _answering_alone(stop: threading.Event | None) -> Iterator[None]:
    """Within this, a JVM that starts ignores SIGTERM for good: a supervisor sends it to all
    processes of a service, and Spark would go away under a micro-batch. What comes meanwhile is
    answered behind it. With `stop`, the same of SIGHUP, which a terminal sends to all.
    """

    def asked(number: int, _frame: object) -> None:
        assert stop is not None
        stop.set()
        signal.signal(number, signal.SIG_DFL)  # the next one ends it at once

    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGHUP})
    answer = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if stop is not None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        if stop is not None:
            signal.signal(signal.SIGINT, asked)
            outlive_hangup()
        signal.signal(signal.SIGTERM, answer if stop is None else asked)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _ConfiguredLake(NamedTuple):
    options: DeltaOptions
    settings: LakeSettings
    consumer: str
    """The first consumer that lands there."""


def _lakes(config: Any) -> Iterator[_ConfiguredLake]:
    """The lakes of a configuration, each once."""
    path = config or default_path()
    seen: set[LakePlace] = set()
    for consumer in load(path).consumers:
        alignment = consumer.settings.alignment
        for options in _deltas(consumer):
            if options.place not in seen:
                seen.add(options.place)
                yield _ConfiguredLake(
                    options,
                    LakeSettings(
                        sweep_guard_share=alignment.sweep_guard_share,
                        sweep_guard_records=alignment.sweep_guard_records,
                        layout=options.layout,
                        upkeep_share=options.upkeep_share,
                        audit_reading=options.audit_reading,
                        audit_interval_s=options.audit_interval_s,
                    ),
                    consumer.name,
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
            json_line(
                {
                    "table": step.table,
                    "rows": step.rows,
                    "elapsed_s": round(step.seconds, 3),
                    "swept": step.swept,
                    "sweeps_held": [stream for _, stream in step.held],
                },
                flush=True,
            )
            return
        for sweep in step.swept:
            if not sweep.removed:
                continue
            what = counted(sweep.removed, "entities")
            self._print(f"{sweep.stream}: the sweep of attempt {sweep.attempt} removed {what}")
        for _, stream in step.held:
            self._print(f"{stream}: a sweep is held; see: instep sweep release")
        told = f"{step.table}: {counted(step.rows, 'rows')} in {step.seconds:.1f} s"
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=told)
        elif time.monotonic() - self._shown_s >= _LINE_S:
            self._print(told)

    def run(self, run: RunProgress) -> None:
        """Tell how far the run is; at its end, what it has done.

        Example: instep lake run --once
        """
        spent_s = time.monotonic() - self._begun_s
        rows = max(self._rows.values(), default=0)
        if self._json:
            json_line(
                {
                    "rows": rows,
                    "elapsed_s": round(spent_s, 3),
                    "rows_per_s": round(rows / spent_s),
                    "rows_behind": run.rows_behind,
                    "next_run_s": run.next_run_s,
                    "upkeep_s": round(run.upkeep_s, 3),
                    "files_joined": run.files_joined,
                    "audited": None if run.audited is None else run.audited.counts,
                    "audit_error": run.audit_error,
                    "elapsed_s_by_table": {n: round(s, 3) for n, s in self._seconds.items()},
                },
                flush=True,
            )
            return
        tables = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self._seconds.items())
        tables = tables or "no table was moved"
        if run.upkeep_s:
            tables += f"; upkeep {run.upkeep_s:.1f} s, {run.files_joined:,} files joined"
        if run.audited is not None:
            tables += f"; last audit: {run.audited}"
        if run.audit_error:
            tables += f"; no audit: {run.audit_error}"
        following = "end" if run.next_run_s is None else f"next run in {run.next_run_s:.0f} s"
        self._print(
            f"{rows:,} rows in {spent_s:.0f} s ({rows / spent_s:,.0f} rows/s), "
            f"{run.rows_behind:,} behind; {tables}; {following}"
        )

    def _print(self, line: str) -> None:
        self._shown_s = time.monotonic()
        console = self._progress.console if self._progress is not None else self._lines
        console.print(line, markup=False, soft_wrap=True)


@contextmanager
def _view(console: Console, output: Format) -> Iterator[_View]:
    # Lines that are read by a program go to stdout, even where stderr is a terminal.
    if output is Format.JSONL or not (console.is_terminal and sys.stdout.isatty()):
        yield _View(output, None)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield _View(output, progress)


def _compared(found: Comparison, output: Format) -> None:
    """Print the comparison. Raises `typer.Exit` with 1 where it differs."""
    if output is Format.JSONL:
        for one in found.examples:
            json_line(one)
        report: dict[str, Any] = {"counts": found.counts}
        if found.rows_read is not None:
            report["rows_read"] = found.rows_read
            report["rows_behind_by_table"] = dict(found.rows_behind)
            report["altered_rows_by_table"] = dict(found.altered)
        json_line({"report": report}, flush=True)
    else:
        _print(list(found.examples), output)
        Console(highlight=False).print(str(found))
    if not found.clean:
        raise typer.Exit(1)


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
