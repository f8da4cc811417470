"""The lease of a consumer: which of several processes may write."""

from alembic import op
from sqlalchemy import BigInteger, Column, Float, Text

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "instep_lease",
        Column("consumer", Text, primary_key=True),
        # Grows with each holder; a transaction with another epoch fails.
        Column("epoch", BigInteger, nullable=False),
        # Grows with each transaction of the holder.
        Column("beat", BigInteger, nullable=False),
        # Empty: nobody.
        Column("holder", Text, nullable=False),
        Column("lease_s", Float, nullable=False),
        Column("taken_at_us", BigInteger, nullable=False),
        # The epoch whose holder was asked to hand over.
        Column("asked_epoch", BigInteger, nullable=False),
    )
