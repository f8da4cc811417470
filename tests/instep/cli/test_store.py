"""CONFIG or --store, and the options that choose: alike in every command."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from instep.model import Batch
from instep_sql import SqlStore
from tests.instep.cli.cli_kit import failed, fill, info, instep, lines, started, statement

CONFIG = """
[[consumers]]
name = "{name}"
source = {{ kind = "tapi", endpoints = ["http://127.0.0.1:1"] }}
sink = {{ kind = "sql", url = "{url}" }}
"""


async def _follow(url: str, consumer: str, classes: str) -> None:
    async with SqlStore(url, journal="changes") as store:
        await store.open(consumer)
        first = await store.position(info("network"))
        position = msgspec.structs.replace(first, token="t", ordinal=1, attempt=1, lineage=1)
        records = [
            statement(n, b'{"of":"%s"}' % consumer.encode(), c) for n, c in enumerate(classes)
        ]
        await store.commit(Batch("network", position, 0, records))


@pytest.fixture
def shared(tmp_path: Path) -> str:
    """A store of two controllers, whose streams and keys have the same names."""
    url = f"sqlite:///{tmp_path / 'network.db'}"
    asyncio.run(_follow(url, "east", "AAB"))
    asyncio.run(_follow(url, "west", "AC"))
    return url


def config(tmp_path: Path, url: str, *names: str) -> str:
    path = tmp_path / "instep.toml"
    path.write_text("".join(CONFIG.format(name=name, url=url) for name in names))
    return str(path)


def shown(*arguments: str) -> list[tuple[str, str]]:
    found = lines(instep(*arguments, "--format", "jsonl"))
    return [(line["consumer"], line["key"]) for line in found]


def test_consumers_of_one_store_are_told_apart(shared: str) -> None:
    assert shown("entities", "--store", shared, "--consumer", "west") == [
        ("west", "k0"),
        ("west", "k1"),
    ]
    assert len(shown("entities", "--store", shared, "--stream", "network")) == 5
    for command in ("entities", "changes"):
        table = instep(command, "--store", shared).stdout
        assert "east" in table
        assert "west" in table


@pytest.mark.parametrize("command", ["entities", "changes"])
def test_a_configuration_stands_for_its_stores_and_consumers(
    tmp_path: Path, shared: str, command: str
) -> None:
    west = config(tmp_path, shared, "west")
    assert shown(command, west) == [("west", "k0"), ("west", "k1")]
    both = config(tmp_path, shared, "east", "west")
    assert len(shown(command, both)) == 5
    assert len(shown(command, both, "--consumer", "east")) == 3


@pytest.mark.parametrize(
    "command",
    [
        ["status"],
        ["entities"],
        ["changes"],
        ["messages"],
        ["handover"],
        ["quarantine", "list"],
        ["sequences", "list"],
        ["sweep", "status"],
        ["audit"],
        ["run"],
    ],
    ids=" ".join,
)
def test_a_consumer_that_is_not_there_is_an_error_naming_those_that_are(
    tmp_path: Path, shared: str, command: list[str]
) -> None:
    of_config = [*command, config(tmp_path, shared, "east"), "--consumer", "north"]
    error = failed(instep(*of_config), 2)
    assert "no consumer 'north' is configured" in error
    assert "it has: east" in error
    if command not in (["audit"], ["handover"], ["run"]):
        error = failed(instep(*command, "--store", shared, "--consumer", "north"), 2)
        assert "the store has no consumer 'north'" in error
        assert "it has: east, west" in error


@pytest.mark.parametrize("command", ["entities", "changes", "messages", "status"])
def test_without_store_and_config_it_is_instep_toml(
    tmp_path: Path, shared: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, shared, "east")
    monkeypatch.chdir(tmp_path)
    assert instep(command).exit_code == 0
    monkeypatch.chdir("/")
    assert "there is no such file" in failed(instep(command), 2)


def test_keys_and_limits(shared: str) -> None:
    assert shown("entities", "--store", shared, "--key", "k1") == [("east", "k1"), ("west", "k1")]
    assert len(shown("entities", "--store", shared, "--limit", "2")) == 2
    assert len(shown("changes", "--store", shared, "--limit", "4")) == 4
    table = instep("entities", "--store", shared, "--limit", "2").stdout
    assert table.rstrip().endswith("2 entities (--limit)")


def test_entities_are_counted_by_class(shared: str) -> None:
    counts = lines(instep("entities", "--store", shared, "--count", "--format", "jsonl"))
    assert [tuple(line.values()) for line in counts] == [
        ("east", "network", "A", 2),
        ("east", "network", "B", 1),
        ("west", "network", "A", 1),
        ("west", "network", "C", 1),
    ]
    table = instep("entities", "--store", shared, "--count", "--class", "A").stdout
    assert table.rstrip().endswith("3 entities")
    failed(instep("entities", "--store", shared, "--count", "--limit", "1"), 2)


def test_one_entity_is_shown_whole(shared: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = instep("entity", "show", "k1", "--store", shared, "--consumer", "west").stdout
    assert "key          k1" in text
    assert '  "of": "west"' in text
    assert shown("entity", "show", "k2", "--store", shared) == [("east", "k2")]
    error = failed(instep("entity", "show", "k9", "--store", shared), 2)
    assert "there is no entity with the key 'k9'" in error


def test_changes_of_a_class_and_of_a_kind(shared: str) -> None:
    assert shown("changes", "--store", shared, "--class", "C") == [("west", "k1")]
    assert len(shown("changes", "--store", shared, "--change", "created")) == 5
    assert shown("changes", "--store", shared, "--change", "deleted") == []
    failed(instep("changes", "--store", shared, "--from-now", "--after", "1"), 2)


def test_following_from_now_shows_what_is_committed_later(shared: str) -> None:
    process = started(
        "changes", "--store", shared, "--from-now", "--class", "D", "--limit", "1", "--format=jsonl"
    )
    with process:
        # Whenever it begins: one of these is committed after it has.
        for number in range(600):
            asyncio.run(_follow(shared, f"north {number}", "CD"))
            if process.poll() is not None:
                break
        found, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, b"")
    line = msgspec.json.decode(found)
    assert line["consumer"].startswith("north")
    assert (line["class"], line["change"]) == ("D", "created")
    assert line["cursor"] > 5


def test_changes_are_of_one_store(tmp_path: Path, shared: str) -> None:
    path = tmp_path / "instep.toml"
    path.write_text(
        CONFIG.format(name="east", url=shared)
        + CONFIG.format(name="south", url=f"sqlite:///{tmp_path / 'other.db'}")
    )
    assert "has 2 stores" in failed(instep("changes", str(path)), 2)
    assert len(shown("changes", str(path), "--consumer", "east")) == 3


@pytest.mark.parametrize("command", ["entities", "changes"])
def test_a_key_is_whole_at_80_columns(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    uuid = "4b396456-e41f-542d-a684-35afd865ccfc"
    record = msgspec.structs.replace(statement(1, b"{}", "CONDITION_DETECTOR"), key=uuid)
    shown = instep(command, "--store", fill(tmp_path, record, journal="changes")).stdout
    assert uuid in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
