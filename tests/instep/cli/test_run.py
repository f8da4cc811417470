"""`instep run`, against a provider in a process of its own."""

import json
import os
import pty
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import termios
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from instep_sql.engine.schema import VERSION_TABLE
from tests.instep.cli.cli_kit import fill, instep, lines, small_provider, started
from tests.json_names_kit import check_names

DEADLINE_S = 60
CONFIG = """
[[consumers]]
name = "east"
[consumers.source]
kind = "tapi"
endpoints = ["{url}"]
auth = {{ kind = "bearer", token = "${{TOKEN}}" }}
[consumers.sink]
kind = "sql"
url = "sqlite:///{database}"
[consumers.settings]
reconnect_initial_s = 0.05
reconnect_attempts = {attempts}
alignment = {{ quiet_s = 0.5, unreached_quiet_s = 1 }}
"""


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """A provider with a storm. Gives its URL."""
    with small_provider("--token", "s3cret", "--storm", "200", "--control") as url:
        yield url


def control(provider: str, call: str, body: dict[str, Any] | None = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(f"{provider}/_instep/{call}", data, DEADLINE_S) as answer:
        return str(answer.read().decode())


def configured(folder: Path, url: str, *, attempts: int = 0, database: str = "") -> str:
    file = folder / "instep.toml"
    database = database or str(folder / "network.db")
    file.write_text(CONFIG.format(url=url, attempts=attempts, database=database))
    return str(file)


def running(file: str, *options: str, token: str = "s3cret") -> subprocess.Popen[bytes]:
    return started("run", file, *options, TOKEN=token)


def events(process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        check_names(["run"], line)
        yield json.loads(line)


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    try:
        errors = process.communicate(timeout=DEADLINE_S)[1]
    finally:
        process.kill()
    return process.returncode, errors.decode()


def stored(folder: Path) -> dict[tuple[str, str], Any]:
    url = f"sqlite:///{folder / 'network.db'}"
    found = lines(instep("entities", "--store", url, "--format", "jsonl"))
    return {(line["stream"], line["key"]): line["body"] for line in found}


def test_until_aligned_ends_with_0_and_nothing_but_json_lines(
    tmp_path: Path, provider: str
) -> None:
    with running(configured(tmp_path, provider), "--until-aligned") as process:
        reported = list(events(process))
        assert ended(process) == (0, "")
    assert {"connected", "attempt", "aligned", "stopped"} <= {line["event"] for line in reported}
    assert reported[-1]["event"] == "stopped"
    status = lines(
        instep("status", "--store", f"sqlite:///{tmp_path / 'network.db'}", "--format", "jsonl")
    )
    assert [(one["phase"], one["attempt"]) for one in status] == [("aligned", 1)] * 2
    assert stored(tmp_path)


def test_only_the_named_consumer_runs(tmp_path: Path, provider: str) -> None:
    file = configured(tmp_path, provider)
    text = Path(file).read_text()
    Path(file).write_text(text + text.replace('"east"', '"west"'))
    with running(file, "--consumer", "west", "--until-aligned") as process:
        reported = list(events(process))
        assert ended(process) == (0, "")
    assert {line["consumer"] for line in reported if "consumer" in line} == {"west"}
    url = f"sqlite:///{tmp_path / 'network.db'}"
    of = [one["consumer"] for one in lines(instep("status", "--store", url, "--format", "jsonl"))]
    assert set(of) == {"west"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_under_a_storm_ends_with_0_and_nothing_is_lost(
    tmp_path: Path, provider: str, number: signal.Signals
) -> None:
    file = configured(tmp_path, provider)
    with running(file) as process:
        aligned = (line for line in events(process) if line["event"] == "aligned")
        assert {next(aligned)["stream"], next(aligned)["stream"]} == {"network", "alarms"}
        process.send_signal(number)
        assert ended(process) == (0, "")
    control(provider, "storm", {"changes_per_s": 0})
    truth = {
        (line["stream_id"], line["key"]): line["body"]
        for line in map(json.loads, control(provider, "entities").splitlines())
    }
    try:
        with running(file, "--period", "0.1") as process:
            for line in events(process):
                if line["event"] == "health" and stored(tmp_path) == truth:
                    break
                assert line["event"] != "attempt", "it resumes where it stopped"
            process.send_signal(number)
            assert ended(process) == (0, "")
    finally:
        control(provider, "storm", {"changes_per_s": 200})
    assert stored(tmp_path) == truth


def test_health_is_emitted_every_period(
    tmp_path: Path, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")
    file = configured(tmp_path, provider)
    with running(file, "--period", "0.2") as process:
        health = next(
            line for line in events(process) if line["event"] == "health" and line["streams"]
        )
        process.send_signal(signal.SIGTERM)
        assert ended(process)[0] == 0
    assert (health["consumer"], health["error"]) == ("east", "")
    stream = health["streams"][0]
    assert stream["compaction_delay_s"] == 600.0
    assert {"records_per_s", "read_delay_s", "connected", "last_error"} <= set(stream)
    # What `status` tells of a stream has the same name and the same type.
    [stored] = lines(instep("status", file, "--stream", stream["stream"], "--format", "jsonl"))
    common = stored.keys() & stream.keys()
    assert common >= {"stream", "phase", "attempt", "records", "fidelity"}
    assert common >= {"attempts_without_alignment", "quarantined", "deviations", "unprovable"}
    assert {name: type(stored[name]) for name in common} == {
        name: type(stream[name]) for name in common
    }


def test_a_token_that_is_refused_ends_with_1(tmp_path: Path, provider: str) -> None:
    with running(configured(tmp_path, provider), token="wr0ng") as process:
        reported = list(events(process))
        code, error = ended(process)
    assert code == 1
    told = json.loads(error)
    assert (told["log"], told["text"]) == ("error", "the provider answers 401")
    assert told["where"].startswith("http://127.0.0.1:")
    assert told["to_do"]
    assert "failed" in {line["event"] for line in reported}
    assert "wr0ng" not in error + json.dumps(reported)


def test_a_provider_that_is_not_there_is_waited_for_until_a_signal(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with running(configured(tmp_path, url)) as process:
            first = next(line for line in events(process) if line["event"] == "disconnected")
            assert url in first["text"]
            process.send_signal(signal.SIGTERM)
            assert ended(process) == (0, "")


def test_a16_until_aligned_ends_with_1_when_its_time_has_passed(
    tmp_path: Path, provider: str
) -> None:
    file = configured(tmp_path, provider)
    control(provider, "faults", {"drop_after_records": 3})
    try:
        with running(file, "--until-aligned", "--timeout", "2") as process:
            reported = list(events(process))
            status, errors = ended(process)
    finally:
        control(provider, "faults", {"drop_after_records": None})
    assert status == 1
    told = json.loads(errors.splitlines()[-1])
    assert told["text"].startswith("not aligned within 2 s: east / ")
    assert " is aligning" in told["text"]
    assert ", attempt " in told["text"]
    assert reported[-1]["event"] == "stopped"
    with running(file, "--until-aligned", "--timeout", "60") as process:
        process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0


def test_until_aligned_ends_with_3_where_records_could_not_be_read(tmp_path: Path) -> None:
    with (
        small_provider("--fault", "malformed-every=50") as url,
        running(configured(tmp_path, url), "--until-aligned") as process,
    ):
        list(events(process))
        status, errors = ended(process)
    told = json.loads(errors.splitlines()[-1])
    assert (status, told["code"]) == (3, "unreadable-records")
    assert "east / network is aligned, " in told["text"]
    assert " unreadable" in told["text"]


@pytest.mark.parametrize("signed", [("--sign", "k1"), ()])
def test_until_aligned_ends_with_1_where_a_key_refuses_everything(
    tmp_path: Path, signed: tuple[str, ...]
) -> None:
    with small_provider(*signed) as url:
        file = Path(configured(tmp_path, url))
        key = 'authenticity = { kind = "hmac", secret = "k2" }'
        file.write_text(file.read_text().replace("auth = ", f"{key}\nauth = "))
        with running(str(file), "--until-aligned") as process:
            list(events(process))
            status, errors = ended(process)
    told = json.loads(errors.splitlines()[-1])
    assert (status, told["code"]) == (1, "unreadable-stream")
    assert "records could be read" in told["text"]
    assert "`authenticity`" in told["text"]


def test_a_timeout_without_its_wait_ends_with_2(tmp_path: Path, provider: str) -> None:
    with running(configured(tmp_path, provider), "--timeout", "2") as process:
        status, errors = ended(process)
    assert (status, "--timeout was given without --until-aligned" in errors) == (2, True)


def test_a_host_that_is_unknown_ends_with_1_when_there_is_a_limit(tmp_path: Path) -> None:
    file = configured(tmp_path, "http://no-such-host.invalid:1", attempts=2)
    with running(file) as process:
        code, error = ended(process)
    assert code == 1
    assert "no-such-host.invalid" in json.loads(error)["where"]
    assert "Traceback" not in error


def test_a_database_that_cannot_be_written_ends_with_1(tmp_path: Path) -> None:
    database = str(tmp_path / "no" / "such" / "folder.db")
    with running(configured(tmp_path, "http://127.0.0.1:9", database=database)) as process:
        code, error = ended(process)
    assert code == 1
    assert json.loads(error)["where"] == database
    assert "Traceback" not in error


def test_a_database_of_a_newer_version_ends_with_1(tmp_path: Path) -> None:
    fill(tmp_path)
    database = tmp_path / "network.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
        connection.commit()
    with running(configured(tmp_path, "http://127.0.0.1:9")) as process:
        code, error = ended(process)
    assert code == 1
    assert "9999" in error
    assert json.loads(error)["where"] == str(database)


class Rude(BaseHTTPRequestHandler):
    """A provider whose error is written for the terminal of whoever reads it."""

    def do_GET(self) -> None:
        message = "\x1b[2J\x1b]0;pwn\x07\nerror: FAKE \u202e\x9b31m"
        error = {"ietf-restconf:errors": {"error": [{"error-message": message}]}}
        body = json.dumps(error, ensure_ascii=False).encode()
        self.send_response(500)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_no_text_of_a_provider_steers_the_terminal(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Rude) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        # A failed endpoint of several is logged, and their errors end the consumer at last.
        file = configured(tmp_path, f'{url}", "{url}/other', attempts=2)
        with running(file) as process:
            assert process.stdout is not None
            shown = process.stdout.read().decode()
            code, error = ended(process)
        server.shutdown()
    assert code == 1
    assert "pwn" in shown
    assert "nothing to be read at" in error
    assert all(line.isprintable() for line in (shown + error).splitlines())
    assert all(line.startswith("{") for line in error.splitlines())


def test_one_consumer_that_fails_does_not_end_the_others(tmp_path: Path, provider: str) -> None:
    file = Path(configured(tmp_path, provider))
    other = CONFIG.format(url=provider, attempts=0, database=tmp_path / "no" / "such.db")
    file.write_text(other.replace("east", "west") + file.read_text())
    with running(str(file), "--period", "0.2") as process:
        reported: list[dict[str, Any]] = []
        for line in events(process):
            reported.append(line)
            aligned = {one["stream"] for one in reported if one["event"] == "aligned"}
            if aligned == {"network", "alarms"} and line.get("state") == "running":
                break
        process.send_signal(signal.SIGTERM)
        code, error = ended(process)
    assert [one["consumer"] for one in reported if one["event"] == "failed"] == ["west"]
    last = {one["consumer"]: one for one in reported if one["event"] == "health"}
    assert (last["west"]["state"], last["east"]["state"]) == ("failed", "running")
    assert code == 1, "what failed is the outcome, though it was stopped as asked"
    assert json.loads(error)["text"] == "the database cannot be opened"


def test_a_wrong_configuration_ends_with_2(tmp_path: Path, provider: str) -> None:
    file = Path(configured(tmp_path, provider))
    file.write_text(file.read_text().replace("endpoints", "endpoint"))
    with running(str(file)) as process:
        code, error = ended(process)
    assert code == 2
    told = json.loads(error)
    assert (told["text"], told["where"]) == (
        "unknown key 'endpoint'",
        f"{file}: consumers[0].source",
    )


def spread(file: str, workers: int = 2) -> str:
    """The same configuration with so many worker processes."""
    path = Path(file)
    path.write_text(
        path.read_text().replace('name = "east"', f'name = "east"\nworkers = {workers}')
    )
    return file


def test_with_workers_a_signal_under_a_storm_ends_with_0_and_nothing_is_lost(
    tmp_path: Path, provider: str
) -> None:
    file = spread(configured(tmp_path, provider))
    with running(file, "--period", "0.2") as process:
        reported: list[dict[str, Any]] = []
        for line in events(process):
            reported.append(line)
            if [one["event"] for one in reported].count("aligned") == 2 and "state" in line:
                break
        process.send_signal(signal.SIGTERM)
        assert ended(process) == (0, "")
    workers = [one["text"] for one in reported if one["event"] == "worker-started"]
    assert len(workers) == 2
    assert reported[-1]["state"] == "running"
    assert [one["stream"] for one in reported[-1]["streams"]] == ["network", "alarms"]
    control(provider, "storm", {"changes_per_s": 0})
    try:
        with running(file, "--until-aligned") as process:
            again = list(events(process))
            assert ended(process) == (0, "")
        assert "attempt" not in {one["event"] for one in again}, "it resumes where it stopped"
        truth = {
            (line["stream_id"], line["key"]): line["body"]
            for line in map(json.loads, control(provider, "entities").splitlines())
        }
        assert stored(tmp_path) == truth
    finally:
        control(provider, "storm", {"changes_per_s": 200})


def test_workers_end_when_their_consumer_is_killed(tmp_path: Path, provider: str) -> None:
    with running(spread(configured(tmp_path, provider))) as process:
        started_ = (line for line in events(process) if line["event"] == "worker-started")
        pids = [int(next(started_)["text"].split()[4].rstrip(",")) for _ in range(2)]
        process.kill()
    deadline_s = time.monotonic() + DEADLINE_S
    while any(Path(f"/proc/{pid}/cmdline").exists() for pid in pids):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("workers", "database", "told"),
    [
        (0, "", "the key 'workers' is not usable"),
        (2, ":memory:", "several workers cannot share this sink"),
    ],
)
def test_workers_that_cannot_be_end_with_2(
    tmp_path: Path, workers: int, database: str, told: str
) -> None:
    file = spread(configured(tmp_path, "http://127.0.0.1:9", database=database), workers)
    with running(file) as process:
        code, error = ended(process)
    assert (code, told in error) == (2, True)


def test_messages_are_received_by_one_process(tmp_path: Path) -> None:
    file = tmp_path / "instep.toml"
    file.write_text(
        '[[consumers]]\nname = "east"\nworkers = 2\n'
        'source = { kind = "wsrm", listen = "http://127.0.0.1:0/rm" }\n'
        f'sink = {{ kind = "sql", url = "sqlite:///{tmp_path}/a.db" }}\n'
    )
    with running(str(file)) as process:
        code, error = ended(process)
    assert (code, json.loads(error)["where"]) == (2, f"{file}: consumers[0].workers")


def test_a_reader_that_is_gone_ends_it_with_0(tmp_path: Path, provider: str) -> None:
    with running(configured(tmp_path, provider), "--period", "0.1") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        errors = process.stderr.read()
        assert (process.wait(DEADLINE_S), errors) == (0, b"")


def test_a_terminal_gets_a_live_table(tmp_path: Path, provider: str) -> None:
    ours, theirs = pty.openpty()
    environment = os.environ | {"TOKEN": "s3cret", "COLUMNS": "120", "TERM": "xterm"}
    environment["PYTHONASYNCIODEBUG"] = ""
    with subprocess.Popen(
        ["instep", "run", configured(tmp_path, provider)],
        executable=Path(sys.executable).with_name("instep"),
        env=environment,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        shown = b""
        while shown.count(b"aligned by attempt") < 2:
            shown += os.read(ours, 65536)
        process.send_signal(signal.SIGTERM)
        try:
            while chunk := os.read(ours, 65536):
                shown += chunk
        except OSError:  # how Linux reports that the other side is closed
            pass
        assert process.wait(DEADLINE_S) == 0
    os.close(ours)
    for text in (b"east / network", b"Delay", b"full fidelity", b"aligned, stopped"):
        assert text in shown
    assert b'{"' not in shown


def frames(shown: bytes) -> list[list[str]]:
    """The whole screens that were drawn, each from the top left, as rows of text."""
    drawn = shown.decode(errors="replace").split("\x1b[H")[1:-1]
    plain = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", one) for one in drawn]
    return [one.replace("\r", "").rstrip("\n").split("\n") for one in plain]


def test_a_live_table_follows_the_size_of_its_terminal(tmp_path: Path, provider: str) -> None:
    ours, theirs = pty.openpty()
    environment = os.environ | {"TOKEN": "s3cret", "TERM": "xterm", "PYTHONASYNCIODEBUG": ""}
    for name in ("COLUMNS", "LINES"):
        environment.pop(name, None)
    termios.tcsetwinsize(ours, (30, 132))
    with subprocess.Popen(
        ["instep", "run", configured(tmp_path, provider)],
        executable=Path(sys.executable).with_name("instep"),
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        try:
            for height, width in ((30, 132), (20, 60), (40, 100)):
                termios.tcsetwinsize(ours, (height, width))
                shown = b""
                screen: list[str] = []
                # What is still drawn for the size before comes first.
                while (
                    len(screen) != height
                    or {len(row) for row in screen} != {width}
                    or not any(row.startswith("east / network") for row in screen)
                ):
                    shown += os.read(ours, 65536)
                    screen = next(iter(frames(shown)[-1:]), [])
        finally:
            process.send_signal(signal.SIGTERM)
            with suppress(OSError):  # how Linux reports that the other side is closed
                while os.read(ours, 65536):
                    pass
            assert process.wait(DEADLINE_S) == 0
            os.close(ours)
