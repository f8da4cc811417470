"""The writer and the relay that `tests.crash.publishing` kills.

python -m tests.crash.publishing_kit write URL
python -m tests.crash.publishing_kit relay URL FILE
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from sqlalchemy import Column, Connection, Integer, MetaData, Table, Text, create_engine, insert
from sqlalchemy.exc import OperationalError

from instep import Change
from instep.model.batches import Batch
from instep.model.position import Position
from instep.model.records import Record, RecordType
from instep.model.streams import StreamInfo
from instep_sql import ChangeHandler, SqlStore

KEYS = 5
STREAM = StreamInfo(id="s", origin="crash", kind="crash")
OUTBOX = Table(
    "outbox",
    MetaData(),
    # A number is given once, also where the row with the highest one is gone.
    Column("id", Integer, primary_key=True),
    Column("cursor", Integer, nullable=False),
    Column("key", Text, nullable=False),
    sqlite_autoincrement=True,
)


def alchemy_url(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


def add_event(change: Change, connection: Connection) -> None:
    connection.execute(insert(OUTBOX), {"cursor": change.cursor, "key": change.key})


async def write(url: str) -> None:
    """Commit five changes at a time, each with its row of the outbox, until killed."""
    handler = ChangeHandler(add_event, name="outbox")
    async with SqlStore(url, journal="bodies", handlers=[handler]) as store:
        await store.open("crash")
        before = await store.position(STREAM)
        while True:
            at = before.ordinal + 1
            kind, body = RecordType.CREATE_UPDATE, b'{"at":%d}' % at
            records = [Record("s", f"k{n}", kind, f"t{at}", at, body=body) for n in range(KEYS)]
            after = Position(token=f"t{at}", ordinal=at, attempt=1, lineage=1)
            await store.commit(
                Batch(stream="s", records=records, position=after, expects_ordinal=before.ordinal)
            )
            print(at, flush=True)
            before = after
            await asyncio.sleep(0.1)  # the relay is slower than the writer


def relay(url: str, published: Path) -> None:
    """Publish the rows of the outbox to a file, one by one, until killed: as the documentation
    says, a row goes once its event is durable.
    """
    engine = create_engine(alchemy_url(url))
    with published.open("ab") as file:
        while True:
            try:
                with engine.connect() as connection:
                    query = OUTBOX.select().order_by(OUTBOX.c.id).limit(100)
                    rows = connection.execute(query).all()
                for row in rows:
                    file.write(f"{row.cursor} {row.key}\n".encode())
                    file.flush()
                    os.fsync(file.fileno())
                    with engine.begin() as connection:
                        connection.execute(OUTBOX.delete().where(OUTBOX.c.id == row.id))
            except OperationalError:
                time.sleep(0.01)  # SQLite is locked
                continue
            if not rows:
                time.sleep(0.01)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        asyncio.run(write(sys.argv[2]))
    else:
        relay(sys.argv[2], Path(sys.argv[3]))
