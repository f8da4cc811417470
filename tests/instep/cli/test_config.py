"""`instep config`."""

from __future__ import annotations

import json

import pytest

from instep.config.reference import tables
from tests.instep.cli.cli_kit import failed, instep, lines


@pytest.mark.parametrize("columns", [60, 80, 132])
def test_the_keys_are_read_at_any_width(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    result = instep("config", "--keys")
    assert result.exit_code == 0
    shown = result.stdout.splitlines()
    assert max(map(len, shown)) <= columns
    assert shown[0] == "the top of the file"
    for table in tables():
        for key in table.keys:
            assert any(line.startswith(key.name) for line in shown), key.name


def test_the_keys_as_json_lines() -> None:
    found = lines(instep("config", "--keys", "--format", "jsonl"))
    [journal] = [line for line in found if (line["plugin"], line["key"]) == ("sql", "journal")]
    meaning = journal.pop("meaning")
    assert meaning.startswith("How much of each change the journal keeps for subscribers. ")
    assert '"changes": Which entity changed, and how. ' in meaning
    assert journal == {
        "table": "consumers.sink",
        "plugin": "sql",
        "kind": "sql",
        "key": "journal",
        "type": '"bodies" or "changes" or "off" or "previous"',
        "required": False,
        "default": "off",
    }


def test_the_schema_is_one_json_document() -> None:
    schema = json.loads(instep("config", "--schema").stdout)
    assert schema["title"] == "instep.toml"
    assert "consumers" in schema["properties"]


def test_one_of_the_two_is_asked_for() -> None:
    assert "--keys" in failed(instep("config", "--keys", "--schema"), 2)
    assert instep("config").stdout == instep("config", "--keys").stdout
