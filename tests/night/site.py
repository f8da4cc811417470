"""Real processes whose durations are all divided by one number: providers, `instep run`, and a
Prometheus that scrapes their ports and evaluates the rules.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.error
import urllib.parse
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar

import msgspec

from docs.operations import rules
from instep import ConsumerSettings
from instep_didcomm.options import DEFAULT_SEQUENCE
from instep_sql.options import SqlOptions
from instep_tapi.options import Options as TapiOptions

__all__ = [
    "Consumer",
    "Firing",
    "Prometheus",
    "ProviderProcess",
    "didcomm_source",
    "divided",
    "free_port",
    "scaled_rules",
    "toml",
    "until",
]

INSTEP: Final = (sys.executable, "-m", "instep.cli")
SCRAPE_S: Final = 15.0
"""As in the run book: how often Prometheus scrapes and evaluates."""
_LOOK_EVERY_S: Final = 0.1
_UNSCALED: Final = ("InstepLoopLate",)
"""It is of the processor, which is not faster in a night that is."""
T = TypeVar("T")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


async def until(found: Callable[[], T], within_s: float, what: str) -> T:
    """Look again and again until there is something."""
    ends_s = time.monotonic() + within_s
    while not (one := found()):
        if time.monotonic() > ends_s:
            raise TimeoutError(f"{what}: not within {within_s:.0f} s")
        await asyncio.sleep(_LOOK_EVERY_S)
    return one


# -- durations -----------------------------------------------------------------------------------


def divided(defaults: Any, scale: float) -> dict[str, Any]:
    """All durations of some settings, divided, in the tables in which they are."""
    found: dict[str, Any] = {}
    for name in defaults.__struct_fields__:
        value = getattr(defaults, name)
        if isinstance(value, msgspec.Struct):
            if inner := divided(value, scale):
                found[name] = inner
        elif name.endswith("_s") and isinstance(value, float) and value:
            rate = name.endswith("_per_s")
            found[name] = round(value * scale if rate else value / scale, 6)
    return found


def scaled_rules(scale: float) -> str:
    """The rules that are deployed, with all of their durations divided."""

    def seconds(match: re.Match[str]) -> str:
        unit = {"s": 1, "m": 60, "h": 3600}[match[3]]
        return f"{match[1]}{float(match[2]) * unit * 1000 / scale:.0f}ms{match[4]}"

    def threshold(match: re.Match[str]) -> str:
        return f"{match[1]}{float(match[2]) / scale:g}"

    text = []
    alert = ""
    for line in rules().splitlines():
        alert = line.partition("alert: ")[2] or alert
        scaled = line
        if alert not in _UNSCALED:
            scaled = re.sub(r"(for: )(\d+)([smh])()", seconds, scaled)
            scaled = re.sub(r"(\[)(\d+)([smh])(\])", seconds, scaled)
            scaled = re.sub(r"(_seconds > )(\d+)", threshold, scaled)
        text.append(scaled)
    return "\n".join(text) + "\n"


def toml(value: Any) -> str:
    """A value as TOML on one line."""
    match value:
        case Mapping():
            return f"{{ {', '.join(f'{key} = {toml(one)}' for key, one in value.items())} }}"
        case list() | tuple():
            return f"[{', '.join(map(toml, value))}]"
        case _:
            return json.dumps(value)


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    both = dict(first)
    for key, value in second.items():
        inner = isinstance(value, Mapping) and isinstance(both.get(key), Mapping)
        both[key] = merged(both[key], value) if inner else value
    return both


# -- processes -----------------------------------------------------------------------------------


class _Process:
    """A process that is started, and ended in one of several ways."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self, *words: str) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                words,
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONASYNCIODEBUG": ""},
                # An interrupt at the terminal is for us, and we end it.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def said(self) -> str:
        """The end of what it said."""
        return self._log.read_text(errors="replace")[-2_000:]

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def end(self, by: signal.Signals = signal.SIGTERM) -> None:
        """End it, and wait for that."""
        if not self.ended:
            self.send(by)
            assert self._process is not None
            await asyncio.to_thread(self._process.wait, 60)

    def kill(self) -> None:
        """A process that is stopped is ended by nothing else."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class ProviderProcess(_Process):
    """A simulated provider with its control endpoint, which keeps its port over its starts."""

    def __init__(self, folder: Path, name: str, scale: float, *options: str) -> None:
        super().__init__(folder / f"{name}.log")
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        small = ("--topology", "sndlib/polska", "--services", "20", "--alarms", "20")
        periods = {"compaction-delay": 600, "tombstone-retention": 3_600, "pong-timeout": 30}
        self._words = [*INSTEP, "provider", "--control", "--port", str(self._port), *small]
        for period, value in periods.items():
            self._words += [f"--{period}", f"{value / scale:.3f}s"]
        self._words += options

    def start(self) -> None:
        self.begin(*self._words)

    async def serving(self) -> None:
        await until(self._answers, 240, "the provider serves")

    def _answers(self) -> bool:
        if self.ended:
            raise RuntimeError(self.said())
        with contextlib.suppress(OSError):
            self.ask("counters")
            return True
        return False

    def ask(self, what: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/_instep/{what}", timeout=30) as answer:
            return answer.read()

    def command(self, name: str, **body: Any) -> None:
        """POST to the control endpoint."""
        data = json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/_instep/{name}", data, method="POST")
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()

    def entities(self) -> list[str]:
        """The keys of all entities but alarms."""
        lines = [json.loads(one) for one in self.ask("entities").splitlines()]
        return [one["key"] for one in lines if one["class"] != "CONDITION_DETECTOR"]


class Consumer(_Process):
    """`instep run` of one consumer, with its port."""

    def __init__(
        self,
        folder: Path,
        name: str,
        scale: float,
        source: Mapping[str, Any],
        *,
        store: str = "",
        settings: Mapping[str, Any] | None = None,
        sink: Mapping[str, Any] | None = None,
        suffix: str = "",
    ) -> None:
        super().__init__(folder / f"{name}{suffix}-run.log")
        self._folder = folder
        self.others: Mapping[str, Mapping[str, Any]] = {}
        """More consumers of the process, by name, with their sources."""
        self.name = name
        self.port = free_port()
        self.file = folder / f"{name}{suffix}.toml"
        self.store = store or f"sqlite:///{folder}/{name}.db"
        kept = {
            key: value
            for key, value in divided(SqlOptions(url=self.store), scale).items()
            if key in ("busy_timeout_s", "statement_timeout_s")
        }
        self.sink = {"kind": "sql", "url": self.store, **kept, **(sink or {})}
        self.settings = merged(divided(ConsumerSettings(), scale), settings or {})
        self._times = divided(TapiOptions(endpoints=()), scale)
        self.source = dict(source)
        self.write()

    def write(self) -> None:
        """Write the configuration anew, as it is now."""
        tables = {"source": self._timed(self.source), "sink": self.sink, "settings": self.settings}
        lines = "\n".join(f"{key} = {toml(value)}" for key, value in tables.items())
        text = (
            f'[operations]\nlisten = "127.0.0.1:{self.port}"\n'
            f'[[consumers]]\nname = "{self.name}"\n{lines}\n'
        )
        for name, source in self.others.items():
            url = f"sqlite:///{self._folder}/{name}.db"
            text += (
                f'[[consumers]]\nname = "{name}"\nsource = {toml(self._timed(source))}\n'
                f"sink = {toml({'kind': 'sql', 'url': url})}\n"
                f"settings = {toml(self.settings)}\n"
            )
        tomllib.loads(text)
        self.file.write_text(text)

    def _timed(self, source: Mapping[str, Any]) -> dict[str, Any]:
        times = self._times if source["kind"] == "tapi" else {}
        return merged(times, source)

    def start(self) -> None:
        self.begin(*INSTEP, "run", str(self.file), "--format", "jsonl", "--period", "600")

    def page(self, path: str) -> tuple[int, str]:
        """Status and text; status 0: nobody answers."""
        url = f"http://127.0.0.1:{self.port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    async def ready(self, within_s: float = 240) -> None:
        def answers() -> bool:
            if self.ended:
                raise RuntimeError(self.said())
            return self.page("/readyz")[0] == 200

        try:
            await until(answers, within_s, f"{self.name} is ready")
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {self.page('/readyz')[1]}") from None

    async def command(self, *words: str) -> str:
        """What a command of instep about this consumer prints; it must end with 0."""
        done = await asyncio.to_thread(
            subprocess.run, [*INSTEP, *words], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{words}: {done.stdout}{done.stderr}")
        return done.stdout


def didcomm_source(port: int, scale: float, **sequence: Any) -> dict[str, Any]:
    """The table of a receiver of numbered messages."""
    times = {key: value / scale for key, value in divided(DEFAULT_SEQUENCE, 1).items()}
    return {
        "kind": "didcomm",
        "listen": f"http://127.0.0.1:{port}/in",
        "protocols": [{"type": "https://example.org/night/1.0/*", "sequenced": True}],
        "sequence": {**times, **sequence},
    }


# -- Prometheus ----------------------------------------------------------------------------------


class Firing(NamedTuple):
    """When an alert began to hold, fired, and was over, in seconds since the epoch."""

    alert: str
    held_s: float
    fired_s: float
    over_s: float


class Prometheus:
    """The real server, which scrapes the ports of sites and evaluates the rules."""

    def __init__(self, folder: Path, scale: float, sites: Mapping[str, list[int]]) -> None:
        every = f"{SCRAPE_S / scale * 1000:.0f}ms"
        self.step_s = SCRAPE_S / scale
        self._port = free_port()
        self._stack = ExitStack()
        self._folder = folder
        (folder / "rules.yaml").write_text(scaled_rules(scale))
        targets = [
            {"targets": [f"127.0.0.1:{port}" for port in ports], "labels": {"site": name}}
            for name, ports in sites.items()
        ]
        configuration = {
            "global": {
                "scrape_interval": every,
                "scrape_timeout": every,
                "evaluation_interval": every,
            },
            "rule_files": [str(folder / "rules.yaml")],
            "scrape_configs": [{"job_name": "instep", "static_configs": targets}],
        }
        # JSON is YAML.
        (folder / "prometheus.yaml").write_text(json.dumps(configuration))
        self._lookback = f"{300_000 / scale:.0f}ms"
        self._log = folder / "prometheus.log"

    async def __aenter__(self) -> Self:
        log = self._stack.enter_context(self._log.open("wb"))
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={self._folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={self._folder / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
                f"--query.lookback-delta={self._lookback}",
            ],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        self.began_s = time.time()
        await until(self._answers, 60, "Prometheus answers")
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._stack.close()

    def _answers(self) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError(self._log.read_text()[-2_000:])
        with contextlib.suppress(OSError):
            self._ask("/api/v1/rules")
            return True
        return False

    def states(self, site: str) -> dict[str, str]:
        """Alert → pending or firing, now."""
        told = self._ask("/api/v1/alerts")["alerts"]
        of = [one for one in told if _site(one["labels"]) == site]
        of.sort(key=lambda one: one["state"] == "firing")
        return {one["labels"]["alertname"]: one["state"] for one in of}

    def history(self, site: str, since_s: float = 0.0) -> list[Firing]:
        """What has fired there since then."""
        start_s = max(self.began_s, since_s)
        asked = {"query": "ALERTS", "start": start_s, "end": time.time(), "step": self.step_s}
        rows = self._ask(f"/api/v1/query_range?{urllib.parse.urlencode(asked)}")["result"]
        times: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for row in rows:
            if _site(row["metric"]) == site:
                of = times[row["metric"]["alertname"]][row["metric"]["alertstate"]]
                of += [float(at_s) for at_s, _ in row["values"]]
        return [
            Firing(
                alert,
                min([*states["pending"], *states["firing"]]),
                min(states["firing"]),
                max(states["firing"]),
            )
            for alert, states in times.items()
            if states["firing"]
        ]

    def _ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=30) as answer:
            return json.load(answer)["data"]


def _site(labels: Mapping[str, str]) -> str:
    # What is counted over a pair has the name of the consumer, which is that of the site.
    return labels.get("site") or labels.get("consumer", "")


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="instep-night-") as name:
        yield Path(name)
