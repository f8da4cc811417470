"""`instep status --check`: one line and an exit code, on a store at rest."""

import asyncio
import json
import signal
import socket
import time
from pathlib import Path

import pytest

from instep.model import StreamReport
from instep_sql import SqlStore
from tests.instep.cli.cli_kit import fill, instep, started
from tests.instep.cli.test_run_port import DEADLINE_S, provider
from tests.instep.cli.test_status import CONFIG

QUICK = """
[[consumers]]
name = "east"
source = {{ kind = "tapi", endpoints = ["{url}"] }}
sink = {{ kind = "sql", url = "{store}" }}
{more}

[consumers.settings]
alignment = {{ quiet_s = 0.2, unreached_quiet_s = 0.5 }}
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def check(*options: str) -> tuple[int, str]:
    """The exit code and the one line."""
    done = instep("status", "--check", *options)
    assert not done.stderr
    (line,) = done.stdout.splitlines()
    return done.exit_code, line


def await_check(code: int, *options: str) -> str:
    until_s = time.monotonic() + DEADLINE_S
    while True:
        found, line = check(*options)
        if found == code:
            return line
        assert time.monotonic() < until_s, line
        time.sleep(0.3)


@pytest.mark.parametrize("more", ["", "workers = 2", 'isolation = "process"'])
def test_a_killed_process_fails_the_check(tmp_path: Path, more: str) -> None:
    store = f"sqlite:///{tmp_path / 'network.db'}"
    file = tmp_path / "instep.toml"
    with provider() as (_, url):
        file.write_text(QUICK.format(url=url, store=store, more=more))
        with started("run", str(file), "--format", "jsonl", "--period", "600") as process:
            try:
                line = await_check(0, str(file))
                assert line.startswith("ready: east, at most ")
                assert check("--store", store, "--max-behind", "5m", "--max-unproven", "0")[0] == 0
                process.send_signal(signal.SIGKILL)
                killed_s = time.monotonic()
                line = await_check(1, str(file))
                # `stale_after_s` is 10 s, and the promise 45 s.
                assert "consumer: east / " in line
                # Workers may have said that they stop.
                assert "nobody follows it: last heard " in line or "was stopped" in line
                assert time.monotonic() - killed_s < 45
            finally:
                process.kill()
                process.communicate()


def test_a_store_that_is_not_followed_names_each_stream(tmp_path: Path) -> None:
    code, line = check("--store", fill(tmp_path))
    assert code == 1
    assert line.startswith("not ready: consumer: east / network: nobody follows it")
    told = json.loads(
        check("--store", f"sqlite:///{tmp_path / 'network.db'}", "--format", "jsonl")[1]
    )
    assert not told["ready"]
    assert {(one["part"], one["stream"]) for one in told["faults"]} == {
        ("consumer", "network"),
        ("consumer", "quiet"),
    }


async def _say(url: str, **said: StreamReport) -> None:
    """What a process that follows says of these streams now."""
    async with SqlStore(url) as store:
        await store.open("east")
        await store.report(list(said.values()), 600.0)


def _report(stream: str, known_ago_s: float) -> StreamReport:
    return StreamReport(
        stream=stream,
        connected=True,
        caught_up=True,
        known_at_us=int((time.time() - known_ago_s) * 1e6),
    )


def test_a_quiet_stream_is_not_behind(tmp_path: Path) -> None:
    """Its position is old, and its process has said up to when nothing is missing."""
    url = fill(tmp_path)
    asyncio.run(_say(url, one=_report("network", 40)))
    network = ("--store", url, "--stream", "network")
    code, line = check(*network, "--max-behind", "5m")
    assert (code, line.partition(", ")[0]) == (0, "ready: east")
    assert check(*network, "--max-behind", "30s")[0] == 1


def test_only_the_stream_that_is_named_counts(tmp_path: Path) -> None:
    url = fill(tmp_path)
    asyncio.run(_say(url, one=_report("network", 40)))
    assert check("--store", url)[0] == 1
    code, line = check("--store", url, "--stream", "quiet")
    assert (code, "network" in line) == (1, False)
    assert check("--store", url, "--stream", "network")[0] == 0
    line = "not ready: consumer: all / another: nothing was stored yet"
    assert check("--store", url, "--stream", "another") == (1, line)


def test_a_store_that_is_away_is_a_judgement(tmp_path: Path) -> None:
    file = tmp_path / "instep.toml"
    file.write_text(CONFIG.format(name="east", url=f"sqlite:///{tmp_path / 'none.db'}"))
    code, line = check(str(file))
    assert (code, line.startswith("not ready: store: east: ")) == (1, True)


@pytest.mark.parametrize(
    "options", [["--max-behind", "soon", "--check"], ["--max-unproven", "0"], ["--max-dead", "1"]]
)
def test_a_limit_that_means_nothing_is_refused(tmp_path: Path, options: list[str]) -> None:
    assert instep("status", "--store", fill(tmp_path), *options).exit_code == 2


def test_a_receiver_that_is_killed_fails_the_check_too(tmp_path: Path) -> None:
    pytest.importorskip("lxml")
    file = tmp_path / "instep.toml"
    file.write_text(
        f"""
        [[consumers]]
        name = "east"
        source = {{ kind = "wsrm", listen = "http://127.0.0.1:{free_port()}/in" }}
        sink = {{ kind = "sql", url = "sqlite:///{tmp_path / "inbox.db"}" }}
        settings = {{ stale_after_s = 2 }}
        """
    )
    with started("run", str(file), "--format", "jsonl", "--period", "600") as process:
        try:
            assert await_check(0, str(file)) == "ready: east"
            process.send_signal(signal.SIGKILL)
            line = await_check(1, str(file))
            assert line.startswith("not ready: consumer: east: nobody receives: last heard ")
        finally:
            process.kill()
            process.communicate()
