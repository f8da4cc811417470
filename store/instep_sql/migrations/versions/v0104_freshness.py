"""How fresh a stream is, and of which writing of the journal a cursor is."""

from __future__ import annotations

from uuid import uuid4

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, Text, text

revision = "0104"
down_revision = "0103"

# SQLite's rowid is an alias of INTEGER PRIMARY KEY only.
_ID = BigInteger().with_variant(Integer, "sqlite")


def upgrade() -> None:
    # A process that follows streams. Its word is not of now once `heard_at_us`, which is a time of
    # the database, is older than `stale_after_s`.
    op.create_table(
        "instep_follower",
        Column("id", _ID, primary_key=True),
        Column("name", Text, nullable=False, unique=True),
        Column("consumer", Text, nullable=False),
        Column("heard_at_us", BigInteger, nullable=False),
        Column("stale_after_s", Float, nullable=False),
    )
    # What it said last of each stream.
    op.create_table(
        "instep_freshness",
        Column("stream_no", Integer, primary_key=True),
        Column("follower_no", _ID, nullable=False, index=True),
        Column("connected", Boolean, nullable=False),
        Column("caught_up", Boolean, nullable=False),
        Column("opened_at_us", BigInteger, nullable=False),
        Column("read_at_us", BigInteger, nullable=False),
        Column("refused", BigInteger, nullable=False),
        Column("readable", Boolean, nullable=False),
        Column("trouble", Text, nullable=False),
    )
    # Each connection that writes changes begins an epoch of its own. After a restore, in a promoted
    # replica or in a copied file the same cursors are of other epochs, or of none.
    op.create_table(
        "instep_journal_epoch",
        Column("start_cursor", BigInteger, primary_key=True, autoincrement=False),
        Column("epoch", Text, nullable=False, unique=True),
        Column("started_at_us", BigInteger, nullable=False),
    )
    op.execute(
        text("INSERT INTO instep_journal_epoch VALUES (1, :epoch, 0)").bindparams(epoch=uuid4().hex)
    )
