"""The dead letter, and the record of how numbers ended."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, SmallInteger, Text, text

from instep_sql.migrations.versions.v0103_proof import create_view

revision = "0105"
down_revision = "0104"

# SQLite's rowid is an alias of INTEGER PRIMARY KEY only.
_ID = BigInteger().with_variant(Integer, "sqlite")


def upgrade() -> None:
    # Stage 3: the dead letter. Why a message is there, and who decided it.
    op.add_column("instep_inbox", Column("ending", Text))
    op.add_column("instep_inbox", Column("reason", Text))
    op.add_column("instep_inbox", Column("decided_by", Text))
    op.add_column("instep_inbox", Column("dead_at_us", BigInteger))
    # 1: its specification lets us discard it, so it is trimmed first.
    op.add_column("instep_inbox", Column("discarded", SmallInteger))
    op.drop_index("instep_inbox_number", "instep_inbox")
    # Other content may come for a number whose first message is dead.
    living = text("number >= 0 AND stage < 3")
    op.create_index(
        "instep_inbox_number",
        "instep_inbox",
        ["sequence_no", "epoch", "number"],
        unique=True,
        sqlite_where=living,
        postgresql_where=living,
    )
    dead = text("stage = 3")
    op.create_index(
        "instep_inbox_dead", "instep_inbox", ["id"], sqlite_where=dead, postgresql_where=dead
    )
    # Ranges of numbers that ended otherwise than by delivery, in the order of the decisions; the
    # last about a number counts. Delivered ranges are in the state of the sequence, and here only
    # once that tells of them no more.
    op.create_table(
        "instep_number_end",
        Column("id", _ID, primary_key=True),
        Column("receiver_no", Integer, ForeignKey("instep_receiver.id"), nullable=False),
        # By name: the record outlives the sequence.
        Column("scope", Text, nullable=False),
        Column("epoch", Integer, nullable=False),
        Column("low", BigInteger, nullable=False),
        Column("high", BigInteger, nullable=False),
        Column("ending", Text, nullable=False),
        Column("reason", Text, nullable=False),
        Column("decided_by", Text, nullable=False),
        # '', owed, sent or not-sent.
        Column("told", Text, nullable=False),
        # Of `instep_obligation`, while it is owed.
        Column("obligation", BigInteger),
        Column("decided_at_us", BigInteger, nullable=False),
        # When the sequence was forgotten; NULL: it is known.
        Column("forgotten_at_us", BigInteger),
        Index("instep_number_end_scope", "receiver_no", "scope", "id"),
        Index(
            "instep_number_end_owed",
            "receiver_no",
            "obligation",
            sqlite_where=text("obligation IS NOT NULL"),
            postgresql_where=text("obligation IS NOT NULL"),
        ),
        Index(
            "instep_number_end_forgotten",
            "forgotten_at_us",
            sqlite_where=text("forgotten_at_us IS NOT NULL"),
            postgresql_where=text("forgotten_at_us IS NOT NULL"),
        ),
        sqlite_autoincrement=True,
    )
    # How many numbers of a receiver ended so, ever; what was trimmed is in it.
    op.create_table(
        "instep_number_total",
        Column("receiver_no", Integer, ForeignKey("instep_receiver.id"), primary_key=True),
        Column("ending", Text, primary_key=True),
        Column("numbers", BigInteger, nullable=False),
    )
    # What became of a request; NULL: nobody has done it yet.
    op.add_column("instep_sequence_request", Column("outcome", Text))
    op.add_column("instep_sequence_request", Column("done_at_us", BigInteger))
    create_view()
