"""The examples do what their texts promise, against a real provider."""

import asyncio
import importlib.util
import json
import math
import random
import re
import runpy
import signal
import sqlite3
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from instep import AlignmentSettings, ConfigurationError, Consumer, ConsumerSettings
from instep.ports import Sink
from instep_tapi import TapiSource, read_options
from instep_tapi_provider import Context, Provider
from tests.nats_kit import server_program

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
QUICK = ConsumerSettings(
    reconnect_initial_s=0.01,
    poll_state_s=0.1,
    alignment=AlignmentSettings(quiet_s=0.3, unreached_quiet_s=1.0),
)


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def network() -> Context:
    nodes = [
        {"uuid": key, "name": [{"value-name": "name", "value": name}], "operational-state": state}
        for key, name, state in (
            ("n1", "Aachen", "ENABLED"),
            ("n2", "Berlin", "ENABLED"),
            ("n3", "Cottbus", "DISABLED"),
        )
    ]
    topology = {"uuid": "t", "node": nodes}
    return Context(
        {"uuid": "c", "tapi-topology:topology-context": {"topology": [topology]}},
    )


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.05)


@pytest.mark.asyncio
async def test_embed_prints_each_change_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    embed = example("embed")
    url = f"sqlite:///{tmp_path}/embed.db"
    printed: list[str] = []

    def has_printed(word: str) -> bool:
        printed.extend(capsys.readouterr().out.splitlines())
        return any(word in line for line in printed)

    async with Provider(network()) as provider:
        program = asyncio.create_task(embed.main(provider.url, url, 0, math.inf))
        await until(lambda: has_printed("created NODE n3"))
        provider.update("n1", {"operational-state": "DISABLED"})
        await until(lambda: has_printed("updated NODE n1"))
        program.cancel()
        with suppress(asyncio.CancelledError):
            await program
        cursor = int(printed[-1].split()[0])
        printed.clear()

        provider.delete("n2")
        program = asyncio.create_task(embed.main(provider.url, url, cursor, math.inf))
        await until(lambda: has_printed("deleted"))
        program.cancel()
        with suppress(asyncio.CancelledError):
            await program
    (change,) = [line.split() for line in printed if " " in line]
    assert (change[0], change[1], change[-1]) == (str(cursor + 1), "deleted", "n2")


@pytest.mark.asyncio
async def test_alarms_are_shown_by_severity_with_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with Provider(network()) as provider:
        provider.raise_alarm("n1", "FANFAIL")
        provider.clear_alarm(provider.raise_alarm("n2", "FANFAIL"))
        provider.raise_alarm("n3", "EQPT-FAIL")
        await example("alarms").main(provider.url, "sqlite://")
    assert capsys.readouterr().out.splitlines() == [
        "CRITICAL: 1",
        "  Equipment Failure at Cottbus",
        "MAJOR: 1",
        "  Fan Failure at Aachen",
        "MINOR: 0",
        "WARNING: 0",
        "not stated: 0",
    ]


@pytest.mark.asyncio
async def test_the_outbox_publishes_each_change_of_a_port_in_order(tmp_path: Path) -> None:
    outbox = example("outbox")
    published, url = tmp_path / "published.txt", f"sqlite:///{tmp_path}/outbox.db"
    state = {"uuid": "p1", "operational-state": "ENABLED"}
    node = {"uuid": "n1", "owned-node-edge-point": [state]}
    topology = {"uuid": "t", "node": [node]}
    context = {"uuid": "c", "tapi-topology:topology-context": {"topology": [topology]}}
    async with Provider(Context(context)) as provider:
        await outbox.main(provider.url, url, str(published))
        provider.update("p1", {"operational-state": "DISABLED"})
        provider.delete("p1")
        await outbox.main(provider.url, url, str(published))
    assert published.read_text().splitlines() == [
        "p1 created ENABLED",
        "p1 updated DISABLED",
        "p1 deleted None",
    ]


@pytest.mark.asyncio
async def test_own_table_follows_the_journal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_table = example("own_table")
    path, url = str(tmp_path / "nodes.db"), f"sqlite:///{tmp_path}/own_table.db"
    async with Provider(network()) as provider:
        await own_table.main(provider.url, url, path)
        assert capsys.readouterr().out.splitlines()[1:] == [
            "1 nodes are DISABLED",
            "2 nodes are ENABLED",
        ]
        provider.delete("n1")
        provider.update("n2", {"operational-state": "DISABLED"})
        await own_table.main(provider.url, url, path)
    with closing(sqlite3.connect(path)) as table:
        rows = table.execute("SELECT key, name, state FROM node ORDER BY key").fetchall()
    assert rows == [("n2", "Berlin", "DISABLED"), ("n3", "Cottbus", "DISABLED")]


