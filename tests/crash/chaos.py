"""Restarts one `instep run` with consumers of every kind again and again, by SIGTERM and SIGKILL,
with a thread switch every 10 µs, under load and under hostile input. A broker is killed, too.

It fails where the process or one of its children dies by a signal that was not sent, a message is
lost, doubled or out of order, or a store differs from its provider at the end.

Run by hand at full size: `make chaos ROUNDS=300`. With `--with-lazy-decoder` the decoders of what
stores keep are made at their first use again, in the program under test only: it has to be caught.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
import psycopg

from tests.crash import sdpi
from tests.crash.chaos_load_kit import (
    SUBJECTS,
    BrokerLink,
    DidcommLoad,
    GatedLink,
    Load,
    NatsLoad,
    WsrLoad,
    WsrmLoad,
    attack,
)
from tests.crash.lake_checks_kit import RECORDS, table
from tests.crash.message_receiver import PROTOCOL
from tests.crash.site_kit import INSTEP, Site, compare, site
from tests.instep_sdpi.provider_kit import providing
from tests.instep_sdpi.relay_kit import relaying
from tests.nats_kit import NatsServer, nats_server
from tests.postgres_kit import Missing, serving

__all__ = ["Report", "chaos"]

SITECUSTOMIZE: Final = """
import sys
sys.setswitchinterval(1e-5)
"""
LAZY: Final = """
import msgspec

class Lazy:
    def __init__(self, type):
        self.type = type

    def decode(self, raw):
        return msgspec.json.decode(raw, type=self.type)

eager = msgspec.json.Decoder

def Decoder(type=object, **more):
    name = getattr(type, "__name__", "")
    return Lazy(type) if name in {names!r} else eager(type, **more)

