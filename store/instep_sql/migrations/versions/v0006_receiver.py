"""Receivers of messages get a table of their own. Before, the receiver of a consumer was the row of
`instep_stream` with the name "messages" and the phase "receiving": it kept the owner in `token` and
the mark of its last transaction in `ordinal`. The rows of audits had that phase, too.

A receiver keeps the id of its row, so that sequences, outboxes and messages in quarantine belong to
it as before.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from alembic import op
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Text,
    UniqueConstraint,
    column,
    table,
    text,
)

revision = "0006"
down_revision = "0005"

# SQLite's rowid is an alias of INTEGER PRIMARY KEY only.
_ID = BigInteger().with_variant(Integer, "sqlite")

_RECEIVERS = text("""
    SELECT s.*, EXISTS (SELECT 1 FROM instep_sequence AS q WHERE q.stream_no = s.id)
             OR EXISTS (SELECT 1 FROM instep_outbox AS o WHERE o.stream_no = s.id) AS used
    FROM instep_stream AS s WHERE s.stream = 'messages' ORDER BY s.id
""")
_RECEIVER = table(
    "instep_receiver",
    column("id", Integer),
    column("consumer", Text),
    column("kind", Text),
    column("owner", Text),
    column("commits", BigInteger),
    column("messages", BigInteger),
    column("deviations", Text),
    column("updated_at_us", BigInteger),
)
_RESTORE = text("""
    UPDATE instep_stream SET token = :token, ordinal = :ordinal, records = :records, info = :info
    WHERE id = :id
""")
_ROWS = (
    """
    UPDATE instep_quarantine SET receiver_no = stream_no, stream_no = NULL WHERE scope IS NOT NULL
    """,
    """
    UPDATE instep_stream SET kind = 'audit', phase = 'unaligned'
    WHERE phase = 'receiving' AND id NOT IN (SELECT id FROM instep_receiver)
    """,
    "DELETE FROM instep_stream WHERE phase = 'receiving'",
)
_POSTGRESQL = (
    """
    SELECT setval('instep_receiver_id_seq', coalesce((SELECT max(id) FROM instep_receiver), 1))
    """,
    *(
        statement
        for name in ("instep_sequence", "instep_outbox")
        for statement in (
            f"ALTER TABLE {name} DROP CONSTRAINT {name}_stream_no_fkey",
            f"ALTER TABLE {name} RENAME COLUMN stream_no TO receiver_no",
            f"ALTER TABLE {name} ADD FOREIGN KEY (receiver_no) REFERENCES instep_receiver (id)",
        )
    ),
    """
    ALTER TABLE instep_quarantine ALTER COLUMN stream_no DROP NOT NULL,
        ADD COLUMN receiver_no integer REFERENCES instep_receiver (id)
    """,
)
_VIEW = """
    {create} VIEW instep_messages AS
    SELECT m.id AS cursor, r.consumer, q.scope AS stream, m.number, m.message_id AS id, m.sender,
           {received} AS received_at, {delivered} AS delivered_at, {body} AS body
    FROM instep_message AS m
    JOIN instep_sequence AS q ON q.id = m.sequence_no
    JOIN instep_receiver AS r ON r.id = q.receiver_no
"""
_SQLITE_TIME = (
    "strftime('%Y-%m-%dT%H:%M:%S', {at} / 1000000, 'unixepoch') || printf('.%06dZ', {at} % 1000000)"
)
_POSTGRESQL_TIME = "timestamptz 'epoch' + {at} * interval '1 microsecond'"


def upgrade() -> None:
    connection = op.get_bind()
    op.add_column("instep_stream", Column("kind", Text, nullable=False, server_default="stream"))
    op.create_table(
        "instep_receiver",
        Column("id", Integer, primary_key=True),
        Column("consumer", Text, nullable=False, unique=True),
        # Of the listener.
        Column("kind", Text, nullable=False),
        # The process that receives; every other one is fenced.
        Column("owner", Text, nullable=False),
        # The number that the owner has given to its last transaction.
        Column("commits", BigInteger, nullable=False),
        Column("messages", BigInteger, nullable=False),
        Column("deviations", Text, nullable=False),
        Column("updated_at_us", BigInteger, nullable=False),
    )
    _move_receivers(connection)
    if connection.dialect.name == "postgresql":
        _each(*_POSTGRESQL, *_ROWS)
        # Replaced, not dropped: views of users may build on it.
        _view("CREATE OR REPLACE", _POSTGRESQL_TIME, "instep_text(m.body)")
    else:
        _each("DROP VIEW instep_messages")
        _rebuild_sequences(connection)
        _rebuild_outboxes(connection)
        _rebuild_quarantine(connection)
        _each(*_ROWS)
        _view("CREATE", _SQLITE_TIME, "CAST(m.body AS TEXT)")
    op.create_index("instep_quarantine_receiver", "instep_quarantine", ["receiver_no"])


def _each(*statements: str) -> None:
    for statement in statements:
        op.execute(statement)


def _view(create: str, time: str, body: str) -> None:
    received, delivered = time.format(at="m.received_at_us"), time.format(at="m.delivered_at_us")
    op.execute(_VIEW.format(create=create, received=received, delivered=delivered, body=body))


def _move_receivers(connection: Connection) -> None:
    """Make the receivers. Not in SQL: `info` is Python's JSON, with a word for what is infinite."""
    receivers = []
    for row in connection.execute(_RECEIVERS).all():
        info = json.loads(row.info)
        # A provider's stream of that name had the same row, and its description another form.
        shared = row.phase != "receiving"
        described = "origin" in info
        if shared and described and not row.used:
            continue
        if shared:
            position = json.loads(row.position)
            restored = {
                "id": row.id,
                "token": position.get("token"),
                "ordinal": position.get("ordinal", 0),
                "records": position.get("records", 0),
                "info": row.info if described else "{}",
            }
            connection.execute(_RESTORE, restored)
        receivers.append(
            {
                "id": row.id,
                "consumer": row.consumer,
                "kind": "" if described else info.get("kind", ""),
                "owner": row.token or "",
                "commits": 0,
                "messages": 0 if shared else row.records,
                "deviations": "{}" if shared else row.deviations,
                "updated_at_us": row.updated_at_us,
            }
        )
    if receivers:
        op.bulk_insert(_RECEIVER, receivers)


