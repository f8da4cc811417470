"""`instep sweep`, beside a consumer with a sweep that the guard holds (A6)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from instep import SweepHeldError
from tests.end_to_end.site_kit import Site, network, provider
from tests.instep.cli.cli_kit import failed, fill, instep, lines

NODES = 20


@pytest.mark.asyncio
async def test_a_held_sweep_is_shown_released_and_goes_on(tmp_path: Path) -> None:
    async with provider(network(NODES)) as whole:
        here = Site(whole, tmp_path)
        async with here.consumer() as consumer:
            await consumer.aligned(30)
    async with provider(network(1)) as cut:
        here = Site(cut, tmp_path)
        async with here.consumer() as consumer:
            with pytest.raises(SweepHeldError):
                await consumer.aligned(30)
            # As another process would, while this one consumes.
            shown = await asyncio.to_thread(instep, "sweep", "status", "--store", here.url)
            removed = (NODES - 1) * 15
            as_json = ("--store", here.url, "--format", "jsonl")
            [held] = lines(await asyncio.to_thread(instep, "sweep", "status", *as_json))
            assert (held["stream"], held["would_remove"]) == ("all", removed)
            assert f"test / all: would remove {removed} of {NODES * 15 + 2} ent" in shown.stdout
            [released] = lines(await asyncio.to_thread(instep, "sweep", "release", *as_json))
            assert (released["stream"], released["released"]) == ("all", True)
            await here.equal()
            await consumer.aligned(30)
            shown = await asyncio.to_thread(instep, "sweep", "status", "--store", here.url)
            assert shown.stdout == "no sweep is held\n"


def test_where_none_is_held_none_is_released(tmp_path: Path) -> None:
    url = fill(tmp_path)
    assert lines(instep("sweep", "status", "--store", url, "--format", "jsonl")) == []
    assert "no such sweep is held" in failed(instep("sweep", "release", "--store", url), 1)
    both = failed(instep("sweep", "release", "some.toml", "--store", url), 2)
    assert "leave one of them out" in both
