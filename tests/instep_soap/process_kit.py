"""`instep run` with a SOAP source as a process of its own, over real HTTP and a real store."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["Site"]

_INSTEP = [sys.executable, "-m", "instep.cli"]
_CONFIG = """
[[consumers]]
name = "orders"
[consumers.source]
kind = "{kind}"
listen = "{url}"
[consumers.sink]
kind = "sql"
url = "{store}"
"""


class Site:
    """A receiver of one protocol, which may be started again and again."""

    def __init__(self, kind: str, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}/rm"
        self.store = f"sqlite:///{folder}/store.db"
        self.config = folder / "instep.toml"
        self.config.write_text(_CONFIG.format(kind=kind, url=self.url, store=self.store))

    @contextmanager
    def run(self) -> Iterator[subprocess.Popen[bytes]]:
        process = subprocess.Popen([*_INSTEP, "run", str(self.config), "--format", "jsonl"])
        try:
            yield process
        finally:
            process.kill()
            process.wait(30)

    def listed(self, command: str) -> list[dict[str, Any]]:
        done = subprocess.run(
            [*_INSTEP, command, "--store", self.store, "--format", "jsonl"],
            check=True,
            capture_output=True,
            text=True,
        )
        return [json.loads(line) for line in done.stdout.splitlines()]
