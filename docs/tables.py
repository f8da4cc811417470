"""Writes the tables of the reference from the code, as Markdown: `python -m docs.tables`.

A test compares what is committed with what the code says.
"""

import asyncio
import inspect
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import typer
from typer.testing import CliRunner

from docs.operations import alert_pages
from instep import errors
from instep.cli.app import app
from instep.cli.command_group import commands_of
from instep.config import reference
from instep.config.plugins import deviations_of
from instep.conformance import Rule
from instep.metrics.figures import FIGURES, Figure, Subject
from instep.runtime.events import EVENTS
from instep.testing.relay import Side
from instep_didcomm.conformance import didcomm_rules
from instep_sdpi.conformance import sdpi_rules
from instep_spark.lake.tables import schema as lake
from instep_spark.lake.views import views_reference
from instep_spark.landing_schema import TABLES
from instep_sql import SqlStore
from instep_tapi.conformance.book import tapi_rules
from instep_wsr.conformance import wsr_rules
from instep_wsrm.conformance import wsrm_rules
from tests.freshness.__main__ import read_results as read_freshness
from tests.freshness.faults import FAULTS
from tests.prices.__main__ import read_results as read_prices
from tests.wire.__main__ import read_results
from tests.wire.matrix import KINDS, ROWS
from tests.wire.outcome import Outcome

__all__ = [
    "FOLDER",
    "PAGES",
    "command_line",
    "configuration",
    "deviations",
    "error_codes",
    "events",
    "figures",
    "freshness",
    "page_text",
    "prices",
    "sql_schema",
    "wire_results",
    "wire_rules",
    "write_pages",
]


def conformance_rules() -> str:
    """A chapter for each chapter of the rules, and a section for each rule."""
    parts = []
    for book in (tapi_rules(), sdpi_rules(), wsrm_rules(), wsr_rules(), didcomm_rules()):
        parts.append(f"## {book.title}")
        for chapter in dict.fromkeys(rule.chapter for rule in book.rules):
            parts.append(f"### {chapter}")
            parts += [_rule(rule) for rule in book.rules if rule.chapter == chapter]
        rows = [(one.clause, one.text, one.why) for one in book.unjudged]
        parts.append(f"### Not judged: {book.title}")
        parts.append(_table(("Clause", "It demands", "Why no rule is about it"), rows))
    return "\n\n".join(parts) + "\n"


def _rule(rule: Rule) -> str:
    clauses = "; ".join(f"{one.text}: {one.level}" for one in rule.clauses.values())
    example = ""
    if rule.right:
        example = f"\n\n- Right: `{rule.right}`\n- Wrong: `{rule.wrong}`"
    return (
        f"#### {rule.id}\n\n{rule.text} ({clauses})\n\n{rule.why}{example}\n\n"
        f"To see it: {rule.provoke}"
    )


def configuration() -> str:
    """Every key of `instep.toml`, table by table, with its type, default and meaning."""
    parts, shown = [], dict[type, str]()
    for one in reference.tables():
        title = f"`{one.heading}`"
        if one.struct in shown:
            parts.append(f"## {title}\n\nThe keys of {shown[one.struct]}.")
            continue
        shown[one.struct] = title
        rows = [(f"`{key.name}`", _code(key.type), _default(key), key.meaning) for key in one.keys]
        table = _table(("Key", "Type", "Default", "Meaning"), rows)
        parts.append("\n\n".join(filter(None, (f"## {title}", one.meaning, table))))
    return "\n\n".join(parts)


def error_codes() -> str:
    """Every error with its code, whether it is retriable, and what it means."""
    found = [getattr(errors, name) for name in errors.__all__]
    found.sort(key=lambda error: inspect.getsourcelines(error)[1])
    rows = [
        (
            f"`{error.code}`",
            f"`{error.__name__}`",
            "yes" if error.retriable else "no",
            _sentence(inspect.getdoc(error) or ""),
        )
        for error in found[1:]
    ]
    return _table(("Code", "Error", "Retriable", "When"), rows)


def deviations() -> str:
    """Every departure from its specification that is understood all the same."""
    kinds = ("tapi", "didcomm", "wsrm", "wsr", "sdpi", "nats")
    known = dict.fromkeys(pair for kind in kinds for pair in deviations_of(kind).items())
    rows = [(f"`{kind}`", text) for kind, text in known]
    return _table(("Kind", "What the other side did, and the clause"), rows)


def command_line() -> str:
    """What `--help` says of each command."""
    return "\n\n".join(_helps([], typer.main.get_command(app)))


def _helps(path: list[str], command: Any) -> Iterator[str]:
    environment = {"COLUMNS": "100", "NO_COLOR": "1"}
    told = CliRunner().invoke(app, [*path, "--help"], env=environment, prog_name="instep")
    if told.exit_code != 0:
        raise RuntimeError(f"{' '.join(path)} --help ends with {told.exit_code}")
    lines = "\n".join(line.rstrip() for line in told.output.splitlines()).strip("\n")
    yield f"## {' '.join(['instep', *path])}\n\n```text\n{lines}\n```"
    for name, inner in commands_of(command).items():
        yield from _helps([*path, name], inner)


