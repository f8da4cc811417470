"""`instep changes`."""

import json
import signal
from pathlib import Path

from tests.instep.cli.cli_kit import failed, fill, instep, lines, started, statement


def test_changes_come_in_the_order_of_commit_from_a_cursor_on(tmp_path: Path) -> None:
    url = fill(tmp_path, statement(1, b'{"a":1}'), statement(2, b'{"a":2}'), journal="previous")
    every = lines(instep("changes", "--store", url, "--format", "jsonl"))
    shown = [(line["cursor"], line["change"], line["key"]) for line in every]
    assert shown[0] == (1, "created", "k1")
    assert ("swept", "k1") in [(change, key) for _, change, key in shown]
    after = lines(instep("changes", "--store", url, "--after", "1", "--format", "jsonl"))
    assert after == every[1:]


def test_the_changes_of_one_entity_are_chosen(tmp_path: Path) -> None:
    url = fill(tmp_path, statement(1, b'{"a":1}'), statement(2, b'{"a":2}'), journal="changes")
    chosen = lines(instep("changes", "--store", url, "--key", "k2", "--format", "jsonl"))
    assert [(line["change"], line["key"]) for line in chosen] == [
        ("created", "k2"),
        ("swept", "k2"),
    ]
    shown = instep("changes", "--store", url, "--key", "k2", "--limit", "1").stdout
    assert "k2" in shown
    assert shown.rstrip().endswith("1 change (--limit)")


def test_a_line_holds_what_the_journal_keeps(tmp_path: Path) -> None:
    url = fill(tmp_path, statement(1, b'{"a" :1}'), journal="previous")
    created, *_, swept = lines(instep("changes", "--store", url, "--format", "jsonl"))
    assert created["consumer"] == "east"
    assert created["stream"] == "network"
    assert (created["class"], created["kind"], created["token"]) == ("NODE", "CREATE_UPDATE", "t1")
    assert created["body"] == {"a": 1}
    assert "previous" not in created
    assert created["appended_at"].startswith("2023-11-14T22:13:20.")
    assert swept["change"] == "swept"
    assert swept["kind"] is None
    assert swept["previous"] == {"a": 1}
    assert "body" not in swept


def test_a_table_shows_the_same(tmp_path: Path) -> None:
    result = instep("changes", "--store", fill(tmp_path, statement(1, b"{}"), journal="changes"))
    assert result.exit_code == 0
    assert "created" in result.stdout
    assert result.stdout.rstrip().endswith("3 changes")


def test_a_store_without_journal_shows_what_to_set(tmp_path: Path) -> None:
    error = failed(instep("changes", "--store", fill(tmp_path)), 1)
    assert "error: the store keeps no journal of changes" in error
    assert 'journal = "changes"' in error


def test_following_ends_with_a_signal_and_0(tmp_path: Path) -> None:
    url = fill(tmp_path, statement(1, b"{}"), journal="changes")
    process = started("changes", "--store", url, "--follow", "--format", "jsonl")
    assert process.stdout is not None
    with process:
        first = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    assert first["cursor"] == 1
    assert (process.returncode, errors) == (0, b"")
