"""`[[publishers]]` of a configuration: `instep check`, and `instep run` with a real receiver."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.instep.cli.cli_kit import failed, fill, instep, lines, statement
from tests.instep.cli.test_reload import Running
from tests.instep.cli.test_run_port import DEADLINE_S, provider

FILE = """
[[publishers]]
name = "oss"
store = "{store}"
target = {{ kind = "http", url = "{url}", authorization = "${{EVENTS_TOKEN}}" }}
{more}
"""


class Receiver:
    """Takes batches of events over HTTP; `status` is what it answers."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.logins: set[str | None] = set()
        self.status = 204
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.logins.add(self.headers["Authorization"])
                if outer.status < 300:
                    outer.events += json.loads(body)
                self.send_response(outer.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/events"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def until(self, count: int) -> None:
        until_s = time.monotonic() + DEADLINE_S
        while len(self.events) < count:
            assert time.monotonic() < until_s, self.events
            time.sleep(0.05)

    @property
    def keys(self) -> list[str]:
        return [one["subject"] for one in self.events]


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("EVENTS_TOKEN", "Bearer hunter2")
    one = Receiver()
    yield one
    one.server.shutdown()
    one.server.server_close()


@contextlib.contextmanager
def running(folder: Path, text: str) -> Iterator[Running]:
    one = Running(folder, "")
    one.file.write_text(text)
    one.start()
    try:
        yield one
    finally:
        one.stop()


def rows(store: str) -> int:
    with contextlib.closing(sqlite3.connect(store.removeprefix("sqlite:///"))) as raw:
        return int(raw.execute("SELECT count(*) FROM instep_change").fetchone()[0])


def test_a_file_with_a_publisher_alone_publishes_a_store_that_another_process_writes(
    tmp_path: Path, receiver: Receiver
) -> None:
    store = fill(tmp_path, statement(1, b"{}"), statement(2, b"{}"), journal="changes")
    with running(tmp_path, FILE.format(store=store, url=receiver.url, more="")) as process:
        process.until(lambda one: one["event"] == "connected" and one["consumer"] == "oss")
        receiver.until(rows(store))
        assert receiver.keys[:2] == ["k1", "k2"]
        assert receiver.logins == {"Bearer hunter2"}
    # The store keeps how far it has come: nothing comes again.
    count = len(receiver.events)
    with running(tmp_path, FILE.format(store=store, url=receiver.url, more="")) as process:
        process.until(lambda one: one["event"] == "connected")
        time.sleep(0.5)
    assert len(receiver.events) == count


def test_a_receiver_that_is_away_is_waited_for_and_one_that_refuses_ends_it_alone(
    tmp_path: Path, receiver: Receiver
) -> None:
    store = fill(tmp_path, statement(1, b"{}"), journal="changes")
    receiver.status = 503
    with running(tmp_path, FILE.format(store=store, url=receiver.url, more="")) as process:
        # Nothing has been sent yet: nothing is known about the target.
        opened = process.until(lambda one: one["event"] == "connected")
        assert opened["text"] == "the store can be reached; the first change tries the target"
        away = process.until(lambda one: one["event"] == "disconnected")
        assert "answered 503" in away["text"]
        receiver.status = 204
        process.until(lambda one: one.get("text") == "the target takes changes")
        receiver.until(1)
    receiver.status = 400
    (tmp_path / "again").mkdir()
    again = fill(tmp_path / "again", statement(1, b"{}"), journal="changes")
    with running(tmp_path, FILE.format(store=again, url=receiver.url, more="")) as process:
        ended = process.until(lambda one: one["event"] == "failed")
        assert "answered 400" in ended["text"]


def test_it_runs_beside_a_consumer_and_chooses(tmp_path: Path, receiver: Receiver) -> None:
    with provider() as (_, url):
        store = f"sqlite:///{tmp_path}/net.db"
        consumer = f"""
[[consumers]]
name = "east"
source = {{ kind = "tapi", endpoints = ["{url}"] }}
sink = {{ kind = "sql", url = "{store}", journal = "bodies" }}
"""
        chosen = 'classes = ["NODE"]\nconsumer = "east"'
        text = consumer + FILE.format(store=store, url=receiver.url, more=chosen)
        with running(tmp_path, text) as process:
            process.aligned("east")
            receiver.until(12)
            time.sleep(0.3)
        assert {one["data"]["class"] for one in receiver.events} == {"NODE"}
        assert len(receiver.events) == len(set(receiver.keys)) == 12


def test_check_shows_it_without_its_secrets(tmp_path: Path, receiver: Receiver) -> None:
    file = tmp_path / "instep.toml"
    file.write_text(
        FILE.format(
            store="postgresql://i:hunter3@db/n", url=receiver.url, more='classes = ["NODE"]'
        )
    )
    checked = instep("check", str(file))
    assert checked.exit_code == 0, checked.output
    assert "hunter" not in checked.output
    assert 'classes = ["NODE"]' in checked.output
    assert "0 consumers, 1 publisher; connected to nothing" in checked.output
    [line] = lines(instep("check", str(file), "--format", "jsonl"))
    assert (line["publisher"], line["publishes_to"]["kind"]) == ("oss", "http")
    assert "no consumer whose store could be read" in failed(instep("status", str(file)), 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[publishers]]\nname = "a"', "'target' is missing"),
        (
            '[[publishers]]\nname = "a"\ntarget = { kind = "kafka" }\nstore = "sqlite:///a.db"',
            "http",
        ),
        (
            '[[publishers]]\nname = "a"\ntarget = { kind = "http" }\nstore = "sqlite:///a.db"',
            "'url'",
        ),
        (
            (
                '[[publishers]]\nname = "a"\ntarget = { kind = "http", url = "ftp://x" }\n'
                'store = "sqlite:///a.db"'
            ),
            "publishers[0].target.url",
        ),
        (
            (
                '[[publishers]]\nname = "a"\ntarget = { kind = "http", url = "https://x" }\n'
                'store = "nonsense"'
            ),
            "URL",
        ),
        (
            (
                '[[publishers]]\nname = "a"\ntarget = { kind = "http", url = "https://x" }\n'
                'store = "sqlite:///a.db"\nclases = ["NODE"]'
            ),
            "did you mean 'classes'?",
        ),
        ('[publishers]\nname = "a"', "[[publishers]]"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "instep.toml"
    file.write_text(text)
    assert said in failed(instep("check", str(file)), 2)


def test_names_are_unique_over_consumers_and_publishers(tmp_path: Path) -> None:
    target = 'target = { kind = "http", url = "https://x.example" }\nstore = "sqlite:///a.db"'
    file = tmp_path / "instep.toml"
    file.write_text(f'[[publishers]]\nname = "a"\n{target}\n[[publishers]]\nname = "a"\n{target}')
    assert "is taken by publishers[0]" in failed(instep("check", str(file)), 2)


def test_a_changed_publisher_needs_a_restart(tmp_path: Path, receiver: Receiver) -> None:
    store = fill(tmp_path, statement(1, b"{}"), journal="changes")
    with running(tmp_path, FILE.format(store=store, url=receiver.url, more="")) as process:
        process.until(lambda one: one["event"] == "connected")
        process.file.write_text(FILE.format(store=store, url=receiver.url, more='stream = "x"'))
        for _ in range(2):
            assert process.reload() == "nothing to take over; needs a restart: publishers"


def test_a_publisher_is_killed_again_and_again_and_nothing_is_left_out(
    tmp_path: Path, receiver: Receiver
) -> None:
    many = [statement(n, b"{}") for n in range(300)]
    store = fill(tmp_path, *many, journal="changes")
    file = FILE.format(store=store, url=receiver.url, more="batch_changes = 10")
    for kill in range(4):
        one = Running(tmp_path, "")
        one.file.write_text(file)
        one.start()
        receiver.until(20 * (kill + 1))
        one.process.kill()
        one.process.communicate()
    with running(tmp_path, file):
        receiver.until(1)
        until_s = time.monotonic() + DEADLINE_S
        while len(set(receiver.keys)) < len(many):
            assert time.monotonic() < until_s
            time.sleep(0.05)
    first = list(dict.fromkeys(key for key in receiver.keys if key in {m.key for m in many}))
    assert first == [one.key for one in many]
    # Only what was under way when it was killed came again.
    assert len(receiver.events) <= rows(store) + 4 * 10
