"""The replies that a handler gives are kept, so that a request that comes again gets the same."""

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, LargeBinary, UniqueConstraint

revision = "0010"
down_revision = "0009"

_ID = BigInteger().with_variant(Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "instep_reply",
        Column("id", _ID, primary_key=True),
        Column("sequence_no", _ID, nullable=False),
        Column("number", BigInteger, nullable=False),
        Column("replied_at_us", BigInteger, nullable=False),
        Column("body", LargeBinary, nullable=False),
        UniqueConstraint("sequence_no", "number"),
        sqlite_autoincrement=True,
    )
