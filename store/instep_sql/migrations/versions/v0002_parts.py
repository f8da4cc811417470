"""Parts of entities of CHANGE_ONLY streams, and the keys of ended entities."""

from alembic import op
from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Text,
    UniqueConstraint,
)

revision = "0002"
down_revision = "0001"

_ID = BigInteger().with_variant(Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "instep_part",
        Column("id", _ID, primary_key=True),
        Column("stream_no", Integer, ForeignKey("instep_stream.id"), nullable=False),
        Column("part_key", Text, nullable=False),
        Column("entity_key", Text, nullable=False),
        Column("token", Text, nullable=False),
        Column("partition", Text, nullable=False),
        Column("offset", BigInteger, nullable=False),
        Column("appended_at_us", BigInteger, nullable=False),
        Column("lineage", Integer, nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("body", LargeBinary, nullable=False),
        UniqueConstraint("stream_no", "part_key"),
        Index("instep_part_entity", "stream_no", "entity_key"),
    )
    op.create_table(
        "instep_ended",
        Column("id", _ID, primary_key=True),
        Column("stream_no", Integer, ForeignKey("instep_stream.id"), nullable=False),
        Column("key", Text, nullable=False),
        Column("uuid", Text, nullable=False),
        Column("lineage", Integer, nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("appended_at_us", BigInteger, nullable=False),
        UniqueConstraint("stream_no", "key"),
        Index("instep_ended_uuid", "stream_no", "uuid"),
        sqlite_autoincrement=True,
    )