def sql_schema() -> str:
    """The statements that make a store of this version in SQLite."""
    # A table, then its indexes by name: the order in which those were made is not always the same.
    # Without triggers, which depend on what is derived.
    query = (
        "SELECT s.sql FROM sqlite_master AS s JOIN sqlite_master AS t ON t.name = s.tbl_name"
        " WHERE s.sql IS NOT NULL AND s.name NOT LIKE 'sqlite_%' AND s.type <> 'trigger'"
        " ORDER BY t.rowid, s.type = 'index', s.name"
    )
    with TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        asyncio.run(_make_store(f"sqlite:///{path}"))
        with closing(sqlite3.connect(path)) as store:
            statements = [sql.expandtabs(2) for (sql,) in store.execute(query)]
    lines = ";\n\n".join(statements).splitlines()
    return "```sql\n" + "\n".join(line.rstrip() for line in lines) + ";\n```"


async def _make_store(url: str) -> None:
    async with SqlStore(url, alarms=True, measurements=True, references=True) as store:
        await store.open("schema")


def lake_tables() -> str:
    """The tables that a sink lands, and those that the pipeline on Spark makes of them."""
    landed = [
        f"## `{name}`\n\n"
        + _table(
            ("Column", "Type", "Meaning"),
            [(f"`{one.name}`", str(one.type), one.meaning) for one in columns],
        )
        for name, columns in TABLES.items()
    ]
    return "\n\n".join([*landed, *lake.reference(), views_reference()])


def wire_rules() -> str:
    """Every rule of the wire laboratory: what it plays, between whom, and its reports."""
    rows = [
        (
            f"`{rule.name}`",
            rule.plays(),
            ", ".join(str(side) for side in Side if side in rule.sides),
            ", ".join(rule.reports),
        )
        for rule in ROWS
    ]
    return _table(("Rule", "What it plays", "Between", "Public reports"), rows)


def wire_results() -> str:
    """The results of the last recorded run: rule × source, listener, sink, and each reason."""
    results, kinds = read_results(), list(KINDS)
    rows = []
    for rule in ROWS:
        found = results.get(rule.name, {})
        rows.append((f"`{rule.name}`", *(_result(found.get(kind)) for kind in kinds)))
    told = [
        f"- `{rule}`, {kind}: {outcome.result}: {outcome.reason.replace('<', '&lt;')}"
        for rule, by_kind in results.items()
        for kind, outcome in by_kind.items()
        if outcome.result != "ok"
    ]
    return "\n\n".join([_table(("Rule", *kinds), rows), "\n".join(told)])


def _result(outcome: Outcome | None) -> str:
    match outcome:
        case None:
            return "–"
        case Outcome("ok"):
            return "ok"
        case _:
            return f"**{outcome.result}**"


FOLDER = Path(__file__).parent / "reference" / "tables"


def freshness() -> str:
    """How long a green word stood over wrong data, of the last recorded run."""
    measured = read_freshness()
    rows = [
        (
            name,
            f"{measured[name]:.1f} s" if name in measured else "not measured",
            f"{fault.limit_s:.1f} s",
            fault.limit,
        )
        for name, fault in FAULTS.items()
    ]
    return _table(("Fault", "Green for", "Limit", "Which is"), rows)


def prices() -> str:
    """What proofs cost, of the last recorded run."""
    rows = [(one.what, one.found, one.limit) for one in read_prices()]
    return _table(("What happens", "What it costs", "Limit"), rows)


def figures() -> str:
    """Every figure that instep shows of itself, with the question that it answers."""
    parts = []
    for subject in Subject:
        rows = [
            (
                f"`{one.name}`" + (f", `{one.label}`" if one.label else ""),
                f"`{one.key}`",
                one.kind,
                one.question,
                _words_of(one),
            )
            for one in FIGURES
            if one.subject is subject
        ]
        heads = ("Metric", "Key", "Kind", "Question", "Meaning")
        parts.append(f"## {subject}\n\n{_table(heads, rows)}")
    return "\n\n".join(parts)


def events() -> str:
    """Every kind of event."""
    return _table(("Event", "When"), [(f"`{kind}`", text) for kind, text in EVENTS.items()])


def _words_of(figure: Figure) -> str:
    if not figure.values:
        return figure.meaning
    return f"{figure.meaning}. `{figure.label}`: {', '.join(map(str, figure.values))}"


PAGES = {
    "configuration": configuration,
    "errors": error_codes,
    "deviations": deviations,
    "command-line": command_line,
    "schema": sql_schema,
    "lake": lake_tables,
    "wire-rules": wire_rules,
    "wire-results": wire_results,
    "freshness": freshness,
    "prices": prices,
    "figures": figures,
    "alerts": alert_pages,
    "conformance-rules": conformance_rules,
    "events": events,
}
"""Name of the generated file → what writes it."""


def _code(words: str) -> str:
    """The words of a type, with the values that may be written as code."""
    return re.sub(r'"[^"]*"', lambda value: f"`{value[0]}`", words)


def _default(key: reference.Key) -> str:
    if key.required:
        return "required"
    if isinstance(key.default, int | float) and not isinstance(key.default, bool):
        return f"{key.default:,}".removesuffix(".0")
    return "" if key.default is None else f"`{msgspec.json.encode(key.default).decode()}`"


def _sentence(words: str) -> str:
    return " ".join(words.partition("\n\n")[0].split())


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("``", "`") for cell in line) + " |"
        for line in lines
    )


def page_text(name: str) -> str:
    """The content of a committed page of the reference."""
    return PAGES[name]() + "\n"


def write_pages() -> None:
    """Write all of them into `reference/tables`: they are committed, so that they can be read
    without building anything.
    """
    FOLDER.mkdir(exist_ok=True)
    for name in PAGES:
        (FOLDER / f"{name}.md").write_text(page_text(name), encoding="utf-8")


if __name__ == "__main__":
    write_pages()
