"""On PostgreSQL, ids of entities are drawn a thousand at a time: each row of an upsert draws one,
also for an entity that exists.
"""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER SEQUENCE instep_entity_id_seq CACHE 1000")
