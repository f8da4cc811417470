"""`instep handover`, beside two consumers of which one is active."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.instep.cli.cli_kit import failed, fill, instep, lines
from tests.instep.runtime.test_active_standby import contender

LEASE = ("holder", "epoch")


@pytest.mark.asyncio
async def test_the_active_one_hands_over_when_it_is_asked(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    asked = ("handover", "--store", url, "--consumer", "test")
    async with contender(tmp_path, "a") as a:
        await a.aligned(20)
        [stream] = lines(
            await asyncio.to_thread(instep, "status", "--store", url, "--format=jsonl")
        )
        assert stream["lease"] == {"holder": "a", "epoch": 1}
        error = failed(await asyncio.to_thread(instep, *asked), 1)
        assert "test: nobody took over from a" in error
        async with contender(tmp_path, "b") as b:
            [moved] = lines(await asyncio.to_thread(instep, *asked, "--format", "jsonl"))
            assert moved == {"consumer": "test", "before": "a", "holder": "b", "done": True}
            await b.aligned(20)
            shown = await asyncio.to_thread(instep, "status", "--store", url)
            assert "lease" in shown.stdout
            assert "b, epoch" in shown.stdout


def test_a_lease_that_nobody_holds_is_an_error(tmp_path: Path) -> None:
    url = fill(tmp_path)
    error = failed(instep("handover", "--store", url, "--consumer", "east"), 1)
    assert "nobody holds a lease for the consumer 'east'" in error
    network, _ = lines(instep("status", "--store", url, "--format", "jsonl"))
    assert network["lease"] is None
