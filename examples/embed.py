"""A consumer inside a program of yours: it keeps the store in step and prints each change.

    instep provider --port 8548 &
    python examples/embed.py http://127.0.0.1:8548

Stop it and start it again with the last cursor it printed: nothing is printed twice, nothing is
left out.

    python examples/embed.py http://127.0.0.1:8548 3271
"""

import asyncio
import sys
from contextlib import suppress

from instep import Consumer
from instep_sql import SqlStore
from instep_tapi import TapiSource, read_options


async def print_changes(store: SqlStore, cursor: int) -> None:
    """Print each change committed after the cursor, for ever: a slow reader never holds up the
    consumer.
    """
    async for change in store.changes(cursor, follow=True):
        print(change.cursor, change.change, change.entity_class, change.key, flush=True)


async def main(endpoint: str, cursor: int = 0, url: str = "sqlite:///embed.db") -> None:
    source = TapiSource(read_options({"endpoints": [endpoint]}, "embed.py"))
    store = SqlStore(url, journal="changes")
    async with Consumer("embed", source, store) as consumer:
        await consumer.aligned()
        print("aligned", flush=True)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(consumer.wait())  # raises when the consumer fails for good
            tasks.create_task(print_changes(store, cursor))


if __name__ == "__main__":
    endpoint, cursor = [*sys.argv[1:], "0"][:2]
    with suppress(KeyboardInterrupt):
        asyncio.run(main(endpoint, int(cursor)))