@pytest.mark.asyncio
async def test_projection_writes_a_row_for_each_port(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ports = [
        {"uuid": "p1", "layer-protocol-name": "DSR", "operational-state": "ENABLED"},
        {"uuid": "p2", "layer-protocol-name": "DSR", "operational-state": "ENABLED"},
        {"uuid": "p3", "layer-protocol-name": "ODU"},
    ]
    topology = {"uuid": "t", "node": [{"uuid": "n1", "owned-node-edge-point": ports}]}
    context = Context({"uuid": "c", "tapi-topology:topology-context": {"topology": [topology]}})
    async with Provider(context) as provider:
        await example("projection").main(provider.url, f"sqlite:///{tmp_path}/projection.db")
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "1 ports of ODU are UNKNOWN",
        "2 ports of DSR are ENABLED",
    ]


@pytest.mark.asyncio
async def test_subscriber_goes_on_where_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    links = [{"uuid": key, "operational-state": "ENABLED"} for key in ("l1", "l2")]
    topology = {"uuid": "t", "node": [{"uuid": "n1"}], "link": links}
    context = Context({"uuid": "c", "tapi-topology:topology-context": {"topology": [topology]}})
    url, cursor = f"sqlite:///{tmp_path}/subscriber.db", tmp_path / "cursor"
    subscriber = example("subscriber")

    async def until_told(changes: int) -> list[str]:
        """Run it until it has told so many, and has kept the cursor behind them."""
        told: list[str] = []
        before = cursor.read_text() if cursor.exists() else ""

        def is_told() -> bool:
            told.extend(capsys.readouterr().out.splitlines())
            return len(told) > changes and cursor.exists() and cursor.read_text() != before

        program = asyncio.create_task(subscriber.main(provider.url, url, str(cursor), math.inf))
        await until(is_told)
        program.cancel()
        with suppress(asyncio.CancelledError):
            await program
        return told[1:]

    async with Provider(context) as provider:
        first = await until_told(2)
        provider.update("l2", {"operational-state": "DISABLED"})
        second = await until_told(1)
    assert [line.split()[:2] for line in first] == [["created", "l1"], ["created", "l2"]]
    assert second == [
        'updated l2 [{"op": "replace", "path": "/operational-state", "value": "DISABLED"}]'
    ]


def keep(path: Path, provider: Provider) -> Consumer:
    sink: Sink = example("plug_in").sink.build({"path": str(path)}, "test")
    source = TapiSource(read_options({"endpoints": [provider.url]}, "test"))
    return Consumer("test", source, sink, QUICK)


def kept(path: Path, stream: str) -> dict[str, Any]:
    entities = msgspec.json.decode(path.read_bytes())[stream]["entities"]
    return {k: json.loads(b64decode(e["record"]["body"])) for k, e in entities.items()}


def stated(provider: Provider, stream: str) -> dict[str, Any]:
    return {key: json.loads(body) for key, (_, body) in provider.entities(stream).items()}


@pytest.mark.asyncio
async def test_the_plugged_in_sink_holds_what_the_provider_states(tmp_path: Path) -> None:
    path = tmp_path / "network.json"
    async with Provider(network()) as provider:
        async with keep(path, provider) as consumer:
            await consumer.aligned(timeout_s=20)
            assert kept(path, "network") == stated(provider, "network")
            provider.update("n1", {"operational-state": "DISABLED"})
            provider.delete("n3")
            await until(lambda: kept(path, "network") == stated(provider, "network"))
        # The consumer is away while an entity ends and the log with its end is lost: only a sweep
        # finds it.
        provider.delete("n2")
        provider.forget_log()
        async with keep(path, provider) as consumer:
            await consumer.aligned(timeout_s=20)
            await until(lambda: kept(path, "network") == stated(provider, "network"))
            assert {s.stream: s.attempt for s in consumer.health().streams}["network"] == 2


@pytest.mark.asyncio
async def test_the_plugged_in_sink_commits_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "network.json"
    async with Provider(network()) as provider, keep(path, provider) as consumer:
        await consumer.aligned(timeout_s=20)
        before = path.read_bytes()
        path.with_suffix(".new").mkdir()  # nothing can be written now
        provider.update("n1", {"operational-state": "DISABLED"})
        await until(lambda: any(s.last_error for s in consumer.health().streams))
        assert path.read_bytes() == before
        path.with_suffix(".new").rmdir()
        await until(lambda: kept(path, "network") == stated(provider, "network"))


