"""How far handlers and publishers of changes have come, and what handlers could not handle."""

from __future__ import annotations

from alembic import op
from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Text,
)

revision = "0107"
down_revision = "0106"

# SQLite's rowid is an alias of INTEGER PRIMARY KEY only.
_ID = BigInteger().with_variant(Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "instep_handler",
        Column("name", Text, nullable=False),
        Column("stream_no", Integer, nullable=False),
        # Up to which change all was handled, or is in `instep_failed_change`.
        Column("cursor", BigInteger, nullable=False),
        # Of the next change; 0: it has not failed.
        Column("attempts", Integer, nullable=False),
        Column("retry_at_us", BigInteger),
        Column("error", Text, nullable=False),
        # Which changes the journal has trimmed before it was given them; empty: none.
        Column("missed", Text, nullable=False),
        Column("updated_at_us", BigInteger, nullable=False),
        PrimaryKeyConstraint("name", "stream_no"),
    )
    op.create_table(
        "instep_failed_change",
        Column("id", _ID, primary_key=True),
        Column("name", Text, nullable=False),
        Column("stream_no", Integer, nullable=False),
        # 1: the handler gets no further changes of the stream until this one is decided.
        Column("blocks", SmallInteger, nullable=False),
        # 1: an operator wants it tried again.
        Column("again", SmallInteger, nullable=False),
        Column("reason", Text, nullable=False),
        Column("failed_at_us", BigInteger, nullable=False),
        # As JSON: the journal may trim it.
        Column("change", LargeBinary, nullable=False),
        Index("instep_failed_change_of", "name", "stream_no", "id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "instep_publisher",
        Column("name", Text, primary_key=True),
        # Up to which change the target has all.
        Column("cursor", BigInteger, nullable=False),
        Column("epoch", Text, nullable=False),
        Column("updated_at_us", BigInteger, nullable=False),
    )
