"""An outbox knows the parties of its thread; the sequences of a thread are found by an index; the
size of the delivered messages is known; operators have their requests kept.
"""

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, Text

revision = "0009"
down_revision = "0008"

_COUNT = """
    INSERT INTO instep_message_size (id, counted_to, size_bytes)
    SELECT 1, coalesce(max(id), 0), coalesce(sum(length(body) + 300), 0) FROM instep_message
"""


def upgrade() -> None:
    # A recipient of our messages -> the first number of which it was one, as JSON.
    op.add_column("instep_outbox", Column("parties", Text, nullable=False, server_default="{}"))
    # One row: the size of all delivered messages up to an id, so that it can be bounded.
    op.create_table(
        "instep_message_size",
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("counted_to", BigInteger, nullable=False),
        Column("size_bytes", BigInteger, nullable=False),
    )
    op.execute(_COUNT)
    op.create_table(
        "instep_sequence_request",
        Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
        Column("sequence_no", BigInteger, nullable=False),
        Column("action", Text, nullable=False),
        Column("number", BigInteger),
    )
    if op.get_bind().dialect.name == "postgresql":
        # An index in the order of the database's language finds no beginnings of texts.
        op.execute(
            "CREATE INDEX instep_sequence_scope "
            "ON instep_sequence (receiver_no, scope text_pattern_ops)"
        )
