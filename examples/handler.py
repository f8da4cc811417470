"""A handler of your own: orders over DIDComm, each counted once, whatever crashes.

    python examples/handler.py

The handler writes in the transaction that marks the message delivered. A customer runs beside it.
"""

import asyncio
import json
from typing import Any

from simulation import described, temporary
from sqlalchemy import create_engine, text

from instep import HandlerConnection, Message, Receiver
from instep_didcomm import DidcommListener, read_options
from instep_sql import SqlStore

ORDER = "https://example.org/shop/1.0/order"
SHOP, CUSTOMER = "did:example:shop", "did:example:customer"
ORDERS = [("bolts", 4), ("nuts", 5), ("bolts", 3)]
TABLE = "CREATE TABLE IF NOT EXISTS ordered (article TEXT PRIMARY KEY, pieces INTEGER)"
COUNT = """
    INSERT INTO ordered VALUES (:article, :pieces)
    ON CONFLICT (article) DO UPDATE SET pieces = ordered.pieces + excluded.pieces
"""


async def count(message: Message, connection: HandlerConnection) -> None:
    """Add an order to what was ordered before."""
    await connection.execute(TABLE)
    await connection.execute(COUNT, json.loads(message.body)["body"])


def party(did: str, **options: Any) -> DidcommListener:
    table = {"listen": "127.0.0.1:0", "did": did, "protocols": [{"type": ORDER}], **options}
    return DidcommListener(read_options(table, "handler.py"))


async def main(url: str) -> None:
    shop = party(SHOP)
    async with Receiver("shop", shop, SqlStore(url), handler=count) as receiver:
        await receiver.aligned(timeout_s=20)
        customer = party(CUSTOMER, peers=[{"did": SHOP, "endpoint": shop.address}])
        async with Receiver("customer", customer, SqlStore("sqlite://")):
            talk = (await customer.sender()).conversation([SHOP], thid="orders")
            for article, pieces in ORDERS:
                await talk.send(ORDER, {"article": article, "pieces": pieces})
                print(f"ordered: {pieces} {article}", flush=True)
            while not (intake := receiver.health().intake) or intake.delivered < len(ORDERS):
                await asyncio.sleep(0.01)
    with create_engine(url).connect() as connection:
        for article, pieces in connection.execute(text("SELECT * FROM ordered ORDER BY article")):
            print(f"{article}: {pieces}")


if __name__ == "__main__":
    described(__doc__).parse_args()
    asyncio.run(main(f"sqlite:///{temporary('shop.db')}"))
