"""A broker behind a relay: what it has accepted reaches the store once and in order, whatever the
way to it does.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import nats.errors
from nats.aio.client import Client

from instep import Receiver
from instep.testing.relay import Relay
from instep_nats import read_options
from instep_nats.plugin import listener
from instep_sql import SqlStore
from tests.nats_kit import NatsServer
from tests.wire.listeners import SENDERS_OF, WORD, Sender, delivered, listen
from tests.wire.outcome import Outcome, Play

__all__ = ["nats_jetstream"]

STREAM = "WIRE"


class NatsSender(Sender):
    """Publishes to the broker itself: only the way of the receiver to it is at fault."""

    async def begin(self) -> None:
        self._client = Client()
        await self._client.connect(self._url)
        self._js = self._client.jetstream(timeout=5)

    async def send(self, number: int) -> None:
        said = {"sender": self.place, "number": number, "word": WORD}
        body = json.dumps({"number": number, "body": said}).encode()
        try:
            await self._js.publish(f"wire.{self.place}", body)
        except (nats.errors.Error, OSError) as error:
            self.answers[type(error).__name__] += 1
        else:
            self.acknowledged.add(number)

    async def end(self) -> None:
        await self._client.close()


async def nats_jetstream(play: Play, seed: int, folder: Path) -> Outcome:
    """`instep_nats` through a relay to a real server."""
    server, file = NatsServer(folder), folder / "store.db"
    await server.start()
    try:
        async with server.stream(STREAM, ["wire.>"]), Relay("", [play.make()], seed=seed) as relay:
            relay.upstream = f"127.0.0.1:{server.port}"
            options = {
                "servers": f"nats://{relay.address}",
                "stream": STREAM,
                "number": "member:number",
                "ack_wait_s": 2.0,
                "retry_s": 0.2,
                "reconnect_initial_s": 0.05,
                "reconnect_max_s": 0.3,
                "sequence": {"gap_deadline_s": 3600.0},
            }
            one = listener(read_options(options, "wire"), "wire")
            async with Receiver("wire", one, SqlStore(f"sqlite:///{file}")) as receiver:
                rule = relay.rules[0]
                return await listen(
                    "nats",
                    play,
                    rule,
                    relay,
                    receiver,
                    server.url,
                    lambda: delivered(file),
                    settled_s=30.0,
                )
    finally:
        await asyncio.to_thread(server.stop)


SENDERS_OF["nats"] = NatsSender
