"""The processes of a lake that may be killed: `instep run`, `instep lake run`, their JVMs, and
Spark's own servers, where the mode has some.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from tests.crash.lake_checks_kit import FOLLOWED
from tests.crash.site_kit import INSTEP, Site
from tests.instep_spark.spark_server_kit import QUICK, Server, cluster, connect_server

__all__ = ["LAKE", "MODES", "RETURN_S", "Mode", "Processes", "processes"]

Mode = Literal["landing", "rust", "spark", "connect", "cluster"]
MODES: Final[tuple[Mode, ...]] = ("landing", "rust", "spark", "connect", "cluster")
"""`landing` and `rust` land with delta-rs, the others with Spark; `landing` has no pipeline."""
MARKING: Final = ("rust", "connect")
"""The modes whose tables mark rows in deletion vectors."""
CONFIG: Final = """
[[consumers]]
name = "crash"
[consumers.source]
kind = "tapi"
endpoints = ["{url}"]
[consumers.sink]
kind = "delta"
url = "{lake}"
writer = "{writer}"
commit_interval_s = {interval_s}
compact_every_commits = {compact}
layout = "{layout}"
spark = {spark}
[consumers.settings]
reconnect_initial_s = 0.05
reconnect_max_s = 1.0
[consumers.settings.alignment]
# A process is killed more often here than a second doubt is probed.
probe_min_s = 0.001
quiet_s = 0.5
unreached_quiet_s = 10.0
sweep_guard_share = 1.0
"""
SMALL: Final = {
    **QUICK,
    "spark.executor.memory": "600m",
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
}
LAKE: Final = ("lake", "run", "--tables", ",".join(FOLLOWED[1:]))
RETURN_S: Final = 3600.0
"""How long a table may stand still: a machine may be busy with other things for a while."""
SHOWN_S: Final = 20.0


class Processes:
    """`instep run` and `instep lake run` beside each other, started again when one is dead."""

    def __init__(self, here: Site, mode: Mode, spark: Mapping[str, Any]) -> None:
        self._here = here
        self._writer = "rust" if mode in ("landing", "rust") else "spark"
        self._verbs = {"changes": ("run",), "entities": LAKE}
        if mode == "landing":
            del self._verbs["entities"]
        self._config = here.folder / "instep.toml"
        rust = self._writer == "rust"
        self._config.write_text(
            CONFIG.format(
                url=here.url,
                lake=here.store,
                writer=self._writer,
                interval_s=0.5 if rust else 2.0,
                compact=10 if rust else 30,
                layout="merge-on-read" if mode in MARKING else "copy-on-write",
                spark=_inline(spark),
            )
        )
        self._remote = "remote" in spark
        self.servers: list[Server] = []
        self.commands: dict[str, subprocess.Popen[bytes]] = {}
        self.fallen: list[str] = []
        """Commands that ended, and neither they nor their Spark had been killed."""
        self._since: dict[str, int] = {}
        self._excused: set[str] = set()

    @property
    def victims(self) -> dict[str, Callable[[], bool]]:
        """The processes that can be killed, by name; the name gives the table that then has to move
        again.
        """
        found: dict[str, Callable[[], bool]] = {}
        for table in self._verbs:
            found[f"{table}: its process"] = partial(self._kill, table)
            if not self._remote and (table == "entities" or self._writer == "spark"):
                found[f"{table}: its JVM"] = partial(self._kill_jvm, table)
        for number, server in enumerate(self.servers):
            found[f"entities: server {number}"] = partial(self._kill_server, server)
        return found

    def choose(self, rng: random.Random, number: int) -> str:
        """A victim, by the number of the round, from 0; what lands twice as often as what follows,
        which takes longer to return.
        """
        table = "changes" if number % 3 else list(self._verbs)[-1]
        return rng.choice(sorted(name for name in self.victims if name.startswith(table)))

    def ensure(self) -> None:
        """Start what does not run."""
        for server in self.servers:
            if server.process.poll() is not None:
                server.start_again()
        for table, verb in self._verbs.items():
            running = self.commands.get(table)
            if running is None or running.poll() is not None:
                if running is not None and table not in self._excused:
                    self.fallen.append(
                        f"{table} ended with {running.returncode}: {self.stderr_tail()}"
                    )
                self._excused.discard(table)
                self.commands[table] = self._start(*verb, str(self._config))
                self._count_from_here(table)

    def _count_from_here(self, table: str) -> None:
        for name in FOLLOWED if table == "entities" else (table,):
            self._since[name] = self.version(name)

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._here.folder / "stderr").open("ab") as stderr:
            return subprocess.Popen(
                [*INSTEP, *arguments, "--format", "jsonl"],
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=os.environ | {"PYTHONASYNCIODEBUG": ""},
            )

    def version(self, table: str) -> int:
        """Of a table, -1 where there is none: as its log is named, without reading it."""
        log = Path(self._here.store.removeprefix("file://")) / table / "_delta_log"
        return max((int(file.stem) for file in log.glob("[0-9]*.json")), default=-1)

    def moves(self, victim: str, rng: random.Random) -> bool:
        """Wait until one of its tables has moved since its process began, or its JVM was killed."""
        table = victim.partition(":")[0]
        name = rng.choice(FOLLOWED) if table == "entities" else table
        deadline_s = time.monotonic() + RETURN_S
        while self.version(name) <= self._since[name]:
            if time.monotonic() > deadline_s:
                return False
            time.sleep(0.2)
            self.ensure()
        return True

    def kill(self, victim: str) -> bool:
        """SIGKILL; `moves` counts from here. False where the victim had ended by itself."""
        self._count_from_here(victim.partition(":")[0])
        return self.victims[victim]()

    def finish(self, *arguments: str, log: Callable[[str], None]) -> list[str]:
        """Run a command to its end, as long as the tables move. Returns its error output if it
        fails.
        """
        done = self._start(*arguments[:-1], str(self._config), arguments[-1])
        moved_s, before = time.monotonic(), dict[str, int]()
        while done.poll() is None:
            versions = {name: self.version(name) for name in ("changes", *FOLLOWED)}
            if versions != before:
                moved_s, before = time.monotonic(), versions
                log(f"{' '.join(arguments)}: versions {versions}")
            elif time.monotonic() - moved_s > RETURN_S:
                done.kill()
                log("it does not move any more")
            with suppress(subprocess.TimeoutExpired):
                done.wait(timeout=SHOWN_S)
        code = done.returncode
        return [f"{arguments} ended with {code}: {self.stderr_tail()}"] if code else []

    def stop(self) -> list[str]:
        """End the commands as a service manager does; those that do not end well."""
        found = []
        for table, command in self.commands.items():
            if command.poll() is not None:
                continue
            command.terminate()
            try:
                code = command.wait(timeout=RETURN_S)
            except subprocess.TimeoutExpired:
                command.kill()
                code = command.wait()
            if code not in (0, -signal.SIGTERM) and table not in self._excused:
                found.append(f"{table} ended with {code}: {self.stderr_tail()}")
        self.commands.clear()
        return found

    def stderr_tail(self) -> str:
        """The end of the output on stderr."""
        return (self._here.folder / "stderr").read_text(errors="replace")[-2_000:]

    def close(self) -> None:
        """Kill what is left."""
        for table in list(self.commands):
            self._kill(table)

    def _kill(self, table: str) -> bool:
        self._excused.add(table)
        self.commands[table].kill()
        return self.commands[table].wait() == -signal.SIGKILL

    def _kill_jvm(self, table: str) -> bool:
        """As soon as there is one."""
        self._excused.add(table)
        command = self.commands[table]
        while command.poll() is None:
            for child in _children(command.pid):
                with suppress(OSError):
                    if b"SparkSubmit" in Path(f"/proc/{child}/cmdline").read_bytes():
                        os.kill(child, signal.SIGKILL)
                        return True
            time.sleep(0.05)
        return False

    def _kill_server(self, server: Server) -> bool:
        self._excused.update(self._verbs)
        server.kill()
        return True


def _inline(value: Any) -> str:
    """As an inline table of TOML."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f'"{k}" = {_inline(v)}' for k, v in value.items()) + " }"
    return json.dumps(value)


def _children(pid: int) -> list[int]:
    """The processes that a process started, on Linux."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


@contextmanager
def processes(here: Site, mode: Mode) -> Iterator[Processes]:
    """The processes of a mode, none of `instep` started yet."""
    with ExitStack() as stack:
        servers: list[Server] = []
        match mode:
            case "connect":
                url, server = stack.enter_context(connect_server())
                spark: dict[str, Any] = {"remote": url}
                servers = [server]
            case "cluster":
                url, servers = stack.enter_context(cluster(here.folder, cores=2))
                spark = {"master": url, "config": SMALL}
            case _:
                spark = {"master": "local[1]", "config": SMALL}
        made = Processes(here, mode, spark)
        made.servers = servers
        try:
            yield made
        finally:
            made.close()
