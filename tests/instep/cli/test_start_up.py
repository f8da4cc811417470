"""What a command imports before it does anything: a user waits for it each time."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from instep.config.entry_points import command_points, load_command, summary
from instep_sql import SqlStore
from tests.instep.cli.cli_kit import failed, info, instep, started

PROGRAM = """
import json, sys
from instep.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""

CONFIG = """
[[consumers]]
name = "east"
source = { kind = "tapi", endpoints = ["http://127.0.0.1:1"] }
sink = { kind = "sql", url = "sqlite:///network.db" }
"""


def imported(*arguments: str) -> set[str]:
    """The modules that a command has imported at its end."""
    program = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(program, capture_output=True, check=True, timeout=60)
    return set(json.loads(done.stderr.splitlines()[-1]))


async def begun(url: str) -> None:
    """Make a store with a stream that has nothing yet, neither entities nor deviations."""
    async with SqlStore(url) as store:
        await store.open("east")
        await store.position(info("network"))


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["quarantine", "--help"]])
def test_what_runs_nothing_imports_no_command(arguments: list[str]) -> None:
    heavy = {"aiohttp", "asyncio", "msgspec", "pyarrow", "rich", "sqlalchemy"}
    modules = imported(*arguments)
    assert not modules & heavy
    ours = {"cli", "config", "errors", "model"}
    inner = {name.split(".")[1] for name in modules if name.startswith("instep.")}
    assert inner <= ours


HEAVY = {
    "aiohttp",
    "alembic",
    "cryptography",
    "instep_spark",
    "instep_sql.entities.commit",
    "instep_sql.store",
    "instep_tapi.source",
    "picows",
    "psycopg",
    "pyarrow",
    "sqlalchemy.dialects.postgresql",
    "sqlalchemy.orm",
    "tenacity",
}
"""What costs most to import, and is for commands that connect, commit or decode."""


def test_what_reads_a_store_imports_neither_sources_nor_what_writes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'network.db'}"
    asyncio.run(begun(url))
    for command in (["entities", "--count"], ["sweep", "status"]):
        modules = imported(*command, "--store", url)
        assert "instep_sql.reader" in modules
        assert not modules & (HEAVY | {"instep_tapi"}), command


def test_status_imports_next_to_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'network.db'}"
    asyncio.run(begun(url))
    config = tmp_path / "instep.toml"
    config.write_text(CONFIG.replace("sqlite:///network.db", url))
    for given in (["--store", url], [str(config)]):
        modules = imported("status", *given)
        assert "instep_sql.status_rows" in modules
        rest = {
            "asyncio",
            "sqlalchemy",
            "instep.alignment.machine",
            "instep.ports.reader",
        }
        assert not modules & (HEAVY | rest | {"instep.sequencing.sequencer", "instep_tapi"})


def test_check_imports_what_checks_and_nothing_that_connects(tmp_path: Path) -> None:
    config = tmp_path / "instep.toml"
    config.write_text(CONFIG)
    modules = imported("check", str(config))
    assert {"instep_tapi.options", "instep_sql.options"} <= modules
    assert not modules & (HEAVY | {"instep_sql.reader"})


def test_the_list_of_commands_is_whole_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    groups = ("references", "quarantine", "sequences", "sweep", "lake", "projections")
    for group in ([], *([name] for name in groups)):
        for line in instep(*group, "--help").stdout.splitlines():
            assert "..." not in line.removeprefix("Usage: instep").partition("ARGS]")[0], line
            assert len(line) <= 80


def test_options_are_whole_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = instep("provider", "--help").stdout
    for option in ("--tombstone-retention", "--record-strategy", "--records-per-frame"):
        assert option in shown


def test_a_command_of_a_plug_in_is_described_as_its_docstring_does() -> None:
    points = {point.name: point for point in command_points()}
    assert {"discover", "provider", "demo", "lake"} <= set(points)
    for name in ("discover", "provider", "demo"):
        command = load_command(points[name])
        assert callable(command)
        first = (command.__doc__ or "").partition("\n")[0]
        assert summary(points[name]) == first


def test_a_plug_in_may_add_a_group() -> None:
    points = {point.name: point for point in command_points()}
    assert summary(points["lake"]) == "Make tables of state, history and alarms in a lake."
    shown = instep("lake", "--help").stdout
    assert summary(points["lake"]) in shown
    for verb in ("run", "optimize", "vacuum", "rebuild", "history", "verify", "audit", "messages"):
        [line] = [one for one in shown.splitlines() if one.startswith(f"  {verb} ")]
        assert line.endswith(".")
        assert "--format" in instep("lake", verb, "--help").stdout
    assert "--retain-hours" in instep("lake", "vacuum", "--help").stdout
    assert "--retain-hours" not in instep("lake", "run", "--help").stdout
    assert "No such command 'dance'" in failed(instep("lake", "dance"), 2)
    assert "'--reading'" in failed(instep("lake", "audit"), 2)


WAITS = """
import sys, time, types
def wait(*_):
    print("begun", flush=True)
    time.sleep(60)
{where}
from instep.cli import main
main()
"""
"""A command that begins as long as the test likes."""
AT = {
    "import": """
waiting = type("Waiting", (types.ModuleType,), {"__getattr__": wait})
sys.modules["instep.cli.app"] = waiting("instep.cli.app")
""",
    "plug-ins": "import instep.cli.worker; instep.cli.worker.build_source = wait",
}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("at", AT)
def test_a_signal_before_the_command_has_begun_is_told(
    number: signal.Signals, at: str, tmp_path: Path
) -> None:
    file = tmp_path / "instep.toml"
    file.write_text(CONFIG)
    with subprocess.Popen(
        [sys.executable, "-c", WAITS.format(where=AT[at]), "run", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"begun\n"
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == -number
    told = "" if number is signal.SIGINT else f"instep: stopped by {number.name}\n"
    assert errors.decode() == told


@pytest.mark.parametrize(
    ("typed", "word"), [("instep sta", "status"), ("instep lake ve", "verify")]
)
def test_a_shell_completes_commands(typed: str, word: str) -> None:
    words = {
        "_INSTEP_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(typed.count(" ")),
    }
    with started(**os.environ | words) as process:
        shown, _ = process.communicate(timeout=60)
    assert shown.decode().split() == [word]
