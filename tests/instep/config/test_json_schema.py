"""The schema of `instep.toml` judges as `instep check` does, where one key decides."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from instep.config.file import load
from instep.config.json_schema import json_schema
from instep.config.plugins import check
from instep.errors import ConfigurationError
from tests.docs.snippets_kit import VARIABLE, pages, snippets

jsonschema = pytest.importorskip("jsonschema", reason="judges documents by the schema")

REPOSITORY = Path(__file__).resolve().parents[3]
CONSUMER = """
[[consumers]]
name = "east"
{more}
[consumers.source]
{source}
[consumers.sink]
{sink}
"""
GOOD = {
    "more": "",
    "source": 'kind = "tapi"\nendpoints = ["http://127.0.0.1:1"]',
    "sink": 'kind = "sql"\nurl = "sqlite:///network.db"',
}


def documented() -> list[Any]:
    """Every configuration in the documentation, with its page and line."""
    return [
        pytest.param(snippet.text, id=f"{page.relative_to(REPOSITORY)}:{snippet.line}")
        for page in pages(REPOSITORY)
        for snippet in snippets(page.read_text(encoding="utf-8"))
        if snippet.mark == "file" and snippet.value.endswith(".toml")
    ]


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def checked(text: str, folder: Path) -> str:
    """What `instep check` says of a file; empty if it is good."""
    path = folder / "instep.toml"
    path.write_text(text)
    try:
        variables = dict.fromkeys(VARIABLE.findall(text), "example")
        for consumer in load(path, variables).consumers:
            check(consumer)
    except ConfigurationError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("text", documented())
def test_every_documented_configuration_is_accepted(text: str, validator: Any) -> None:
    assert [error.message for error in validator.iter_errors(tomllib.loads(text))] == []


@pytest.mark.parametrize(
    "part",
    [
        {},
        {"sink": 'kind = "sql"\nurl = "${STORE_URL}"\njournal = "${JOURNAL}"'},
        {"source": 'kind = "tapi"\nendpoints = "https://ctrl.example"'},
        {"source": 'kind = "tapi"\nendpoints = ["${ONE}"]\nauth = { kind = "none" }'},
        {"source": 'kind = "tapi"\nendpoints = ["http://h"]\nheaders = { Origin = "a" }'},
        {"more": "settings = { reconnect_max_s = 5, alignment = { quiet_s = 1 } }"},
    ],
)
def test_what_is_good_is_accepted(part: dict[str, str], validator: Any) -> None:
    text = CONSUMER.format(**GOOD | part)
    assert [error.message for error in validator.iter_errors(tomllib.loads(text))] == []


WRONG = [
    "",
    "[consumers]\nname = 'east'",
    "consumer = 1",
    CONSUMER.format(**GOOD | {"more": "nam = 1"}),
    CONSUMER.format(**GOOD | {"source": 'kind = "tapy"\nendpoints = ["http://h"]'}),
    CONSUMER.format(**GOOD | {"source": 'endpoints = ["http://h"]'}),
    CONSUMER.format(**GOOD | {"source": 'kind = "tapi"'}),
    CONSUMER.format(**GOOD | {"source": 'kind = "tapi"\nenpoints = ["http://h"]'}),
    CONSUMER.format(**GOOD | {"source": 'kind = "tapi"\nendpoints = []'}),
    CONSUMER.format(**GOOD | {"source": 'kind = "tapi"\nendpoints = ["127.0.0.1:8548"]'}),
    CONSUMER.format(**GOOD | {"source": GOOD["source"] + "\nhold_records = 0"}),
    CONSUMER.format(**GOOD | {"source": GOOD["source"] + '\nhold_records = "many"'}),
    CONSUMER.format(**GOOD | {"source": GOOD["source"] + '\nauth = { kind = "basic" }'}),
    CONSUMER.format(**GOOD | {"source": GOOD["source"] + '\nstreams = { clases = ["NODE"] }'}),
    CONSUMER.format(**GOOD | {"source": GOOD["source"] + "\nfail_over = { probe_every_s = 0 }"}),
    CONSUMER.format(**GOOD | {"source": 'kind = "wsrm"\nlisten = 9555'}),
    CONSUMER.format(**GOOD | {"sink": 'kind = "postgres"\nurl = "postgresql://h/d"'}),
    CONSUMER.format(**GOOD | {"sink": 'kind = "sql"'}),
    CONSUMER.format(**GOOD | {"sink": 'kind = "sql"\nurl = "sqlite://network.db"'}),
    CONSUMER.format(**GOOD | {"sink": 'kind = "sql"\nurl = "mysql://h/d"'}),
    CONSUMER.format(**GOOD | {"sink": GOOD["sink"] + '\njurnal = "changes"'}),
    CONSUMER.format(**GOOD | {"sink": GOOD["sink"] + '\njournal = "all"'}),
    CONSUMER.format(**GOOD | {"sink": GOOD["sink"] + '\nschema = "a b"'}),
    CONSUMER.format(**GOOD | {"sink": GOOD["sink"] + "\nlease_s = 0.1"}),
    CONSUMER.format(**GOOD | {"sink": 'kind = "tee"\nsinks = []'}),
    CONSUMER.format(**GOOD | {"sink": 'kind = "tee"\nsinks = [{ url = "x" }, { url = "y" }]'}),
    CONSUMER.format(**GOOD | {"more": "settings = { batch_records = 0 }"}),
    CONSUMER.format(**GOOD | {"more": "settings = { alignment = { sweep_guard_share = 2.0 } }"}),
]


@pytest.mark.parametrize("text", WRONG)
def test_what_check_refuses_is_refused(text: str, validator: Any, tmp_path: Path) -> None:
    assert checked(text, tmp_path)
    assert list(validator.iter_errors(tomllib.loads(text)))


def test_every_key_says_what_it_means() -> None:
    schema = json_schema()
    for name, definition in schema["$defs"].items():
        for key, told in definition.get("properties", {}).items():
            assert told.get("description"), (name, key)


def test_every_documented_key_of_an_inline_table_is_known() -> None:
    # Keys that stand in prose as `source.fail_over`, `settings.reconnect_late_s`.
    schema = json_schema()
    known = {key for one in schema["$defs"].values() for key in one.get("properties", {})}
    prose = re.compile(r"`(?:source|sink|settings|consumers)\.([a-z_.]+)`")
    for page in pages(REPOSITORY):
        for path in prose.findall(page.read_text(encoding="utf-8")):
            assert set(path.strip(".").split(".")) <= known, (page.name, path)
