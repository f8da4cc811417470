"""A broker of another make is one class: everything else is there already."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from instep import HandlerConnection, Message, Receiver
from instep.errors import AuthenticationError, UnreachableError
from instep_broker import BrokerListener, BrokerOptions, Delivery, read_broker_options
from instep_sql import SqlStore

pytestmark = pytest.mark.asyncio


class Options(BrokerOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the broker below."""

    visible_after_s: float = 1.0
    """When it delivers again what was not answered."""


class QueueBroker:
    """Keeps what is not acknowledged; loses answers and connections."""

    name = "queue://here"

    def __init__(self, bodies: Sequence[bytes], seed: int, faults: float) -> None:
        self.kept = {f"Q/{place}": body for place, body in enumerate(bodies)}
        self.refused: dict[str, str] = {}
        self.delayed: list[str] = []
        self.most = 0
        """Most deliveries without an answer at once."""
        self.connections = 0
        self.connect_error: Exception | None = None
        self._rng = random.Random(seed)
        self._faults = faults
        self._out: set[str] = set()
        self._calls = 0

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        if self.connect_error is not None:
            raise self.connect_error
        self.connections += 1
        self._out.clear()
        yield

    async def take(self, most: int, most_bytes: int) -> list[Delivery]:
        assert most > 0
        assert most_bytes > 0
        while True:
            self._fail()
            found = [place for place in self.kept if place not in self._out]
            if found:
                break
            await asyncio.sleep(0.005)
        taken = self._rng.sample(found, min(most, len(found), 5))
        self._out |= set(taken)
        self.most = max(self.most, len(self._out))
        return [
            Delivery(subject="lots.a", headers={}, body=self.kept[place], position=place)
            for place in taken
        ]

    async def acknowledge(self, delivery: Delivery) -> None:
        if self._rng.random() < self._faults:
            # It is lost on its way.
            self._out.discard(delivery.position)
            return
        self._fail()
        self.kept.pop(delivery.position, None)
        self._out.discard(delivery.position)

    async def ask_again(self, delivery: Delivery, delay_s: float) -> None:
        assert delay_s > 0
        self.delayed.append(delivery.position)
        self._out.discard(delivery.position)

    async def refuse(self, delivery: Delivery, reason: str) -> None:
        self.refused[delivery.position] = reason
        self.kept.pop(delivery.position, None)
        self._out.discard(delivery.position)

    def _fail(self) -> None:
        self._calls += 1
        if self._faults and (self._calls == 20 or self._rng.random() < self._faults / 4):
            raise UnreachableError("the cable is out")


def numbered(last: int) -> list[bytes]:
    return [json.dumps({"number": number}).encode() for number in range(1, last + 1)]


def listener(broker: QueueBroker, **options: object) -> BrokerListener:
    table = {
        "number": "member:number",
        "retry_s": 0.01,
        "reconnect_initial_s": 0.001,
        "reconnect_max_s": 0.01,
        **options,
    }
    read = read_broker_options(
        Options, table, "source", required={}, redelivers_after_s="visible_after_s"
    )
    return BrokerListener("queue", broker, read, "source")


@pytest.mark.parametrize("seed", range(5))
async def test_lost_answers_and_connections_cost_nothing(
    tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[int] = []

    async def handle(message: Message, _: HandlerConnection) -> None:
        heard.append(message.number)

    broker = QueueBroker([*numbered(100), b"{}", b"{}"], seed, faults=0.1)
    one = listener(broker, limit_messages=10)
    store = SqlStore(f"sqlite:///{tmp_path}/x.db")
    async with Receiver("x", one, store, handler=handle), asyncio.timeout(30):
        while broker.kept or len(heard) < 100:
            await asyncio.sleep(0.01)
    assert heard == list(range(1, 101))
    assert broker.refused == dict.fromkeys(("Q/100", "Q/101"), "it has no number")
    assert caplog.text.count("it has no number") == 1  # a publisher must not fill the log
    assert broker.connections > 1
    assert broker.most <= 10


async def test_a_login_that_is_refused_ends_it() -> None:
    """Trying it again locks accounts."""
    broker = QueueBroker([], 1, faults=0.0)
    broker.connect_error = AuthenticationError("no", where="queue")
    with pytest.raises(AuthenticationError):
        async with Receiver("x", listener(broker), SqlStore("sqlite://")) as receiver:
            await receiver.wait()
