"""What the provider stated and when: its logs, read by a plain WebSocket client from their oldest
records, without instep.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from tests.crash.site_kit import Truth

CONTEXT = "/restconf/data/tapi-common:context/tapi-streaming:stream-context"
SETTLE_S = 900.0
Place = tuple[str, str]
"""Stream and key."""


@dataclass(frozen=True)
class LoggedRecord:
    """A record of a log."""

    stream: str
    key: str
    kind: str
    token: str
    appended_at_us: int
    body: Any

    @property
    def ends(self) -> bool:
        """Whether the entity is gone after it: DELETE, TOMBSTONE, or an alarm that is CLEAR."""
        detail = (self.body or {}).get("alarm-condition-detector-detail", {})
        return self.kind != "CREATE_UPDATE" or detail.get("alarm-detector-state", "").endswith(
            "CLEAR"
        )


@dataclass
class Witness:
    """All that was stated, by stream in the order of the log."""

    logged: dict[str, list[LoggedRecord]] = field(default_factory=dict)
    lost: list[tuple[int, Place]] = field(default_factory=list)
    """Entities that vanished with a log, unsaid, and when."""
    _stop: threading.Event = field(default_factory=threading.Event)

    def listen(self, stream: str, address: str) -> None:
        """Read a stream until the end, again from its oldest record where it is cut."""
        known: set[tuple[str, str]] = set()
        while not self._stop.is_set():
            with (
                suppress(WebSocketException, OSError),
                connect(address, max_size=None, ping_interval=None) as socket,
            ):
                while not self._stop.is_set():
                    with suppress(TimeoutError):
                        logged = _logged_record(stream, json.loads(socket.recv(timeout=0.2)))
                        if (logged.token, logged.kind) not in known:
                            known.add((logged.token, logged.kind))
                            self.logged[stream].append(logged)

    def settle(self, truth: Callable[[], Mapping[Place, Truth]]) -> list[str]:
        """Wait until the witness has received all that the provider, which is quiet, states now.
        Returns what it has not.
        """
        deadline_s = time.monotonic() + SETTLE_S
        missing: list[Place] = []
        before = -1
        while time.monotonic() < deadline_s:
            # Short waits, not one: all processes may stand still meanwhile.
            for _ in range(3):
                time.sleep(0.25)
            count = sum(map(len, self.logged.values()))
            seen = {place: one.token for place, one in self.state().items()}
            missing = [place for place, one in truth().items() if seen.get(place) != one.token]
            # A second end of what is gone may come after all that exists.
            if not missing and count == before:
                return []
            before = count
        return [f"the witness does not hear of {place}" for place in missing[:3]] or ["no quiet"]

    def state(self) -> dict[Place, LoggedRecord]:
        """The last statements received about the entities that exist."""
        (last,) = self.states([1 << 62])
        return last

    def states(self, moments_us: list[int]) -> Iterator[dict[Place, LoggedRecord]]:
        """The last statements about what existed at each of these moments, in their order."""
        everything = [one for logged in self.logged.values() for one in logged]
        everything.sort(key=lambda one: one.appended_at_us)
        gone = sorted(self.lost)
        times = [one.appended_at_us for one in everything]
        state: dict[Place, LoggedRecord] = {}
        done = 0
        for moment_us in sorted(moments_us):
            upto = bisect_right(times, moment_us)
            for one in everything[done:upto]:
                while gone and gone[0][0] <= one.appended_at_us:
                    state.pop(gone.pop(0)[1], None)
                if one.ends:
                    state.pop((one.stream, one.key), None)
                else:
                    state[one.stream, one.key] = one
            while gone and gone[0][0] <= moment_us:
                state.pop(gone.pop(0)[1], None)
            done = upto
            yield dict(state)


def _logged_record(stream: str, frame: dict[str, Any]) -> LoggedRecord:
    header, body = frame["log-record-header"], frame.get("log-record-body", {})
    content = body.get("record-content", "").lower().replace("_", "-")
    return LoggedRecord(
        stream,
        header["entity-key"],
        header["record-type"].removeprefix("RECORD_TYPE_"),
        header["token"],
        microseconds(header["log-append-time-stamp"]),
        body.get(content),
    )


def microseconds(text: str) -> int:
    """A moment as RFC 3339 spells it, since 1970."""
    return round(datetime.fromisoformat(text).timestamp() * 1_000_000)


@contextmanager
def witness(url: str) -> Iterator[Witness]:
    """Listens to all streams of a provider."""
    with urllib.request.urlopen(url + CONTEXT, timeout=30) as response:
        (context,) = json.load(response).values()
    seen = Witness()
    threads = []
    for stream in context["available-stream"]:
        seen.logged[stream["stream-id"]] = []
        place = (stream["stream-id"], stream["connection-address"])
        threads.append(threading.Thread(target=seen.listen, args=place, daemon=True))
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        seen._stop.set()
        for thread in threads:
            thread.join(timeout=30)
