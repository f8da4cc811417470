"""A subscriber of the journal: what changes on the links, as JSON Patches (RFC 6902).

instep provider --port 8548 --storm 20 &
python examples/subscriber.py http://127.0.0.1:8548 cursor.txt

The cursor is kept in a file: after a stop it goes on where it was.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from instep import Change, Consumer, Subscription
from instep_sql import SqlStore
from instep_tapi import TapiSource, read_options


async def show(batch: Sequence[Change]) -> None:
    """Print each change of a batch."""
    for change in batch:
        print(change.change, change.key, json.dumps(change.patch()), flush=True)


async def main(
    endpoint: str, place: str, url: str = "sqlite:///subscriber.db", *, follow: bool = True
) -> None:
    file = Path(place)

    async def save(cursor: int) -> None:
        file.write_text(str(cursor))

    source = TapiSource(read_options({"endpoints": [endpoint]}, "subscriber.py"))
    store = SqlStore(url, journal="previous")
    async with Consumer("subscriber", source, store) as consumer:
        await consumer.aligned()
        cursor = int(file.read_text()) if file.exists() else 0
        links = Subscription(store.reader, cursor, classes=["LINK"], follow=follow)
        print(f"{await links.lag()} changes behind")
        await links.run(show, saved=save)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
