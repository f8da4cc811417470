"""A subscriber of the journal: what changes on the links, as JSON Patches (RFC 6902).

    python examples/subscriber.py

The cursor is kept in a file. Against a provider that runs on, it goes on where it was:

    instep provider --port 8548 --storm 20 &
    python examples/subscriber.py http://127.0.0.1:8548 --cursor at --store sqlite:///links.db
"""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from simulation import run, store_options, temporary

from instep import Change, Consumer, Subscription
from instep_sql import SqlStore
from instep_tapi import TapiSource, read_options


async def show(batch: Sequence[Change]) -> None:
    """Print each change of a batch."""
    for change in batch:
        print(change.change, change.key, json.dumps(change.patch()), flush=True)


async def main(endpoint: str, url: str, cursor: str, seconds: float) -> None:
    file = Path(cursor)

    source = TapiSource(read_options({"endpoints": [endpoint]}, "subscriber.py"))
    store = SqlStore(url, journal="previous")
    async with Consumer("subscriber", source, store) as consumer:
        await consumer.aligned()
        place, _, epoch = (file.read_text() if file.exists() else "0").partition(" ")
        links = Subscription(store.reader, int(place), epoch=epoch, classes=["LINK"], follow=True)

        async def save(reached: int) -> None:
            file.write_text(f"{reached} {links.epoch}")

        print(f"{await links.lag()} changes behind")
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await links.run(show, saved=save)


if __name__ == "__main__":
    parser = store_options(__doc__)
    parser.add_argument("--cursor", default=temporary("cursor"), metavar="FILE", help="its file")
    parser.add_argument(
        "--seconds", type=float, default=10, help="how long to follow (10); inf: until Ctrl-C"
    )
    run(main, parser)