msgspec.json.Decoder = Decoder
"""
WERE_LAZY: Final = {"SequencerState", "Position", "GroupAttributes", "SequenceAttributes"}
TAPI: Final = """
[[consumers]]
name = "{name}"
{more}
source = {{ kind = "tapi", endpoints = ["{url}"] }}
sink = {sink}
[consumers.settings]
reconnect_initial_s = 0.05
reconnect_max_s = 1.0
alignment = {{ quiet_s = 0.5, unreached_quiet_s = 10.0, probe_min_s = 0.001 }}
"""
LISTENER: Final = """
[[consumers]]
name = "{name}"
sink = {{ kind = "sql", url = "{store}" }}
[consumers.source]
kind = "{kind}"
listen = "http://127.0.0.1:{port}/in"
{more}
"""
DIDCOMM: Final = (
    f'protocols = [{{ type = "{PROTOCOL}/*", sequenced = true }}]\n'
    "sequence = { gap_deadline_s = 3600.0 }"
)
WSRM: Final = "sequence = { gap_deadline_s = 3600.0 }"
STREAM: Final = "CHAOS"
BROKER: Final = f"""
[[consumers]]
name = "broker"
sink = {{{{ kind = "sql", url = "{{store}}" }}}}
[consumers.source]
kind = "nats"
servers = ["{{url}}"]
stream = "{STREAM}"
subjects = ["{SUBJECTS}.*"]
number = "member:number"
"""
LOADS: Final[dict[str, tuple[str, type[DidcommLoad | WsrLoad | WsrmLoad]]]] = {
    "didcomm": (DIDCOMM, DidcommLoad),
    "wsrm": (WSRM, WsrmLoad),
    "wsr": ("", WsrLoad),
}
_START_S: Final = 120.0
_STOP_S: Final = 60.0
_EQUAL_WITHIN_S: Final = 120.0


@dataclass
class Report:
    """What the rounds showed. `faults` must be empty."""

    seed: int
    consumers: int = 0
    restarts: int = 0
    stops: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    delivered: int = 0
    records: int = 0
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        stops = ", ".join(f"{count} {name}" for name, count in sorted(self.stops.items()))
        return (
            f"seed {self.seed}: {self.restarts} restarts of {self.consumers} consumers ({stops})"
            f" in {self.seconds:.0f} s; {self.delivered:,} messages delivered, {self.records:,}"
            f" entities compared, {sum(self.answers.values()):,} hostile requests;"
            f" faults: {len(self.faults)}"
        )


class Program:
    """`instep run` of a configuration, restarted."""

    def __init__(self, folder: Path, *, lazy: bool) -> None:
        self.config = folder / "instep.toml"
        self.ports: list[int] = []
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        custom = SITECUSTOMIZE + (LAZY.format(names=WERE_LAZY) if lazy else "")
        (folder / "site").mkdir()
        (folder / "site" / "sitecustomize.py").write_text(custom)

    def start(self) -> None:
        path = os.pathsep.join([str(self._folder / "site"), os.environ.get("PYTHONPATH", "")])
        quiet = {"PYTHONASYNCIODEBUG": "", "PYTHONFAULTHANDLER": "1", "PYTHONPATH": path}
        with (self._folder / "out").open("wb") as out, (self._folder / "err").open("wb") as err:
            self._process = subprocess.Popen(
                [*INSTEP, "run", str(self.config), "--format", "jsonl", "--period", "60"],
                stdout=out,
                stderr=err,
                env=os.environ | quiet,
            )

    async def listens(self) -> bool:
        """Wait until all ports are open. False: it has ended."""
        until_s = time.monotonic() + _START_S
        for port in self.ports:
            while not _is_open(port):
                if self.ended or time.monotonic() > until_s:
                    return False
                await asyncio.sleep(0.02)
        return True

    @property
    def ended(self) -> bool:
        assert self._process is not None
        return self._process.poll() is not None

    def stop(self, by: signal.Signals) -> int:
        """Send it a signal; its status."""
        assert self._process is not None
        self._process.send_signal(by)
        return self._process.wait(_STOP_S)

    def faults(self, by: signal.Signals | None, status: int, *, ready: bool) -> list[str]:
        """What is wrong with how it ran and ended. `by`: what was sent; None: nothing."""
        wanted = {signal.SIGKILL: {-signal.SIGKILL}, signal.SIGTERM: {0}, None: set[int]()}[by]
        if by is signal.SIGTERM and not ready:
            # Nothing was to be completed yet.
            wanted = {0, -signal.SIGTERM}
        found = []
        errors = (self._folder / "err").read_text(errors="replace")
        if status not in wanted or "Fatal Python error" in errors:
            told = errors[max(0, errors.find("Fatal Python error")) :]
            found.append(f"it ended with {status}: {told[:3_000]}")
        for line in (self._folder / "out").read_bytes().splitlines():
            with contextlib.suppress(ValueError):
                told = json.loads(line)
                if told["event"] in ("worker-lost", "failed", "restarted", "sequence-failed"):
                    found.append(f"{told['consumer']}: {told['event']}: {told['text']}")
        return found


def _is_open(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@dataclass
class Stores:
    """What is compared at the end."""

    sql: dict[str, str] = field(default_factory=dict)
    """Consumer of TAPI → the URL of its store."""
    lakes: dict[str, str] = field(default_factory=dict)
    loads: list[tuple[Load, str]] = field(default_factory=list)


def configure(
    folder: Path,
    provider: str,
    make_database: Callable[[], str] | None,
    link: Callable[[str], GatedLink],
    broker: str,
    seed: int,
) -> tuple[str, list[int], Stores]:
    """Consumers of every kind: their configuration, the ports, and the stores."""
    parts, ports, stores = [], [], Stores()

    def sqlite(name: str) -> str:
        return f"sqlite:///{folder}/{name}.db"

    def tapi(name: str, *urls: str, more: str = "", kind: str = "sql") -> None:
        tables = [f'{{ kind = "{kind}", url = "{url}" }}' for url in urls]
        tee = f'{{ kind = "tee", sinks = [{", ".join(tables)}] }}'
        sink = tables[0] if len(tables) == 1 else tee
        parts.append(TAPI.format(name=name, more=more, url=provider, sink=sink))
        kept = stores.sql if kind == "sql" else stores.lakes
        kept.update({f"{name}-{number}": url for number, url in enumerate(urls)})

    def listener(name: str, kind: str, store: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        more, load = LOADS[kind]
        text = LISTENER.format(name=name, kind=kind, store=store, port=port, more=more)
        parts.append(text)
        ports.append(port)
        made = load(name, link(f"http://127.0.0.1:{port}/in"), seed + len(ports))
        stores.loads.append((made, store))

    tapi("network", sqlite("network"))
    tapi("workers", sqlite("workers"), more="workers = 2")
    tapi("tee", sqlite("tee-a"), sqlite("tee-b"))
    tapi("lake", f"{(folder / 'lake').as_uri()}", kind="delta")
    for name, kind in (("did-a", "didcomm"), ("did-b", "didcomm"), ("rm", "wsrm"), ("wsr", "wsr")):
        listener(name, kind, sqlite(name))
    parts.append(BROKER.format(store=sqlite("broker"), url=broker))
    stores.loads.append((NatsLoad("broker", BrokerLink(broker), seed), sqlite("broker")))
    if make_database is not None:
        tapi("server", make_database())
        listener("rm-server", "wsrm", make_database())
    return "".join(parts), ports, stores


async def chaos(rounds: int, *, seed: int, lazy: bool = False, show: bool = False) -> Report:
    """Restart so often, then let all come to rest and compare."""
    report, begun_s = Report(seed), time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="instep-chaos-") as name,
        contextlib.ExitStack() as stack,
    ):
        folder = Path(name)
        make_database: Callable[[], str] | None = None
        with contextlib.suppress(Missing):
            make_database = stack.enter_context(serving()).create
        options = ("--topology", "sndlib/polska", "--services", "5", "--alarms", "20")
        network = stack.enter_context(site("", *options, "--storm", "50", "--seed", str(seed)))
        timeout = aiohttp.ClientTimeout(total=20)
        connector = aiohttp.TCPConnector(limit=0)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            relaying(seed, 0.0) as relay,
            providing() as device,
            nats_server() as broker,
        ):
            async with broker.stream(STREAM, [f"{SUBJECTS}.*"]):
                pass
            device.expires_s = 10
            (folder / "sdpi").mkdir()
            rng = random.Random(seed)
            bed = sdpi.Site(device, relay, folder / "sdpi", rng, sdpi.Report())
            gate = asyncio.Event()
            text, ports, stores = configure(
                folder,
                network.url,
                make_database,
                lambda url: GatedLink(url, session, gate),
                broker.url,
                seed,
            )
            text += (folder / "sdpi" / "instep.toml").read_text()
            links = [load.link for load, _ in stores.loads]
            program = Program(folder, lazy=lazy)
            program.config.write_text(text)
            program.ports = [*ports, int(relay.target.rpartition(":")[2])]
            report.consumers = text.count("[[consumers]]")
            sending = [asyncio.create_task(load.run()) for load, _ in stores.loads]
            beside = [
                asyncio.create_task(attack(program.ports, rng, report.answers)),
                asyncio.create_task(bed.storm(10)),
                asyncio.create_task(_kill_broker(broker, random.Random(seed))),
            ]
            try:
                for _ in range(rounds):
                    await _round(program, gate, links, rng, report)
                    if show:
                        print(f"\r{report.restarts} restarts", end="", file=sys.stderr, flush=True)
                    if report.faults:
                        break
                    if report.restarts % 10 == 0:
                        chance = rng.choice((0.0, 0.02))
                        faults = {"drop_probability": chance, "fragment_every": 50}
                        await asyncio.to_thread(lambda: network.command("faults", **faults))  # noqa: B023
                if not report.faults:
                    for task in beside:
                        task.cancel()
                    await _settle(program, gate, network, bed, stores, sending, report)
            finally:
                for task in [*beside, *sending]:
                    task.cancel()
                await asyncio.gather(*beside, *sending, return_exceptions=True)
                await bed.stop()
                if not program.ended:
                    program.stop(signal.SIGKILL)
    report.seconds = time.monotonic() - begun_s
    return report


async def _round(
    program: Program,
    gate: asyncio.Event,
    links: list[GatedLink | BrokerLink],
    rng: random.Random,
    report: Report,
) -> None:
    """Start it, let it work, and end it."""
    by = rng.choice((signal.SIGTERM, signal.SIGKILL))
    early = rng.random() < 0.15
    program.start()
    if early:
        await asyncio.sleep(rng.uniform(0.0, 1.5))
        ready = False
    else:
        ready = await program.listens()
        await asyncio.gather(*(link.repeat() for link in links))
        gate.set()
        await asyncio.sleep(rng.uniform(0.1, 1.0))
    gone = program.ended or not (ready or early)
    status = await asyncio.to_thread(program.stop, by)
    gate.clear()
    report.restarts += 1
    report.stops[f"{by.name}{' while it started' * early}"] += 1
    report.faults += program.faults(None if gone else by, status, ready=ready)


async def _kill_broker(broker: NatsServer, rng: random.Random) -> None:
    """Kill the broker from time to time, until cancelled; it runs again after that, too."""

    async def restart() -> None:
        await asyncio.to_thread(broker.stop)
        await broker.start()

    while True:
        await asyncio.sleep(rng.uniform(5, 20))
        await asyncio.shield(asyncio.create_task(restart()))


async def _settle(
    program: Program,
    gate: asyncio.Event,
    network: Site,
    bed: sdpi.Site,
    stores: Stores,
    sending: list[asyncio.Task[None]],
    report: Report,
) -> None:
    """Let all come to rest, and compare."""
    for load, _ in stores.loads:
        load.enough = True
    await asyncio.to_thread(lambda: network.command("storm", changes_per_s=0))
    await asyncio.to_thread(lambda: network.command("faults", drop_probability=0.0))
    program.start()
    ready = await program.listens()
    gate.set()
    done, late = await asyncio.wait(sending, timeout=_EQUAL_WITHIN_S)
    report.faults += [f"a sender gets no answer: {task}" for task in late]
    report.faults += [repr(task.exception()) for task in done if task.exception() is not None]
    await bed.converge()
    until_s = time.monotonic() + _EQUAL_WITHIN_S
    while True:
        different = await asyncio.to_thread(lambda: list(_differences(network, stores, report)))
        if not different or time.monotonic() > until_s:
            break
        await asyncio.sleep(1)
    report.faults += [*different, *bed.report.differences]
    status = await asyncio.to_thread(program.stop, signal.SIGTERM)
    report.faults += program.faults(signal.SIGTERM, status, ready=ready)


def _differences(network: Site, stores: Stores, report: Report) -> Iterator[str]:
    truth = network.truth()
    report.records = report.delivered = 0
    for name, url in stores.sql.items():
        found = compare(Site(network.folder, network.url, url))
        yield from (f"{name}: {one}" for one in found)
        report.records += len(truth)
    for name, url in stores.lakes.items():
        yield from (f"{name}: {one}" for one in _lake_differences(network, url))
        report.records += len(truth)
    for load, url in stores.loads:
        read = (load.read(body) for body in _bodies(url))
        delivered = [one for one in read if one is not None]
        report.delivered += len(delivered)
        yield from (f"{load.name}: {one}" for one in load.faults(delivered))


def _lake_differences(network: Site, url: str) -> Iterator[str]:
    """Rows of `changes` that are there twice, and what they come to beside what is stated."""
    names = ("stream", "attempt", "partition", "record_offset", "key", "kind", "token", "ordinal")
    place = url.removeprefix("file://")
    rows = sorted(table(place, "changes", *names, "body"), key=lambda row: row["ordinal"])
    copies = Counter(tuple(row[one] for one in names) for row in rows)
    yield from (f"row {row} {count} times" for row, count in copies.items() if count > 1)
    last = {(row["stream"], row["key"]): row for row in rows if row["kind"] in RECORDS}
    held = {at: json.loads(row["body"]) for at, row in last.items() if row["kind"] == RECORDS[0]}
    truth = {at: one.body for at, one in network.truth().items()}
    for at in sorted(truth.keys() | held.keys()):
        if truth.get(at) != held.get(at):
            yield f"{at}: {str(held.get(at))[:100]} for {str(truth.get(at))[:100]}"


def _bodies(url: str) -> list[bytes]:
    """The bodies of the delivered messages, in the order of delivery."""
    query = "SELECT body FROM instep_message ORDER BY id"
    if url.startswith("sqlite"):
        file = url.removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(file, timeout=60)) as raw:
            return [body for (body,) in raw.execute(query)]
    with psycopg.connect(url) as server:
        return [bytes(body) for (body,) in server.execute(query)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--with-lazy-decoder", action="store_true", help="it has to be caught")
    given = parser.parse_args()
    lazy = given.with_lazy_decoder
    report = asyncio.run(chaos(given.rounds, seed=given.seed, lazy=lazy, show=True))
    print(f"\r{report}", flush=True)
    for fault in report.faults[:20]:
        print(fault)
    if lazy:
        caught = any("-11" in fault or "SIGSEGV" in fault for fault in report.faults)
        print("caught" if caught else "not caught")
        return 0 if caught else 1
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