def test_the_plug_in_refuses_other_options() -> None:
    with pytest.raises(ConfigurationError, match="give path"):
        example("plug_in").sink.check({"url": "x"}, "sink")


@pytest.mark.asyncio
async def test_the_right_bid_wins_the_auction(capsys: pytest.CaptureFixture[str]) -> None:
    auction, seed = example("auction"), random.randrange(1_000)
    await auction.main(seed)
    lines = capsys.readouterr().out.splitlines()
    bids = {did: ", ".join(map(str, made)) for did, made in auction.BIDS.items()}
    assert lines[0] == f"seed {seed}"
    assert lines[1:4] == [f"{did} bid {made}" for did, made in bids.items()]
    assert lines[5:] == [f"{did} heard: sold to did:example:bob for 280" for did in bids]


ALL = sorted(path.stem for path in EXAMPLES.glob("*.py"))
SHARED = {"simulation", "lake_simulation", "device_simulation", "own_inbox"}
"""What examples import: no example."""
TOLD = {
    "alarms": r"(CRITICAL|MAJOR|MINOR|WARNING): [1-9]\d*\n  .+ at \w+",
    "auction": r"carol heard: sold to did:example:bob for 280",
    "device_gateway": r"the store is the MDIB of the device\n(.+\n)*pulse is \d+",
    "embed": r"aligned\n1 created [A-Z_]+ ",
    "handler": r"bolts: 7\nnuts: 5",
    "live_aiohttp": r"open http://127.0.0.1:\d+ to see alarms",
    "live_fastapi": r"open http://127.0.0.1:\d+ to see alarms",
    "numbers_in_file": r"booked:\na 1: 100\na 2: 110\na 3: 120\nmissing of b: \[\(1, 1\)\]",
    "numbers_on_topic": r"booked:\nlots.a 1: 100\nlots.a 2: 200\nlots.a 3: 300\nlots.a 4: 400",
    "numbers_over_http": r"booked:\na 1: 100\na 2: 200\na 3: 300",
    "outbox": r"[1-9]\d* events are published",
    "own_table": r"[1-9]\d* changes applied; .+\n(.+\n)*[1-9]\d* nodes are ENABLED",
    "plug_in": r"holds:\n  \d+ entities of (network|alarms), at ordinal [1-9]",
    "projection": r"[1-9]\d* ports of PHOTONIC_MEDIA are ENABLED",
    "subscriber": r"[1-9]\d* changes behind\ncreated \S+ \[",
}
"""What each says that is run without arguments."""
NEED_SPARK = {"lake_cluster", "lake_plots"}
OWN_PROCESS = {"derivation"}
"""They add to what is found once in a process."""
FOLLOW = {"embed", "subscriber"}
"""They go on for `--seconds`, or until Ctrl-C."""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs an example as its reader runs it, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "simulation", raising=False)  # temporary files of its own

    def run(name: str, *arguments: str) -> None:
        path = str(EXAMPLES / f"{name}.py")
        monkeypatch.setattr(sys, "argv", [path, *arguments])
        runpy.run_path(path, run_name="__main__")

    return run


def test_every_example_is_run() -> None:
    assert TOLD.keys() | NEED_SPARK | OWN_PROCESS | SHARED == set(ALL)


@pytest.mark.parametrize("name", sorted(TOLD.keys() - FOLLOW))
def test_an_example_needs_no_arguments(
    name: str,
    run: Callable[..., None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if name == "numbers_on_topic":
        server_program()  # skips where there is none
    run(name)
    told = capsys.readouterr().out
    assert re.search(TOLD[name], told), told
    assert list(tmp_path.iterdir()) == []  # it leaves nothing behind


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", sorted(FOLLOW))
def test_an_example_that_follows_needs_no_arguments_and_ends_by_ctrl_c(
    name: str, tmp_path: Path
) -> None:
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), "--seconds", "inf"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        told = ""
        while not re.search(TOLD[name], told):
            line = process.stdout.readline()
            assert line, told
            told += line
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", sorted(TOLD.keys() | NEED_SPARK))
def test_an_example_has_help(
    name: str, run: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(name, "--help")
    told = capsys.readouterr().out
    assert ended.value.code == 0
    assert told.startswith(f"usage: {name}.py")
    assert (EXAMPLES / f"{name}.py").read_text()[3:].splitlines()[0] in told


@pytest.mark.parametrize("name", ["handler", "projection", "subscriber"])
def test_a_beginning_is_short(name: str) -> None:
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < 60


def test_the_derivation_of_a_made_up_class() -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "derivation.py"], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["front: 8 s", "back: 9 s", "front: inf s"]