@contextmanager
def _rebuilt(connection: Connection, name: str, columns: str, rows: str) -> Iterator[None]:
    """Remove a table that the block makes anew, and keep its rows. Numbers once given are not given
    again (AUTOINCREMENT).

    Nothing is renamed: SQLite would refuse that where a user's view builds on a view that is away.
    """
    given = connection.execute(
        text("SELECT seq FROM sqlite_sequence WHERE name = :name"), {"name": name}
    ).scalar()
    _each(f"CREATE TEMP TABLE kept AS SELECT * FROM {name}", f"DROP TABLE {name}")  # noqa: S608
    yield
    _each(f"INSERT INTO {name} ({columns}) SELECT {rows} FROM kept", "DROP TABLE kept")  # noqa: S608
    if given is not None:
        values = {"name": name, "given": given}
        connection.execute(text("DELETE FROM sqlite_sequence WHERE name = :name"), values)
        connection.execute(text("INSERT INTO sqlite_sequence VALUES (:name, :given)"), values)


def _rebuild_sequences(connection: Connection) -> None:
    columns = "scope, state, due_us, deliver_at_us, attempts, blocked, error, updated_at_us"
    into, rows = f"id, receiver_no, {columns}", f"id, stream_no, {columns}"
    with _rebuilt(connection, "instep_sequence", into, rows):
        op.create_table(
            "instep_sequence",
            Column("id", _ID, primary_key=True),
            Column("receiver_no", Integer, ForeignKey("instep_receiver.id"), nullable=False),
            Column("scope", Text, nullable=False),
            # Ranges and positions; what is held is in the inbox.
            Column("state", Text, nullable=False),
            # When a gap or an expiry wants attention.
            Column("due_us", BigInteger),
            # When the handler may be given the messages that wait for it; NULL: none wait, or
            # blocked.
            Column("deliver_at_us", BigInteger),
            Column("attempts", Integer, nullable=False),
            Column("blocked", SmallInteger, nullable=False),
            Column("error", Text, nullable=False),
            Column("updated_at_us", BigInteger, nullable=False),
            UniqueConstraint("receiver_no", "scope"),
            _partial("instep_sequence_due", "due_us", where="due_us IS NOT NULL"),
            _partial("instep_sequence_deliver", "deliver_at_us", where="deliver_at_us IS NOT NULL"),
            _partial("instep_sequence_blocked", where="blocked = 1"),
            sqlite_autoincrement=True,
        )


def _partial(name: str, *columns: str, where: str) -> Index:
    return Index(name, "receiver_no", *columns, sqlite_where=text(where))


def _rebuild_outboxes(connection: Connection) -> None:
    columns = "id, receiver_no, scope, next_number"
    with _rebuilt(connection, "instep_outbox", columns, "id, stream_no, scope, next_number"):
        op.create_table(
            "instep_outbox",
            Column("id", _ID, primary_key=True),
            Column("receiver_no", Integer, ForeignKey("instep_receiver.id"), nullable=False),
            Column("scope", Text, nullable=False),
            Column("next_number", BigInteger, nullable=False),
            UniqueConstraint("receiver_no", "scope"),
        )


def _rebuild_quarantine(connection: Connection) -> None:
    columns = (
        "id, stream_no, reason, token, received_at_us, replayed_at_us, digest, raw, scope, inbox_no"
    )
    with _rebuilt(connection, "instep_quarantine", columns, columns):
        op.create_table(
            "instep_quarantine",
            Column("id", _ID, primary_key=True),
            # Of a record.
            Column("stream_no", Integer, ForeignKey("instep_stream.id")),
            Column("reason", Text, nullable=False),
            Column("token", Text),
            Column("received_at_us", BigInteger, nullable=False),
            Column("replayed_at_us", BigInteger),
            # Of token and bytes, so that a log read again does not fill the quarantine; NULL
            # without token.
            Column("digest", LargeBinary),
            Column("raw", LargeBinary, nullable=False),
            # Of a message that a handler failed on: its scope, its row in the inbox, its receiver.
            Column("scope", Text),
            Column("inbox_no", BigInteger),
            Column("receiver_no", Integer, ForeignKey("instep_receiver.id")),
            UniqueConstraint("stream_no", "digest"),
            sqlite_autoincrement=True,
        )
