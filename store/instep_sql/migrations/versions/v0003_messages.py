"""Numbered sequences: their state, buffered messages, delivered messages, and the outbox."""

from alembic import op
from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Text,
    UniqueConstraint,
    text,
)

revision = "0003"
down_revision = "0002"

_ID = BigInteger().with_variant(Integer, "sqlite")

_VIEW = """
    CREATE VIEW instep_messages AS
    SELECT m.id AS cursor, s.consumer, q.scope AS stream, m.number, m.message_id AS id, m.sender,
           {received} AS received_at, {delivered} AS delivered_at, {body} AS body
    FROM instep_message AS m
    JOIN instep_sequence AS q ON q.id = m.sequence_no
    JOIN instep_stream AS s ON s.id = q.stream_no
"""
_SQLITE_TIME = (
    "strftime('%Y-%m-%dT%H:%M:%S', {at} / 1000000, 'unixepoch') || printf('.%06dZ', {at} % 1000000)"
)
_POSTGRESQL_TIME = "timestamptz 'epoch' + {at} * interval '1 microsecond'"


def _partial(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    return Index(
        name, *columns, unique=unique, sqlite_where=text(where), postgresql_where=text(where)
    )


def upgrade() -> None:
    op.create_table(
        "instep_sequence",
        Column("id", _ID, primary_key=True),
        Column("stream_no", Integer, ForeignKey("instep_stream.id"), nullable=False),
        Column("scope", Text, nullable=False),
        # Ranges and positions; what is held is in the inbox.
        Column("state", Text, nullable=False),
        # When a gap or an expiry wants attention.
        Column("due_us", BigInteger),
        # When the handler may be given the messages that wait for it; NULL: none wait, or blocked.
        Column("deliver_at_us", BigInteger),
        Column("attempts", Integer, nullable=False),
        Column("blocked", SmallInteger, nullable=False),
        Column("error", Text, nullable=False),
        Column("updated_at_us", BigInteger, nullable=False),
        UniqueConstraint("stream_no", "scope"),
        _partial("instep_sequence_due", "stream_no", "due_us", where="due_us IS NOT NULL"),
        _partial(
            "instep_sequence_deliver",
            "stream_no",
            "deliver_at_us",
            where="deliver_at_us IS NOT NULL",
        ),
        _partial("instep_sequence_blocked", "stream_no", where="blocked = 1"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "instep_inbox",
        Column("id", _ID, primary_key=True),
        Column("sequence_no", _ID, nullable=False),
        # Counts the resets of the sequence: numbers compare only within one epoch.
        Column("epoch", Integer, nullable=False),
        Column("number", BigInteger, nullable=False),
        # 0 held behind a gap, 1 waits for the handler, 2 the handler has failed.
        Column("stage", SmallInteger, nullable=False),
        Column("message_id", Text, nullable=False),
        Column("sender", Text, nullable=False),
        Column("attributes", Text, nullable=False),
        Column("digest", LargeBinary, nullable=False),
        Column("expires_at_us", BigInteger, nullable=False),
        Column("received_at_us", BigInteger, nullable=False),
        Column("kept_at_us", BigInteger, nullable=False),
        Column("body", LargeBinary, nullable=False),
        _partial(
            "instep_inbox_number",
            "sequence_no",
            "epoch",
            "number",
            where="number >= 0",
            unique=True,
        ),
        Index("instep_inbox_stage", "sequence_no", "stage", "epoch", "number", "id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "instep_message",
        Column("id", _ID, primary_key=True),
        Column("sequence_no", _ID, nullable=False),
        Column("number", BigInteger, nullable=False),
        Column("message_id", Text, nullable=False),
        Column("sender", Text, nullable=False),
        Column("attributes", Text, nullable=False),
        Column("received_at_us", BigInteger, nullable=False),
        Column("delivered_at_us", BigInteger, nullable=False),
        Column("body", LargeBinary, nullable=False),
        # Keeps the order of delivery even if all earlier rows were removed.
        sqlite_autoincrement=True,
    )
    op.create_table(
        "instep_seen",
        Column("id", _ID, primary_key=True),
        Column("sequence_no", _ID, nullable=False),
        Column("digest", LargeBinary, nullable=False),
        Column("seen_at_us", BigInteger, nullable=False),
        UniqueConstraint("sequence_no", "digest"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "instep_outbox",
        Column("id", _ID, primary_key=True),
        Column("stream_no", Integer, ForeignKey("instep_stream.id"), nullable=False),
        Column("scope", Text, nullable=False),
        Column("next_number", BigInteger, nullable=False),
        UniqueConstraint("stream_no", "scope"),
    )
    op.create_table(
        "instep_sent",
        Column("outbox_no", _ID, primary_key=True, autoincrement=False),
        Column("number", BigInteger, primary_key=True, autoincrement=False),
        Column("entry", Text, nullable=False),
        Column("body", LargeBinary, nullable=False),
    )
    # A message that a handler failed on: its scope, and its row in the inbox.
    op.add_column("instep_quarantine", Column("scope", Text))
    op.add_column("instep_quarantine", Column("inbox_no", BigInteger))
    if op.get_bind().dialect.name == "postgresql":
        words = {"time": _POSTGRESQL_TIME, "body": "instep_text(m.body)"}
    else:
        words = {"time": _SQLITE_TIME, "body": "CAST(m.body AS TEXT)"}
    op.execute(
        _VIEW.format(
            received=words["time"].format(at="m.received_at_us"),
            delivered=words["time"].format(at="m.delivered_at_us"),
            body=words["body"],
        )
    )
