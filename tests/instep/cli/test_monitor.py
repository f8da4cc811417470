"""`instep monitor`, driven by keys: on a store at rest, and on the port of a running consumer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Static, TabbedContent

from instep import SequencerSettings
from instep.cli.monitor.reading import MonitoredPlace
from instep.cli.monitor.rows import TABLES, bar_text, sparkline
from instep.cli.monitor.screen import Monitor
from instep.metrics.port import OperationsPort
from instep.sequencing import GapPolicy
from tests.instep.cli.cli_kit import failed, fill, instep, lines, statement
from tests.instep.metrics.test_port import AWAY, Said
from tests.instep.runtime.messages.intake_kit import SCOPE, spoken
from tests.instep_sql.alarms.alarms_kit import alarms_stage
from tests.instep_sql.alarms.alarms_kit import statement as alarm

NARROW, WIDE = (80, 24), (160, 50)
Screen = Pilot[None]


def watch(
    place: MonitoredPlace,
    work: Callable[[Screen], Awaitable[None]],
    size: tuple[int, int],
    every_s: float = 60,
) -> None:
    """Run the monitor on a terminal of this size, and work with it."""

    async def main() -> None:
        async with Monitor(place, every_s).run_test(size=size) as pilot:
            await until(pilot, lambda: "looking" not in text(pilot, "verdict"))
            await work(pilot)

    asyncio.run(main())


async def until(pilot: Screen, reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not reached():
            await pilot.pause(0.05)


def text(pilot: Screen, name: str) -> str:
    return str(pilot.app.query_one(f"#{name}", Static).content)


def cells(pilot: Screen, name: str) -> list[list[str]]:
    table = pilot.app.query_one(f"#table-{name}", DataTable)
    return [[str(cell) for cell in table.get_row_at(n)] for n in range(table.row_count)]


def test_streams_of_a_store_at_rest(tmp_path: Path) -> None:
    url = fill(tmp_path, statement(1, b'{"uuid":"u1"}'))

    async def work(pilot: Screen) -> None:
        assert text(pilot, "verdict").startswith("NOT IN STEP: consumer: nobody follows it")
        assert text(pilot, "verdict").endswith("by the store")
        (network, quiet) = cells(pilot, "streams")
        assert network[:4] == ["!", "east / network", "disconnected", "—"]
        assert quiet[1] == "east / quiet"
        assert "compaction: over for" in text(pilot, "details")
        await pilot.press("down")
        assert text(pilot, "details").startswith("east / quiet")
        # What is looked at stays under the cursor while it is renewed.
        await pilot.pause(0.5)
        assert text(pilot, "details").startswith("east / quiet")

    watch(MonitoredPlace("", {url: set()}), work, NARROW, 0.3)


def test_every_tab_is_reached_by_a_key_and_fits(tmp_path: Path) -> None:
    url = fill(tmp_path, statement(1, b'{"uuid":"u1"}'))

    async def work(pilot: Screen) -> None:
        for number, (name, table) in enumerate(TABLES.items(), 1):
            await pilot.press(str(number))
            assert pilot.app.query_one(TabbedContent).active == name
            shown = pilot.app.query_one(f"#table-{name}", DataTable)
            assert shown.virtual_size.width <= pilot.app.size.width
            assert shown.row_count or text(pilot, "details") == table.empty
        before = pilot.app.theme
        await pilot.press("d")
        assert pilot.app.theme != before

    for size in (NARROW, WIDE):
        watch(MonitoredPlace("", {url: set()}), work, size)


def test_a_record_in_quarantine_is_replayed(tmp_path: Path) -> None:
    url = fill(tmp_path, statement(1, b'{"uuid":"u1"}'))

    async def work(pilot: Screen) -> None:
        await pilot.press("4")
        assert [row[0] for row in cells(pilot, "quarantine")] == ["1", "2"]
        assert '"entity-key":"k9"' in text(pilot, "details")
        await pilot.press("r")
        await until(pilot, lambda: cells(pilot, "quarantine")[0][3] == "yes")
        # The other one cannot be read by anybody: it says so, and stays.
        await pilot.press("down", "r")
        notes = pilot.app._notifications
        await until(pilot, lambda: any("still not readable" in one.message for one in notes))
        assert cells(pilot, "quarantine")[1][3] == "no"

    watch(MonitoredPlace("", {url: set()}), work, NARROW)
    found = lines(instep("entities", "--store", url, "--key", "k9", "--format", "jsonl"))
    assert [one["key"] for one in found] == ["k9"]


def test_sequences_and_the_dead_letter(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"

    async def fill_it() -> None:
        failing = SequencerSettings(gap_policy=GapPolicy.FAIL, gap_deadline_s=1)
        async with spoken(url, sequence=failing) as at:
            await at.say(1, 3)
            async with asyncio.timeout(30):
                while not await at.rows(
                    "SELECT 1 FROM instep_sequence WHERE state LIKE '%failed%'"
                ):
                    await asyncio.sleep(0.05)

    async def work(pilot: Screen) -> None:
        await pilot.press("2")
        ((name, missing, *_),) = cells(pilot, "sequences")
        assert name.endswith(SCOPE)
        assert missing == "2"
        await pilot.press("5")
        ((*_, end, _why),) = cells(pilot, "dead")
        assert end == "failed"
        await pilot.press("r")
        notes = pilot.app._notifications
        await until(pilot, lambda: any("sequence has failed" in one.message for one in notes))

    asyncio.run(fill_it())
    watch(MonitoredPlace("", {url: set()}), work, NARROW)


def test_alarms_that_stand_are_counted_by_severity(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"

    async def fill_it() -> None:
        async with alarms_stage(url) as at:
            await at.commit(
                alarm(10, severity="MAJOR"),
                alarm(11, key="d2", severity="MAJOR"),
                alarm(12, key="d3", severity="MINOR"),
                alarm(3_671, "CLEAR", key="d3"),
            )

    async def work(pilot: Screen) -> None:
        await pilot.press("6")
        assert cells(pilot, "derived") == [["alarms", "MAJOR", "2"]]

    asyncio.run(fill_it())
    watch(MonitoredPlace("", {url: set()}), work, NARROW)


def test_a_running_process_is_asked_and_its_text_is_no_markup() -> None:
    event = {"at": "2026-11-27T10:00:00Z", "event": "lost", "consumer": "west", "stream": "network"}
    told = {"events": [{**event, "text": "[red]\x1b[31mno route[/red]"}]}

    async def main() -> None:
        async with OperationsPort(
            lambda: [Said(AWAY)], "127.0.0.1:0", "test", about=lambda: told
        ) as port:
            place = MonitoredPlace(port.address, {})
            async with Monitor(place, 60).run_test(size=WIDE) as pilot:
                await until(pilot, lambda: "looking" not in text(pilot, "verdict"))
                assert text(pilot, "verdict").endswith(f"by {port.address}")
                assert cells(pilot, "streams")[0][0] == "!"
                await pilot.press("7")
                assert cells(pilot, "events")[0][2] == "[red]\ufffd[31mno route[/red]"
                chosen = MonitoredPlace(port.address, {}, "east")
                assert not (await chosen.read()).told["consumers"]
            # Where it is gone, that is said.
        gone = await place.read()
        assert "no process answers" in gone.error

    asyncio.run(main())


def test_without_a_port_or_a_store_there_is_nothing_to_watch(tmp_path: Path) -> None:
    wrong = tmp_path / "absent.toml"
    assert "absent.toml" in failed(instep("monitor", str(wrong)), 2)
    # In a pipe it would write what only a terminal understands.
    assert "not a terminal" in failed(instep("monitor", "--url", "http://127.0.0.1:1"), 2)


def test_the_port_of_a_configuration_falls_back_to_its_store(tmp_path: Path) -> None:
    url = fill(tmp_path, statement(1, b'{"uuid":"u1"}'))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    reading = asyncio.run(MonitoredPlace(address, {url: {"east"}}).read())
    assert reading.source == "the store"
    assert "no process answers" in reading.error
    assert [one["consumer"] for one in reading.told["consumers"]] == ["east"]


def test_a_store_that_is_not_there_is_said(tmp_path: Path) -> None:
    reading = asyncio.run(MonitoredPlace("", {f"sqlite:///{tmp_path}/absent.db": set()}).read())
    assert reading.error
    assert not reading.told["ready"]


@pytest.mark.parametrize(
    ("behind_s", "shown"),
    [(0.0, "━───│────│──"), (300.0, "━━──│────│──"), (90_000.0, "━━━━┿━━━━┿──")],
)
def test_the_bar_as_text(behind_s: float, shown: str) -> None:
    limits = {"compaction": 600.0, "retention": 86_400.0}
    assert bar_text({"behind_s": behind_s, "limit_s": limits}) == shown


def test_a_sparkline_shows_the_last_rates() -> None:
    assert sparkline([]) == ""
    assert sparkline([0.0, 0.0]) == "▁▁"
    assert sparkline([0.0, 5.0, 10.0]) == "▁▅█"
    assert len(sparkline([1.0] * 50)) == 8
