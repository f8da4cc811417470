"""A receiver of messages takes over changed limits while it listens, for each protocol."""

from __future__ import annotations

import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.instep.cli.test_reload import Running
from tests.instep.cli.test_run_port import DEADLINE_S
from tests.instep.cli.test_status_check import free_port

CONSUMER = """
[[consumers]]
name = "in"
source = {{ {source} kind = "{kind}", listen = "127.0.0.1:{port}" }}
sink = {{ kind = "sql", url = "sqlite:///{folder}/in.db" }}

[consumers.settings.intake]
{intake}
"""


class Listening:
    """`instep run` that receives by one protocol."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.running, self.kind, self.port = Running(folder, ""), kind, free_port()
        self.write()
        self.running.start()

    def write(self, source: str = "", intake: str = "") -> None:
        self.running.write(
            CONSUMER.format(
                kind=self.kind,
                port=self.port,
                folder=self.running.folder,
                source=source,
                intake=intake,
            )
        )

    def await_listening(self) -> None:
        until_s = time.monotonic() + DEADLINE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
            except ConnectionRefusedError:
                assert time.monotonic() < until_s
                time.sleep(0.1)
            else:
                return

    def send(self, size_bytes: int) -> int:
        """The status of a POST of so many bytes that are no message of the protocol."""
        url, body = f"http://127.0.0.1:{self.port}/", b"x" * size_bytes
        request = urllib.request.Request(url, body, {"Content-Type": "application/soap+xml"})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code


@pytest.fixture(params=["didcomm", "wsrm", "wsr"])
def listening(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Listening]:
    one = Listening(tmp_path, request.param)
    try:
        one.await_listening()
        yield one
    finally:
        one.running.stop()


def test_a_shorter_body_is_refused_from_now_on_and_no_connection_is_closed(
    listening: Listening,
) -> None:
    assert listening.send(2_000) != 413
    with socket.create_connection(("127.0.0.1", listening.port)) as held:
        listening.write(source="max_body_bytes = 1000,")
        assert listening.running.reload() == "in: source.max_body_bytes"
        assert listening.send(2_000) == 413
        assert listening.send(999) != 413
        # The connection of before goes on.
        held.sendall(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\n\r\nx")
        assert held.recv(64).startswith(b"HTTP/1.1 4")
    listening.write(source="max_body_bytes = 3000,", intake="handler_timeout_s = 5")
    assert listening.running.reload() == (
        "in: settings.intake.handler_timeout_s; in: source.max_body_bytes"
    )
    assert listening.send(2_000) != 413


def test_what_a_listener_is_made_with_needs_a_restart(listening: Listening) -> None:
    listening.write(source="send_timeout_s = 3,", intake="queue_messages = 7")
    assert listening.running.reload() == (
        "nothing to take over; needs a restart: in: settings.intake.queue_messages,"
        " in: source.send_timeout_s"
    )
