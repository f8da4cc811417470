"""A consumer inside a program of yours: it keeps the store in step and prints each change.

    python examples/embed.py

Against a provider that runs on, with a store that stays, it goes on where it was: give it the last
cursor it printed. Nothing is printed twice, nothing is left out.

    instep provider --port 8548 --storm 5 &
    python examples/embed.py http://127.0.0.1:8548 --store sqlite:///embed.db
    python examples/embed.py http://127.0.0.1:8548 --store sqlite:///embed.db --after 3271
"""

import asyncio
from contextlib import suppress

from simulation import run, store_options

from instep import Consumer
from instep_sql import SqlStore
from instep_tapi import TapiSource, read_options


async def print_changes(store: SqlStore, cursor: int) -> None:
    """Print each change committed after the cursor, for ever: a slow reader never holds up the
    consumer.
    """
    async for change in store.changes(cursor, follow=True):
        print(change.cursor, change.change, change.entity_class, change.key, flush=True)


async def main(endpoint: str, url: str, after: int, seconds: float) -> None:
    source = TapiSource(read_options({"endpoints": [endpoint]}, "embed.py"))
    store = SqlStore(url, journal="changes")
    async with Consumer("embed", source, store) as consumer:
        await consumer.aligned()
        print("aligned", flush=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as tasks:
                tasks.create_task(consumer.wait())  # raises when the consumer fails for good
                tasks.create_task(print_changes(store, after))


if __name__ == "__main__":
    parser = store_options(__doc__)
    parser.add_argument("--after", type=int, default=0, metavar="CURSOR", help="go on from here")
    parser.add_argument(
        "--seconds", type=float, default=10, help="how long to follow (10); inf: until Ctrl-C"
    )
    run(main, parser)
