"""`instep references`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.instep.cli.cli_kit import failed, instep, lines
from tests.instep_sql.references.references_kit import network, statement

TOPOLOGY, NODE = "topology-uuid:T", "node-uuid:N"


@pytest.fixture
def filled(tmp_path: Path) -> str:
    """A store with a node whose topology has not come, its port, and a link to two ports."""
    url = f"sqlite:///{tmp_path}/r.db"

    async def fill() -> None:
        async with network(url, clock_us=lambda: 1_667_562_629_000_000) as at:
            await at.commit(statement("nodes", "n", "NODE", {"uuid": "N"}, TOPOLOGY))
            port = statement("ports", "p", "NODE_EDGE_POINT", {"uuid": "P"}, TOPOLOGY, NODE)
            await at.commit(port)
            ends = [{"node-edge-point-uuid": uuid} for uuid in ("P", "Q")]
            link = {"uuid": "L", "node-edge-point": ends}
            await at.commit(statement("links", "l", "LINK", link, TOPOLOGY))

    asyncio.run(fill())
    return url


def rows(store: str, *words: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = lines(
        instep("references", *words, "--store", store, "--format", "jsonl")
    )
    return found


def test_what_is_below_and_above(filled: str) -> None:
    assert [row["uuid"] for row in rows(filled, "children", "N")] == ["P"]
    assert [row["uuid"] for row in rows(filled, "children", "T", "--depth", "2")] == ["N", "P", "L"]
    assert [row["key"] for row in rows(filled, "children", "T", "--class", "LINK")] == ["l"]
    assert rows(filled, "path", "P") == [
        {"consumer": "east", "name": "topology-uuid", "uuid": "T", "known": False},
        {"consumer": "east", "name": "node-uuid", "uuid": "N", "known": True},
    ]


def test_what_refers_to_it_and_what_is_not_there(filled: str) -> None:
    assert [(row["class"], row["name"]) for row in rows(filled, "referrers", "P")] == [
        ("LINK", "node-edge-point-uuid")
    ]
    (row,) = rows(filled, "dangling")
    assert (row["key"], row["target"], row["since"]) == ("l", "Q", "2022-11-04T11:50:29.000000Z")
    (row,) = rows(filled, "skeletons")
    assert (row["uuid"], row["entities"]) == ("T", 3)


def test_tables(filled: str) -> None:
    shown = instep("references", "dangling", "--store", filled).stdout
    assert "2022-11-04 11:50:29" in shown
    assert "1 found" in shown
    assert "0 found" in instep("references", "path", "T", "--store", filled).stdout
    limited = instep("references", "children", "T", "--limit", "1", "--store", filled).stdout
    assert "1 found (--limit)" in limited


def test_a_configuration_names_the_store(filled: str, tmp_path: Path) -> None:
    config = tmp_path / "instep.toml"
    config.write_text(
        f"""
        [[consumers]]
        name = "east"
        source = {{ kind = "tapi", endpoints = ["http://127.0.0.1:1"] }}
        sink = {{ kind = "sql", url = "{filled}" }}
        """
    )
    for words in (("path", "P"), ("children", "T"), ("referrers", "P"), ("dangling",)):
        asked = ("references", *words)
        of_config = instep(*asked, str(config)).stdout
        assert of_config == instep(*asked, "--store", filled).stdout
        assert "found" in of_config


def test_where_none_are_kept(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/plain.db"

    async def plain() -> None:
        async with network(url, references=None) as at:
            await at.commit(statement("nodes", "n", "NODE", {"uuid": "N"}))

    asyncio.run(plain())
    answer = failed(instep("references", "dangling", "--store", url), 1)
    assert "set references = true" in answer
