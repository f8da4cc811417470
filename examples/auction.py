"""An auction over DIDComm messages that are lost, doubled and overtaken; the right bid wins.

    python examples/auction.py [SEED]

A bidder's later bid replaces the earlier one, higher or lower: taken in the order of their arrival,
a bid that was withdrawn could win. Bids are numbered by `sender_order`, so the auctioneer takes
them in the order in which they were made. They cross a faulty link, over real HTTP: the auctioneer
detects a lost bid by a gap in the numbers, or the bidder by a missing acknowledgement, and the bid
is sent again.

Each party has its own store. The auctioneer's handler writes a bid in the transaction that marks it
delivered, so each bid is written once, whatever crashes.
"""

import asyncio
import contextlib
import json
import random
import sqlite3
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from simulation import described

from instep import Handler, HandlerConnection, Message, Receiver
from instep_didcomm import DidcommListener, read_options
from instep_sql import SqlStore

AUCTION = "https://didcomm.org/auction/1.0"
AUCTIONEER = "did:example:auctioneer"
BIDS = {
    "did:example:alice": [100, 220, 310, 250],
    "did:example:bob": [150, 210, 260, 280],
    "did:example:carol": [400, 390, 120, 90],
}
"""What each bids, in order; the last bid stands. Bob wins with 280."""
HIGHEST = """
    SELECT bidder, amount FROM bid
    WHERE rowid IN (SELECT max(rowid) FROM bid GROUP BY bidder) ORDER BY amount DESC LIMIT 1
"""
"""Of the last bids of all, the highest."""
LOSS, DOUBLE = 0.3, 0.2


class FaultyLink:
    """Passes what is posted to it on: late, twice, out of order, or not at all."""

    def __init__(self, seed: int) -> None:
        self.onward = ""
        self.lost = 0
        self._rng = random.Random(seed)
        self._late: set[asyncio.Task[None]] = set()

    async def take(self, request: web.BaseRequest) -> web.Response:
        body, kind = await request.read(), request.headers["Content-Type"]
        copies = 1 + (self._rng.random() < DOUBLE)
        if self._rng.random() < LOSS:
            self.lost += 1
            copies = 0
        for _ in range(copies):
            task = asyncio.create_task(self._pass_on(body, kind, self._rng.uniform(0, 0.2)))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
        return web.Response(status=202)  # as a relay does that has not lost it yet

    async def _pass_on(self, body: bytes, kind: str, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        with contextlib.suppress(aiohttp.ClientError):
            async with aiohttp.ClientSession() as session:
                await session.post(self.onward, data=body, headers={"Content-Type": kind})

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        runner = web.ServerRunner(web.Server(self.take))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
        finally:
            for task in self._late:
                task.cancel()
            await runner.cleanup()


async def write_bid(message: Message, connection: HandlerConnection) -> None:
    """The auctioneer's handler: bids come in the order in which their bidder made them."""
    amount = json.loads(message.body)["body"]["amount"]
    await connection.execute(
        "INSERT INTO bid (bidder, amount) VALUES (:bidder, :amount)",
        {"bidder": message.sender, "amount": amount},
    )


@contextlib.asynccontextmanager
async def party(
    did: str, store: str, peers: dict[str, str], handler: Handler
) -> AsyncIterator[DidcommListener]:
    """One party of the auction: listens, receives into its store, and can send."""
    options = {
        "listen": "http://127.0.0.1:0/didcomm",
        "did": did,
        "peers": [{"did": peer, "endpoint": endpoint} for peer, endpoint in peers.items()],
        "protocols": [{"type": f"{AUCTION}/*", "sequenced": True}],
        "sequence": {"gap_deadline_s": 0.3, "gap_repeat_s": 0.3, "gap_attempts": 50},
        "outbox": {"resend_after_s": 0.3, "limit_sent_count": 50},
        "ack_delay_s": 0.05,
    }
    listener = DidcommListener(read_options(options, "auction.py"))
    async with Receiver(did, listener, SqlStore(store), handler=handler) as receiver:
        await receiver.aligned(timeout_s=20)
        yield listener


async def auction(path: str, seed: int) -> tuple[dict[str, dict[str, Any]], int]:
    """Run the auction. Returns the result that each bidder received, and the number of lost
    messages.
    """
    link = FaultyLink(seed)
    results: dict[str, dict[str, Any]] = {}

    def result_handler(did: str) -> Handler:
        async def receive(message: Message, _: HandlerConnection) -> None:
            results[did] = json.loads(message.body)["body"]

        return receive

    async with contextlib.AsyncExitStack() as stack:
        way = await stack.enter_async_context(link.listening())
        bidders = {
            did: await stack.enter_async_context(
                party(did, "sqlite://", {AUCTIONEER: way}, result_handler(did))
            )
            for did in BIDS
        }
        back = {did: bidder.address for did, bidder in bidders.items()}
        store = f"sqlite:///{path}"
        auctioneer = await stack.enter_async_context(party(AUCTIONEER, store, back, write_bid))
        link.onward = auctioneer.address

        async def bid(did: str) -> None:
            talk = (await bidders[did].sender()).conversation([AUCTIONEER], thid="lot-7")
            for amount in BIDS[did]:
                await talk.send(f"{AUCTION}/bid", {"amount": amount})

        await asyncio.gather(*map(bid, BIDS))
        async with asyncio.timeout(60):
            while rows(path, "SELECT count(*) FROM bid") != [(sum(map(len, BIDS.values())),)]:
                await asyncio.sleep(0.05)
            ((winner, amount),) = rows(path, HIGHEST)
            talk = (await auctioneer.sender()).conversation(BIDS, thid="lot-7")
            await talk.send(f"{AUCTION}/sold", {"to": winner, "for": amount})
            while results.keys() != BIDS.keys():
                await asyncio.sleep(0.05)
    return results, link.lost


def rows(path: str, query: str, *values: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(path, timeout=30)) as table:
        return table.execute(query, values).fetchall()


async def main(seed: int) -> None:
    print(f"seed {seed}")
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "auction.db")
        with contextlib.closing(sqlite3.connect(path)) as table, table:
            table.execute("CREATE TABLE bid (bidder TEXT, amount INTEGER)")
        results, lost = await auction(path, seed)
        for bidder in BIDS:
            bids = rows(path, "SELECT amount FROM bid WHERE bidder = ? ORDER BY rowid", bidder)
            print(f"{bidder} bid {', '.join(str(bid) for (bid,) in bids)}")
    print(f"transmissions lost on the way: {lost}")
    for bidder in BIDS:
        print(f"{bidder} heard: sold to {results[bidder]['to']} for {results[bidder]['for']}")


if __name__ == "__main__":
    parser = described(__doc__)
    parser.add_argument("seed", nargs="?", type=int, metavar="SEED", help="of the link's faults")
    given = parser.parse_args().seed
    asyncio.run(main(random.randrange(1000) if given is None else given))
