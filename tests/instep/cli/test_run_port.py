"""`instep run` with its port: a real provider that hangs, a real database that is blocked."""

import json
import signal
import sqlite3
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.instep.cli.cli_kit import started
from tests.postgres_kit import Missing, serving

DEADLINE_S = 60
CONFIG = """
{top}
[operations]
listen = "127.0.0.1:0"

[[consumers]]
name = "east"
source = {{ kind = "tapi", endpoints = ["{url}"], dead_peer_s = {dead_peer_s} }}
sink = {{ kind = "sql", url = "{store}" }}
{more}

[consumers.settings]
stale_after_s = 2
reconnect_initial_s = 0.1
reconnect_max_s = 0.2
alignment = {{ quiet_s = 0.2, unreached_quiet_s = 0.5 }}
"""


@contextmanager
def provider(*options: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    small = ["--topology", "sndlib/polska", "--services", "5", "--alarms", "9"]
    with started("provider", *small, *options, "--format", "jsonl") as process:
        assert process.stdout is not None
        try:
            yield process, json.loads(process.stdout.readline())["url"]
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


@contextmanager
def running(
    folder: Path, url: str, store: str, *, dead_peer_s: float = 60, top: str = "", more: str = ""
) -> Iterator[str]:
    """`instep run` in a process of its own. Gives the URL of its port."""
    file = folder / "instep.toml"
    file.write_text(
        CONFIG.format(url=url, store=store, dead_peer_s=dead_peer_s, top=top, more=more)
    )
    with started("run", str(file), "--format", "jsonl", "--period", "600") as process:
        assert process.stderr is not None
        try:
            told = map(json.loads, process.stderr)
            said = next(one for one in told if one["logger"] == "instep.operations")
            yield said["text"].rpartition(" ")[2]
        finally:
            process.terminate()
            process.communicate(timeout=30)


def page(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{address}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def await_ready(address: str, status: int, part: str = "") -> str:
    """Wait until `/readyz` answers so; its answer. `/livez` must not fail meanwhile."""
    until_s = time.monotonic() + DEADLINE_S
    while True:
        assert page(address, "/livez") == (200, "live\n")
        answered, text = page(address, "/readyz")
        if answered == status and part in text:
            return text
        assert time.monotonic() < until_s, f"{answered} {text}"
        time.sleep(0.1)


@contextmanager
def blocked(store: str) -> Iterator[None]:
    """Let no transaction of others write into the database."""
    with ExitStack() as stack:
        if store.startswith("sqlite"):
            file = store.removeprefix("sqlite:///")
            raw = stack.enter_context(closing(sqlite3.connect(file, isolation_level=None)))
            raw.execute("PRAGMA busy_timeout = 60000")
            raw.execute("BEGIN IMMEDIATE")
        else:
            server = stack.enter_context(psycopg.connect(store))
            server.execute("LOCK TABLE instep_follower, instep_stream IN ACCESS EXCLUSIVE MODE")
        yield


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'network.db'}"
        return
    try:
        with serving() as server:
            yield server.create()
    except Missing as missing:
        pytest.skip(str(missing))


def test_a_hung_peer_and_a_blocked_database_are_not_ready_and_live_stays(
    tmp_path: Path, store: str
) -> None:
    with provider() as (peer, url), running(tmp_path, url, store, dead_peer_s=0.5) as address:
        await_ready(address, 200)
        peer.send_signal(signal.SIGSTOP)
        text = await_ready(address, 503, "provider: east / ")
        assert "store: " not in text
        assert page(address, "/readyz?role=reader") == (200, "ready\n")
        # Started is what was in step once.
        assert page(address, "/startupz")[0] == 200
        peer.send_signal(signal.SIGCONT)
        await_ready(address, 200)
        with blocked(store):
            await_ready(address, 503, "store: east")
            assert page(address, "/readyz?role=reader")[0] == 503
        await_ready(address, 200)


def test_ages_grow_while_the_provider_hangs(tmp_path: Path) -> None:
    """What the last record set would stay at its best value."""

    def stream(address: str) -> dict[str, float]:
        found: dict[str, float] = json.loads(page(address, "/status.json")[1])["consumers"][0][
            "streams"
        ][0]
        return found

    store = f"sqlite:///{tmp_path / 'network.db'}"
    with provider("--storm", "50") as (peer, url), running(tmp_path, url, store) as address:
        await_ready(address, 200)
        peer.send_signal(signal.SIGSTOP)
        time.sleep(1)
        before = stream(address)
        time.sleep(2)
        after = stream(address)
        for age in ("heard_age_s", "record_age_s", "commit_age_s", "behind_s"):
            assert after[age] >= before[age] + 1.9, (age, before[age], after[age])
        assert after["connected"], "it is not found dead yet"


@pytest.mark.parametrize(
    ("top", "more"), [('isolation = "process"', ""), ("", "workers = 2")], ids=["child", "workers"]
)
def test_all_processes_are_on_the_same_port(tmp_path: Path, top: str, more: str) -> None:
    store = f"sqlite:///{tmp_path / 'network.db'}"
    with (
        provider("--storm", "20") as (_, url),
        running(tmp_path, url, store, top=top, more=more) as address,
    ):
        await_ready(address, 200)
        status, text = page(address, "/metrics")
        assert status == 200
        assert 'instep_consumer_ready{consumer="east"} 1\n' in text
        assert 'instep_stream_heard_age_seconds{consumer="east",stream="' in text
        assert "instep_consumer_store_answer_age_seconds{" in text
