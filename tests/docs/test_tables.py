"""The tables of the reference are complete: every key, error, deviation and command is listed."""

import re
from pathlib import Path

import msgspec
import pytest
import typer

from docs import tables
from instep import errors
from instep.alignment.settings import AlignmentSettings
from instep.cli.app import app
from instep.cli.command_group import commands_of
from instep.cli.exit_codes import EXIT_CODES
from instep.config.attribute_docs import attribute_docs
from instep.runtime.settings import ConsumerSettings, IntakeSettings
from instep.sequencing.outbox import OutboxSettings
from instep.sequencing.settings import SequencerSettings
from instep_didcomm.deviations import DEVIATIONS as DIDCOMM_DEVIATIONS
from instep_didcomm.options import Options as DidcommOptions
from instep_didcomm.options import Peer
from instep_didcomm.wire.protocols import Protocol
from instep_http import ListenTls
from instep_nats.options import Options as NatsOptions
from instep_sdpi.deviations import DEVIATIONS as SDPI_DEVIATIONS
from instep_sdpi.options import Options as SdpiOptions
from instep_sdpi.options import SubscriptionOptions as SdpiSubscription
from instep_spark.options import DeltaOptions
from instep_spark.session import SparkOptions
from instep_sql.options import SqlOptions, options_type
from instep_tapi.deviations import DEVIATIONS
from instep_tapi.options import Bearer, Login, OAuth2, Options, StreamOptions, TapiTls
from instep_wsr.deviations import DEVIATIONS as WSR_DEVIATIONS
from instep_wsr.options import Options as WsrOptions
from instep_wsrm.deviations import DEVIATIONS as WSRM_DEVIATIONS
from instep_wsrm.options import Options as WsrmOptions

KEY = re.compile(r"`(source|settings|sink|intake|sequence|outbox)\.(\w+)`")
STRUCTS: list[type[msgspec.Struct]] = [
    Options,
    StreamOptions,
    Bearer,
    OAuth2,
    Login,
    TapiTls,
    DidcommOptions,
    Peer,
    Protocol,
    ListenTls,
    WsrmOptions,
    WsrOptions,
    NatsOptions,
    SdpiOptions,
    SdpiSubscription,
    SqlOptions,
    DeltaOptions,
    SparkOptions,
    ConsumerSettings,
    AlignmentSettings,
]


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_every_key_of_the_configuration_has_its_meaning(struct: type[msgspec.Struct]) -> None:
    markdown = tables.configuration()
    for field in msgspec.structs.fields(struct):
        meaning = attribute_docs(struct).get(field.name)
        assert meaning, f"{struct.__name__}.{field.name} has no docstring"
        assert f"| `{field.encode_name}` | " in markdown
        assert meaning.replace("``", "`") in markdown


@pytest.mark.parametrize("name", tables.PAGES)
def test_the_committed_pages_are_current(name: str) -> None:
    # To write them anew: python -m docs.tables
    committed = (tables.FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert committed == tables.page_text(name), "run: python -m docs.tables"


def test_types_and_defaults_are_shown_in_words_of_toml() -> None:
    markdown = tables.configuration().splitlines()
    starts = (
        "| `endpoints` | list of texts | required | ",
        "| `hold_records` | integer | 50,000 | ",
        "| `quiet_s` | number | 5 | ",
        "| `compression` | true or false | `true` | ",
        '| `synchronous` | `"full"` or `"normal"` | `"full"` | ',
        "| `alignment` | table |  | ",
    )
    for start in starts:
        assert any(line.startswith(start) for line in markdown), start


def test_every_error_is_listed_with_its_code() -> None:
    rows = tables.error_codes().splitlines()[2:]
    markdown = {row.split("`")[3]: row for row in rows}
    assert markdown.keys() == set(errors.__all__) - {"InstepError"}
    assert markdown["UnreachableError"].startswith(
        "| `unreachable` | `UnreachableError` | yes | No "
    )
    assert markdown["TlsError"].startswith("| `tls` | `TlsError` | no | ")


def test_every_deviation_is_listed() -> None:
    markdown = tables.deviations()
    every = (DEVIATIONS, DIDCOMM_DEVIATIONS, WSRM_DEVIATIONS, WSR_DEVIATIONS, SDPI_DEVIATIONS)
    for known in every:
        assert all(f"| `{kind}` | {text} |" in markdown for kind, text in known.items())
    assert "| `offset-backwards` | " in markdown


def test_no_help_shows_the_name_of_a_python_type() -> None:
    assert re.findall(r"<(?:str|int|float|bool|list|path)\b[^>]*>", tables.command_line()) == []


def test_every_command_is_listed_with_its_help() -> None:
    markdown = tables.command_line()
    names = commands_of(typer.main.get_command(app))
    assert {"status", "provider", "lake"} <= names.keys()
    for name in names:
        assert f"## instep {name}\n\n```text\nUsage: instep {name} " in markdown
    assert "## instep quarantine replay\n" in markdown


def test_the_schema_is_that_of_a_new_store() -> None:
    markdown = tables.sql_schema()
    tables_shown = ("stream", "receiver", "entity", "change", "quarantine", "sequence")
    for name in (f"instep_{table}" for table in tables_shown):
        assert f"CREATE TABLE {name} (" in markdown
    assert "CREATE VIEW instep_entities AS" in markdown


def test_the_page_of_bounds_has_the_defaults_of_the_code() -> None:
    page = Path(__file__).parents[2] / "docs" / "topics" / "bounds.md"
    places: dict[str, tuple[type[msgspec.Struct], ...]] = {
        "source": (Options, DidcommOptions, WsrmOptions),
        "settings": (ConsumerSettings,),
        "sink": (options_type(),),
        "intake": (IntakeSettings,),
        "sequence": (SequencerSettings,),
        "outbox": (OutboxSettings,),
    }
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line[0:1] == "|"]
    named = [(place, key, row) for row in rows for place, key in KEY.findall(row)]
    assert len(named) > 15
    for place, key, row in named:
        fields = [f for kind in places[place] for f in msgspec.structs.fields(kind)]
        values = [field.default or 0 for field in fields if field.name == key]
        assert values, key
        assert any(_states(row, value) for value in values), (key, row)


def _states(row: str, value: float) -> bool:
    """Whether a row states a default, in any unit; 0 is none."""
    units = {" MiB": 2**20, " GiB": 2**30, " s": 1, " days": 86_400}
    spellings = [f"{value:,}", *(f"{value / size:g}{unit}" for unit, size in units.items())]
    return not value or any(spelling in row for spelling in spellings)


def test_the_exit_codes_are_those_of_every_command() -> None:
    page = (Path(tables.__file__).parent / "reference" / "command-line.md").read_text()
    assert [row for row in page.splitlines() if re.match(r"\| \d \|", row)] == [
        f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()
    ]
