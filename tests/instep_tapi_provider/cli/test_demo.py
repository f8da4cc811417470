"""`instep demo`: the whole story on a small network, and that it can end badly."""

import asyncio
import json
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from instep.config.plugins import open_reader
from instep.errors import ConfigurationError
from instep_tapi_provider.cli import demo_script
from instep_tapi_provider.cli.demo import demo
from instep_tapi_provider.cli.demo_script import DemoScript
from instep_tapi_provider.cli.demo_sides import Sides
from tests.json_names_kit import check_names

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


def test_it_prints_every_step_and_ends_with_0(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'kept.db'}"
    options = ["--topology", "sndlib/polska", "--storm", "200", "--seed", "7", "--store", url]
    result = CliRunner().invoke(application, options)
    assert result.exit_code == 0, result.stdout
    places = [result.stdout.index(f"\n{step}: ") for step in STEPS]
    assert places == sorted(places)
    for output in (
        "stream network: chosen",
        "2 of 2 streams resumed after their token",
        "nothing was read again",
        "no new alignment attempt",
        "phantoms:\n    NODE: ",
        "one new attempt: restarted from the oldest record",
        "provider and store agree",
    ):
        assert output in result.stdout
    assert "✗" not in result.stdout

    async def kept() -> int:
        reader = open_reader(url)
        try:
            return sum([1 async for _ in reader.entities()])
        finally:
            await reader.close()

    assert f"✓ {asyncio.run(kept()):,} entities are equal" in result.stdout


def test_a_promise_that_is_not_kept_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_script, "_TIME_SCALE", 3_600.0)
    monkeypatch.setattr(demo_script, "_STORM_S", 1)
    # The provider sends again what it has sent: the short loss reads it twice.
    disconnect = Sides.disconnect

    async def lose_and_rewind(sides: Sides) -> None:
        await disconnect(sides)
        sides.provider.set_faults(rewind_records=20)

    monkeypatch.setattr(Sides, "disconnect", lose_and_rewind)
    url = f"sqlite:///{tmp_path / 'kept.db'}"
    options = ["--topology", "sndlib/polska", "--storm", "100", "--seed", "7", "--store", url]
    result = CliRunner().invoke(application, [*options, "--format", "jsonl"])
    assert result.exit_code == 1
    check_names(["demo"], result.stdout)
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert list(dict.fromkeys(line["step"] for line in told)) == list(STEPS)
    broken = [line["text"] for line in told if line.get("kept") is False]
    assert any(text.startswith("nothing was read again") for text in broken)
    classes = [line for line in told if "class" in line]
    counted = [line["counts"] for line in classes]
    assert all(one["provider"] == one["store"] == one["equal"] for one in counted)
    assert told[-1]["kept"]
    assert told[-1]["text"].endswith("provider and store agree")


def test_a_network_that_is_unknown_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such topology"):
        DemoScript(Console(), topology="no/where", seed=0, store=f"sqlite:///{tmp_path / 'a.db'}")
