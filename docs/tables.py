"""Writes the tables of the reference from the code, as Markdown, so that they cannot drift."""

import asyncio
import inspect
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import typer
from sphinx.pycode import ModuleAnalyzer
from typer.testing import CliRunner

from instep import errors
from instep.alignment.settings import AlignmentSettings
from instep.cli.app import app
from instep.config.plugins import deviations_of
from instep.runtime.settings import ConsumerSettings, IntakeSettings
from instep.runtime.streams.sequenced_feed import SequencedFeedSettings
from instep_didcomm.options import Options as DidcommOptions
from instep_didcomm.options import Peer
from instep_didcomm.wire.protocols import Protocol
from instep_http import ListenTls, TlsOptions
from instep_sdpi.options import Options as SdpiOptions
from instep_sdpi.options import SubscriptionOptions as SdpiSubscription
from instep_spark.lake.tables import schema as lake
from instep_spark.lake.views import views_reference
from instep_spark.landing_schema import TABLES
from instep_spark.options import DeltaOptions
from instep_spark.session import SparkOptions
from instep_sql import SqlStore
from instep_sql.options import Journal, SqlOptions
from instep_tapi.options import Bearer, Login, OAuth2, Options, StreamOptions, TapiTls
from instep_wsr.options import Options as WsrOptions
from instep_wsrm.options import Options as WsrmOptions

__all__ = ["PAGES", "command_line", "configuration", "deviations", "error_codes", "sql_schema"]

_PLACES: tuple[tuple[str, str, type[msgspec.Struct]], ...] = (
    ('`[consumers.source]` with `kind = "tapi"`', "", Options),
    ("`streams` of a source", "All that are given must fit.", StreamOptions),
    ('`auth` with `kind = "bearer"`', "Exactly one of the three.", Bearer),
    ('`auth` with `kind = "oauth2"`', "RFC 6749, 4.4 and 4.3.", OAuth2),
    ('`auth` with `kind = "login"`', "A login of the controller's own.", Login),
    ("`tls` of a source", "", TapiTls),
    ('`[consumers.source]` with `kind = "didcomm"`', "", DidcommOptions),
    ("`peers` of a `didcomm` source", "", Peer),
    ("`protocols` of a `didcomm` source", "", Protocol),
    ("`tls` of a `didcomm`, `wsrm` or `wsr` source", "", ListenTls),
    ('`[consumers.source]` with `kind = "wsrm"`', "", WsrmOptions),
    ('`[consumers.source]` with `kind = "wsr"`', "", WsrOptions),
    ('`[consumers.source]` with `kind = "sdpi"`', "", SdpiOptions),
    ("`subscriptions` of an `sdpi` source", "", SdpiSubscription),
    ("`feed` of an `sdpi` source", "", SequencedFeedSettings),
    ("`tls` of an `sdpi` source", "", TlsOptions),
    ('`[consumers.sink]` with `kind = "sql"`', "", SqlOptions),
    ('`[consumers.sink]` with `kind = "delta"`', "", DeltaOptions),
    ("`spark` of a Delta sink", "", SparkOptions),
    ("`[consumers.settings]`", "", ConsumerSettings),
    ("`[consumers.settings.alignment]`", "", AlignmentSettings),
    ("`[consumers.settings.intake]`", "For sources that listen.", IntakeSettings),
)


def configuration() -> str:
    """Every key of `instep.toml`, place by place, with its type, default and meaning."""
    parts = []
    for title, words, struct in _PLACES:
        told = attribute_docs(struct)
        rows = [
            (f"`{field.encode_name}`", _type(field.type), _default(field), told[field.name])
            for field in msgspec.structs.fields(struct)
        ]
        table = _table(("Key", "Type", "Default", "Meaning"), rows)
        parts.append("\n\n".join(filter(None, (f"## {title}", words, table))))
    values = [(f'`"{value}"`', attribute_docs(Journal).get(value.name, "")) for value in Journal]
    parts.append(f"## Values of `journal`\n\n{_table(('Value', 'What is told'), values)}")
    return "\n\n".join(parts)


def attribute_docs(cls: type) -> dict[str, str]:
    """What stands below each attribute of a class in the code, inherited ones included."""
    found = {}
    for base in reversed([one for one in cls.__mro__ if one.__module__.startswith("instep")]):
        docs = ModuleAnalyzer.for_module(base.__module__).find_attr_docs()
        for (owner, name), lines in docs.items():
            if owner == base.__qualname__:
                found[name] = " ".join(" ".join(lines).split())
    return found


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
    kinds = ("tapi", "didcomm", "wsrm", "wsr", "sdpi")
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
    for name, inner in getattr(command, "commands", {}).items():
        yield from _helps([*path, name], inner)


def sql_schema() -> str:
    """The statements that make a store of this version in SQLite."""
    query = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
    with TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        asyncio.run(_make_store(f"sqlite:///{path}"))
        with closing(sqlite3.connect(path)) as store:
            statements = [sql.expandtabs(2) for (sql,) in store.execute(query)]
    lines = ";\n\n".join(statements).splitlines()
    return "```sql\n" + "\n".join(line.rstrip() for line in lines) + ";\n```"


async def _make_store(url: str) -> None:
    async with SqlStore(url) as store:
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


PAGES = {
    "configuration": configuration,
    "errors": error_codes,
    "deviations": deviations,
    "command-line": command_line,
    "schema": sql_schema,
    "lake": lake_tables,
}
"""Name of the generated file → what writes it."""


def _type(annotation: Any) -> str:
    """A type in words of TOML."""
    told = msgspec.json.schema(annotation, schema_hook=lambda _: {"type": "string"})
    return _schema_type(told, told.get("$defs", {}))


def _schema_type(told: dict[str, Any], known: dict[str, Any]) -> str:
    if reference := told.get("$ref"):
        return _schema_type(known[reference.rpartition("/")[2]], known)
    if values := told.get("enum"):
        return " or ".join(f"`{msgspec.json.encode(value).decode()}`" for value in values)
    if several := told.get("anyOf"):
        words = [_schema_type(one, known) for one in several if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(words))
    if told.get("type") == "array":
        return f"list of {_schema_type(told['items'], known)}s"
    names = {"object": "table", "string": "text", "boolean": "true or false"}
    return names.get(told["type"], str(told["type"]))


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    default = field.default
    if default is msgspec.NODEFAULT:
        return ""  # made anew each time: an empty table
    if default is None or default in ((), "") or isinstance(default, msgspec.Struct):
        return ""
    if isinstance(default, int | float) and not isinstance(default, bool):
        return f"{default:,}".removesuffix(".0")
    return f"`{msgspec.json.encode(default).decode()}`"


def _sentence(words: str) -> str:
    return " ".join(words.partition("\n\n")[0].split())


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("``", "`") for cell in line) + " |"
        for line in lines
    )


if __name__ == "__main__":
    sys.stdout.write(PAGES[sys.argv[1]]() + "\n")
