"""An outbox: each change of a port is published at least once, in order, whatever crashes.

    python examples/outbox.py [URL] [--store sqlite:///outbox.db] [--published published.txt]

The handler writes a row of the outbox in the transaction that commits the change. A relay publishes
the rows in their order, and removes each after that. Here it appends them to a file; yours sends
them to a broker.
"""

import asyncio
import json
from pathlib import Path

from simulation import run, store_options, temporary
from sqlalchemy import Connection, Engine, create_engine, delete, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from instep import Change, Consumer
from instep_sql import ChangeHandler, SqlStore
from instep_tapi import TapiSource, read_options


class Base(DeclarativeBase):
    pass


class Event(Base):
    """A row of the outbox. With migrations of your own, Alembic makes the table."""

    __tablename__ = "outbox"
    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str]
    what: Mapped[str]
    state: Mapped[str | None]


def add_event(change: Change, connection: Connection) -> None:
    """Write what has happened. It is called in the transaction that commits the change."""
    state = json.loads(change.body)["operational-state"] if change.body else None
    event = {"key": change.key, "what": change.change.value, "state": state}
    connection.execute(insert(Event), event)


def relay(engine: Engine, published: Path) -> int:
    """Publish what is in the outbox, the oldest first. Returns how much that was."""
    with engine.connect() as connection:
        events = connection.execute(select(Event).order_by(Event.id).limit(500)).all()
    for event in events:
        with published.open("a") as file:
            file.write(f"{event.key} {event.what} {event.state}\n")
        # A program that is killed right here publishes the event again.
        with engine.begin() as connection:
            connection.execute(delete(Event).where(Event.id == event.id))
    return len(events)


async def main(endpoint: str, url: str, published: str) -> None:
    engine = create_engine(url)
    Base.metadata.create_all(engine)
    source = TapiSource(read_options({"endpoints": [endpoint]}, "outbox.py"))
    handler = ChangeHandler(add_event, name="outbox", classes=["NODE_EDGE_POINT"])
    store = SqlStore(url, journal="bodies", handlers=[handler])
    count = 0
    async with Consumer("outbox", source, store) as consumer:
        await consumer.aligned()
        while more := await asyncio.to_thread(relay, engine, Path(published)):
            count += more
    print(f"{count} events are published to {published}")
    engine.dispose()


if __name__ == "__main__":
    parser = store_options(__doc__)
    parser.add_argument(
        "--published", default=temporary("published.txt"), metavar="FILE", help="where events go"
    )
    run(main, parser)
