"""What a service tells systemd, over a real datagram socket."""

import asyncio
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from instep.cli.systemd import notify, notify_alive
from tests.instep.cli.cli_kit import QUICK_CONFIG, small_provider, started

DEADLINE_S = 60


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.bind(str(tmp_path / "notify"))
        one.settimeout(DEADLINE_S)
        yield one


def test_a_service_says_that_it_is_ready_lives_and_stops(
    supervisor: socket.socket, tmp_path: Path
) -> None:
    file = tmp_path / "instep.toml"
    environ = {"NOTIFY_SOCKET": supervisor.getsockname(), "WATCHDOG_USEC": "400000"}
    with small_provider() as url:
        file.write_text(QUICK_CONFIG.format(url=url, store=tmp_path / "east"))
        with started("run", str(file), "--format", "jsonl", **environ) as process:
            try:
                assert supervisor.recv(99) == b"READY=1"
                assert {supervisor.recv(99) for _ in range(3)} == {b"WATCHDOG=1"}
                process.send_signal(signal.SIGTERM)
                while (told := supervisor.recv(99)) == b"WATCHDOG=1":
                    pass
                assert told == b"STOPPING=1"
            finally:
                process.terminate()
                process.communicate(timeout=DEADLINE_S)


def test_without_a_supervisor_nothing_is_said() -> None:
    notify("READY=1", {})
    notify("READY=1", {"NOTIFY_SOCKET": "/nowhere/at/all"})
    notify("READY=1", {"NOTIFY_SOCKET": "relative"})


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "environ", [{}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}]
)
async def test_a_watchdog_that_is_not_ours_gets_nothing(
    environ: dict[str, str], supervisor: socket.socket
) -> None:
    supervisor.setblocking(False)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await notify_alive({"NOTIFY_SOCKET": supervisor.getsockname(), **environ})
    with pytest.raises(BlockingIOError):
        supervisor.recv(99)
