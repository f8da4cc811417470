"""A real pgbouncer before a real PostgreSQL, for tests: `pool_mode` as wanted.

The program is looked for in the PATH; else Debian's package is unpacked into `build/pgbouncer`,
which takes no root. It refuses to run as root: then another user runs it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import psycopg

from tests.postgres_kit import Missing, Server

__all__ = ["Mode", "Pooler", "pooling"]

Mode = Literal["session", "transaction", "statement"]

_CACHE = Path(__file__).resolve().parents[1] / "build" / "pgbouncer"
_USER = "nobody"
_START_S = 30.0
_SETTINGS = {
    "listen_addr": "127.0.0.1",
    "unix_socket_dir": "",
    "auth_type": "trust",
    "admin_users": "postgres",
    "default_pool_size": "10",
    "max_client_conn": "200",
    # As short as they can be, so that a round need not wait for the pooler to try again.
    "server_login_retry": "1",
}


def _program() -> tuple[Path, Path | None]:
    """The program, and the folder of libraries that this machine lacks. Raises `Missing`."""
    places = f"{os.environ.get('PATH', '')}:/usr/sbin"
    if found := shutil.which("pgbouncer", path=places):
        return Path(found), None
    unpacked = _unpacked()
    program = unpacked / "usr" / "sbin" / "pgbouncer"
    libraries = next(unpacked.glob("usr/lib/*-linux-*"), None)
    return program, libraries


def _unpacked() -> Path:
    """Debian's package with the libraries that it names, unpacked once. Raises `Missing`."""
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise Missing(f"no pgbouncer found, and no {tool} to get it: install pgbouncer")
    _CACHE.mkdir(parents=True, exist_ok=True)
    root = _CACHE / "root"
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            packages = _CACHE / "packages"
            packages.mkdir(exist_ok=True)
            _download(packages, "pgbouncer")
            [package] = packages.glob("pgbouncer_*.deb")
            asked = ["dpkg-deb", "--field", str(package), "Depends"]
            depends = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
            names = [one.split()[0] for one in depends.split(",")]
            # Not the C library: it goes with the loader of this machine.
            _download(packages, *[name for name in names if name[:3] == "lib" and name != "libc6"])
            half = _CACHE / "half"
            for package in packages.glob("*.deb"):
                subprocess.run(["dpkg-deb", "--extract", str(package), str(half)], check=True)
            half.rename(root)
    return root


def _download(folder: Path, *names: str) -> None:
    command = ["apt-get", "--quiet", "download", *names]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Missing(f"no pgbouncer found, and it cannot be downloaded: {done.stderr.strip()}")


class Pooler:
    """One pgbouncer on a loopback port, before one server."""

    def __init__(self, folder: Path, server: Server, mode: Mode, **settings: str) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        program, libraries = _program()
        # Copied, because another user may not get to where the checkout is.
        self._program = Path(shutil.copy(program, folder / "pgbouncer"))
        self._environment = dict(os.environ)
        if libraries is not None:
            copied = shutil.copytree(libraries, folder / "lib", symlinks=True, dirs_exist_ok=True)
            self._environment["LD_LIBRARY_PATH"] = str(copied)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        (folder / "users").write_text('"postgres" ""\n')
        given = {
            **_SETTINGS,
            "listen_port": str(self.port),
            "auth_file": str(folder / "users"),
            "logfile": str(folder / "log"),
            "pool_mode": mode,
            **settings,
        }
        lines = [
            "[databases]",
            f"* = host=127.0.0.1 port={server.port}",
            "[pgbouncer]",
            *(f"{name} = {of}" for name, of in given.items()),
        ]
        (folder / "pgbouncer.ini").write_text("\n".join(lines) + "\n")
        if os.geteuid() == 0:
            folder.chmod(0o755)
            (folder / "log").touch()
            shutil.chown(folder / "log", _USER)

    def url(self, database_url: str) -> str:
        """The URL of this database of the server, by way of the pooler."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database_url.rpartition('/')[2]}"

    def start(self) -> None:
        """Start, and wait until it answers."""
        self._process = subprocess.Popen(
            [self._program, "--quiet", self._folder / "pgbouncer.ini"],
            cwd="/",
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=_USER if os.geteuid() == 0 else None,
            extra_groups=[] if os.geteuid() == 0 else None,
        )
        deadline_s = time.monotonic() + _START_S
        while True:
            with contextlib.suppress(psycopg.OperationalError):
                self.tell("SHOW VERSION")
                return
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                log = (self._folder / "log").read_text()[-2000:]
                raise RuntimeError(f"pgbouncer does not start: {log}")
            time.sleep(0.02)

    def tell(self, command: str) -> None:
        """A command for its console, as an administrator would give it."""
        with psycopg.connect(self.url("pgbouncer"), autocommit=True, connect_timeout=5) as console:
            console.pgconn.exec_(command.encode())

    def stop(self) -> None:
        """End it at once, with all its connections."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(_START_S)


@contextlib.contextmanager
def pooling(server: Server, mode: Mode, **settings: str) -> Iterator[Pooler]:
    """A running pgbouncer before this server, with these settings; gone afterwards. Raises
    `tests.postgres_kit.Missing`.
    """
    with tempfile.TemporaryDirectory(prefix="instep-pgbouncer-") as name:
        pooler = Pooler(Path(name), server, mode, **settings)
        try:
            pooler.start()
            yield pooler
        finally:
            pooler.stop()
