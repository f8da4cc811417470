"""`instep demo`: the whole story on a small network, and that it can end badly."""

import asyncio
import io
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from instep.errors import ConfigurationError
from instep.plugins import store_plugin
from instep_tapi.cli import demo_story
from instep_tapi.cli.demo import demo
from instep_tapi.cli.demo_sides import Sides
from instep_tapi.cli.demo_story import Story

STEPS = (
    "Discovery",
    "Initial alignment",
    "Event storm",
    "Short loss",
    "Long loss",
    "Comparison",
)

application = typer.Typer()
application.command()(demo)


def test_it_tells_every_step_and_ends_with_0(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'kept.db'}"
    options = ["--topology", "sndlib/polska", "--storm", "200", "--seed", "7", "--store", url]
    result = CliRunner().invoke(application, options)
    assert result.exit_code == 0, result.stdout
    places = [result.stdout.index(f"\n{step}: ") for step in STEPS]
    assert places == sorted(places)
    for told in (
        "stream network: chosen",
        "2 of 2 streams resumed after their token",
        "nothing was read again",
        "no new alignment attempt",
        "phantoms:\n    NODE: ",
        "one new attempt: restarted from the oldest record",
        "provider and store agree",
    ):
        assert told in result.stdout
    assert "✗" not in result.stdout

    async def kept() -> int:
        reader = store_plugin(url).reader(url)
        try:
            return sum([1 async for _ in reader.entities()])
        finally:
            await reader.close()

    assert f"✓ {asyncio.run(kept()):,} entities are equal" in result.stdout


def test_a_promise_that_is_not_kept_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_story, "_TIME_SCALE", 3_600.0)
    monkeypatch.setattr(demo_story, "_STORM_S", 1)
    # The provider sends again what it has sent: the short loss reads it twice.
    lose = Sides.lose

    async def lose_and_rewind(sides: Sides) -> None:
        await lose(sides)
        sides.provider.set_faults(rewind_records=20)

    monkeypatch.setattr(Sides, "lose", lose_and_rewind)
    console = Console(file=io.StringIO())
    url = f"sqlite:///{tmp_path / 'kept.db'}"
    story = Story(console, topology="sndlib/polska", seed=7, store=url)
    assert not asyncio.run(story.tell(100.0))
    assert isinstance(console.file, io.StringIO)
    told = console.file.getvalue()
    assert "✗ nothing was read again" in told
    assert "provider and store agree" in told


def test_a_network_that_is_unknown_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such topology"):
        Story(Console(), topology="no/where", seed=0, store=f"sqlite:///{tmp_path / 'a.db'}")
