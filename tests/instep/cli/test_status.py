"""`instep status`."""

import asyncio
import time
from pathlib import Path

import pytest

from instep import Phase, Position
from instep.cli import status as instep_cli_status
from instep.model import Batch
from instep_sql import SqlStore
from tests.instep.cli.cli_kit import T0, failed, fill, info, instep, lines, statement

CONFIG = """
[[consumers]]
name = "{name}"
source = {{ kind = "tapi", endpoints = ["http://127.0.0.1:9"] }}
sink = {{ kind = "sql", url = "{url}" }}
"""


def test_a_stream_is_shown_with_its_position(tmp_path: Path) -> None:
    url = fill(tmp_path, statement(1, b"{}", "ODD"))
    network, quiet = lines(instep("status", "--store", url, "--format", "jsonl"))
    assert (network["consumer"], network["stream"]) == ("east", "network")
    assert (network["phase"], network["attempt"], network["ordinal"]) == ("aligned", 2, 2)
    assert (network["token"], network["appended_at"]) == ("t1", T0)
    assert (network["entities"], network["quarantined"]) == (2, 2)
    assert network["behind_s"] > 1e6
    assert network["fidelity"] == "reduced fidelity"
    assert (quiet["phase"], quiet["token"], quiet["appended_at"]) == ("unaligned", None, None)
    assert (quiet["behind_s"], quiet["fidelity"], quiet["deviations"]) == (None, None, {})


@pytest.mark.parametrize("output", ["table", "jsonl"])
def test_the_short_cut_and_the_reader_show_the_same(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = fill(tmp_path, statement(1, b"{}", "ODD"))
    asked = ("status", "--store", url, "--format", output)
    monkeypatch.setattr(time, "time_ns", lambda: 1_800_000_000_000_000_000)
    quick = instep(*asked)
    monkeypatch.setattr(instep_cli_status, "quick_status", lambda _: None)
    read = instep(*asked)
    assert (quick.exit_code, read.exit_code) == (0, 0)
    assert quick.stdout == read.stdout


def test_each_deviation_is_shown_with_its_count(tmp_path: Path) -> None:
    network, _ = lines(instep("status", "--store", fill(tmp_path), "--format", "jsonl"))
    assert network["deviations"] == {
        "identity-blanks": 1,
        "of-the-future": 2,
        "offset-backwards": 3,
    }


def test_a_table_shows_the_same(tmp_path: Path) -> None:
    shown = instep("status", "--store", fill(tmp_path)).stdout
    assert "east / network" in shown
    # No process that follows it has ever said so.
    assert "aligned, but nobody says that it is followed, attempt 2" in " ".join(shown.split())
    assert "reduced fidelity" in shown
    assert "for ever" in shown
    assert "offset-backwards: an offset went backwards" in shown
    assert "of-the-future\n" in "".join(f"{line.rstrip()}\n" for line in shown.splitlines())


def test_a_configuration_shows_the_streams_of_its_consumers(tmp_path: Path) -> None:
    url = fill(tmp_path)
    file = tmp_path / "f.toml"
    file.write_text(CONFIG.format(name="east", url=url))
    assert len(lines(instep("status", str(file), "--format", "jsonl"))) == 2
    file.write_text(CONFIG.format(name="west", url=url))
    assert lines(instep("status", str(file), "--format", "jsonl")) == []
    assert instep("status", str(file)).stdout == "no stream was stored yet\n"


async def _store(url: str, position: Position) -> None:
    async with SqlStore(url) as store:
        await store.open("east")
        await store.position(info("network"))
        await store.commit(Batch("network", position, 0))


def test_a16_a_stream_without_progress_says_how_far_it_comes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'network.db'}"
    position = Position(
        ordinal=1, attempt=7, lineage=1, phase=Phase.ALIGNING, unaligned_attempts=4,
        attempt_records=1_050,
    )  # fmt: skip
    asyncio.run(_store(url, position))
    shown = " ".join(instep("status", "--store", url).stdout.split())
    assert (
        "aligning, but nobody says that it is followed, attempt 7: no progress,"
        " 4 attempts without an alignment, 1,050 records read" in shown
    )
    [network] = lines(instep("status", "--store", url, "--format", "jsonl"))
    assert network["attempts_without_alignment"] == 4


def test_a8_a_lost_stream_is_of_no_fidelity(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'network.db'}"
    now_us = time.time_ns() // 1_000
    position = Position(ordinal=1, attempt=3, phase=Phase.LOST, watermark_us=now_us)
    asyncio.run(_store(url, position))
    [network] = lines(instep("status", "--store", url, "--format", "jsonl"))
    assert (network["phase"], network["fidelity"]) == ("lost", "lost")


def test_one_of_configuration_and_store_is_asked_for(tmp_path: Path) -> None:
    error = failed(instep("status", "f.toml", "--store", fill(tmp_path)), 2)
    assert "CONFIG and --store were both given" in error


def test_a_store_that_is_not_there_is_named(tmp_path: Path) -> None:
    error = failed(instep("status", "--store", f"sqlite:///{tmp_path / 'none.db'}"), 2)
    assert "error: there is no such store" in error
    assert f"where: {tmp_path / 'none.db'}" in error
    assert not (tmp_path / "none.db").exists()


def test_a_file_that_is_no_store_is_an_error(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    other.write_bytes(b"this is no database" * 100)
    error = failed(instep("status", "--store", f"sqlite:///{other}"), 1)
    assert f"where: {other}" in error
