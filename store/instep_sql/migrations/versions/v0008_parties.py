"""An outbox knows the parties of its thread; the sequences of a thread are found by an index."""

from alembic import op
from sqlalchemy import Column, Text

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    # A recipient of our messages -> the first number of which it was one, as JSON.
    op.add_column("instep_outbox", Column("parties", Text, nullable=False, server_default="{}"))
    if op.get_bind().dialect.name == "postgresql":
        # An index in the order of the database's language finds no beginnings of texts.
        op.execute(
            "CREATE INDEX instep_sequence_scope "
            "ON instep_sequence (receiver_no, scope text_pattern_ops)"
        )
