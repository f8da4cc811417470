"""`instep streams`: a stream that is not offered any more is shown, and retired (A20)."""

from __future__ import annotations

import asyncio
from pathlib import Path

from instep_sql import SqlStore
from tests.instep.cli.cli_kit import failed, fill, instep, lines, statement


async def _withdraw(url: str) -> None:
    async with SqlStore(url) as store:
        await store.open("east")
        await store.mark_offered("network", offered=False)


def test_a_stream_that_is_not_offered_is_shown_and_retired(tmp_path: Path) -> None:
    url = fill(tmp_path, statement(1, b'{"uuid":"u1"}'))
    at = ("--store", url)
    offered = failed(instep("streams", "retire", "--stream", "network", *at), 1)
    assert "east / network: the provider offers it" in offered
    asyncio.run(_withdraw(url))

    table = instep("streams", "list", *at).stdout
    assert "not-offered" in table
    [network, quiet] = sorted(
        lines(instep("streams", "list", *at, "--format", "jsonl")), key=lambda one: one["stream"]
    )
    assert (network["phase"], quiet["phase"]) == ("not-offered", "unaligned")
    assert network["unproven"] == network["entities"] == 1
    assert network["not_offered_at"]
    assert quiet["not_offered_at"] is None
    assert (
        "phase        not offered any more" in instep("status", "--stream", "network", *at).stdout
    )
    [whole] = lines(instep("streams", "show", "--stream", "network", *at, "--format", "jsonl"))
    assert whole["token"] == "t1"
    assert "not offered" in instep("streams", "show", "--stream", "network", *at).stdout

    chosen = ("--stream", "network", *at)
    dry = lines(instep("streams", "retire", *chosen, "--dry-run", "--format", "jsonl"))
    assert [(one["retired"], one["would_remove"]) for one in dry] == [(False, 1)]
    told = instep("streams", "retire", *chosen, "--dry-run").stdout
    assert told == "east / network: would be retired, with 1 entity\n"
    assert "network" in instep("streams", "list", *at).stdout
    [kept] = lines(instep("entities", *at, "--format", "jsonl"))
    assert (kept["stream"], kept["proven"]) == ("network", False)
    assert "retired, with 1 entity" in instep("streams", "retire", *chosen).stdout
    assert [
        one["stream"] for one in lines(instep("streams", "list", *at, "--format", "jsonl"))
    ] == ["quiet"]
    assert lines(instep("entities", *at, "--format", "jsonl")) == []
    again = failed(instep("streams", "retire", *chosen), 2)
    assert "the store has no stream 'network'" in again


def test_one_stream_must_be_named(tmp_path: Path) -> None:
    url = fill(tmp_path)
    assert "which stream is meant" in failed(instep("streams", "retire", "--store", url), 2)
