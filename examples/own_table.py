"""A table of your own beside the store: which nodes there are, and whether they work.

    python examples/own_table.py [URL] [--table nodes.db --store sqlite:///own_table.db]

The table is fed from the journal. It keeps its own cursor, and moves it in the transaction that
writes the rows the cursor covers: however often this program is stopped, the table is never ahead
of its cursor, nor behind it.
"""

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing

from simulation import run, store_options, temporary

from instep import Change, ChangeKind, Consumer
from instep_sql import SqlStore
from instep_tapi import TapiSource, read_options

TABLES = """
    CREATE TABLE IF NOT EXISTS node (key TEXT PRIMARY KEY, name TEXT, state TEXT);
    CREATE TABLE IF NOT EXISTS place (cursor INTEGER NOT NULL);
    INSERT INTO place SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM place);
"""
GONE = (ChangeKind.DELETED, ChangeKind.SWEPT)


def apply(table: sqlite3.Connection, change: Change) -> None:
    """Apply one change to the table and move its cursor to that change, or do neither."""
    with table:
        if change.change in GONE:
            table.execute("DELETE FROM node WHERE key = ?", [change.key])
        elif change.entity_class == "NODE":
            node = json.loads(change.body)
            name = next((name["value"] for name in node.get("name", ())), node["uuid"])
            row = (change.key, name, node.get("operational-state"))
            table.execute("INSERT OR REPLACE INTO node VALUES (?, ?, ?)", row)
        table.execute("UPDATE place SET cursor = ?", [change.cursor])


async def feed(table: sqlite3.Connection, changes: AsyncIterator[Change]) -> None:
    """Apply changes as they come, until they end."""
    async for change in changes:
        apply(table, change)


async def main(endpoint: str, url: str, table: str) -> None:
    source = TapiSource(read_options({"endpoints": [endpoint]}, "own_table.py"))
    store = SqlStore(url, journal="bodies")
    with closing(sqlite3.connect(table)) as nodes:
        nodes.executescript(TABLES)
        async with Consumer("own-table", source, store) as consumer:
            await consumer.aligned()
            (cursor,) = nodes.execute("SELECT cursor FROM place").fetchone()
            await feed(nodes, store.changes(cursor))
        (moved,) = nodes.execute("SELECT cursor FROM place").fetchone()
        print(f"{moved - cursor} changes applied; {table} is at cursor {moved}")
        for state, count in nodes.execute("SELECT state, count(*) FROM node GROUP BY state"):
            print(f"{count} nodes are {state}")


if __name__ == "__main__":
    parser = store_options(__doc__)
    parser.add_argument(
        "--table", default=temporary("nodes.db"), metavar="FILE", help="where the table is"
    )
    run(main, parser)
