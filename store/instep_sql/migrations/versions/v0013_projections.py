"""The user's own tables: which classes they are filled from, which entities are to be projected
anew, and the rows that could not be written.
"""

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, PrimaryKeyConstraint, Text

revision = "0013"
down_revision = "0012"

_ID = BigInteger().with_variant(Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "instep_projected_class",
        Column("class", Text, nullable=False),
        Column("name", Text, nullable=False),
        PrimaryKeyConstraint("class", "name"),
    )
    # Entities that were changed and are not projected anew yet.
    op.create_table(
        "instep_unprojected",
        Column("stream_no", Integer, nullable=False),
        Column("name", Text, nullable=False),
        Column("entity_id", _ID, nullable=False),
        PrimaryKeyConstraint("stream_no", "name", "entity_id"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "instep_projection_error",
        Column("entity_id", _ID, nullable=False),
        Column("name", Text, nullable=False),
        Column("stream_no", Integer, nullable=False),
        Column("reason", Text, nullable=False),
        Column("since_us", BigInteger, nullable=False),
        PrimaryKeyConstraint("entity_id", "name"),
        sqlite_with_rowid=False,
    )
