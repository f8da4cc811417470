"""Where each entity stands, and what it refers to (TR-548 3.10.1, ST-4.1); which derived tables are
kept.
"""

from alembic import op
from sqlalchemy import BigInteger, Column, Index, Integer, PrimaryKeyConstraint, Text

revision = "0012"
down_revision = "0011"

_ID = BigInteger().with_variant(Integer, "sqlite")

_VIEWS = (
    """
    CREATE VIEW instep_places AS
    SELECT s.consumer, s.stream, e.key, e.class, e.uuid, p.place, p.distance, p.name,
           p.uuid AS ancestor,
           EXISTS (SELECT 1 FROM instep_place AS a JOIN instep_stream AS t ON t.id = a.stream_no
                   WHERE a.uuid = p.uuid AND a.distance = 0 AND t.consumer = s.consumer) AS known,
           {time} AS since
    FROM instep_place AS p JOIN instep_entity AS e ON e.id = p.entity_id
    JOIN instep_stream AS s ON s.id = p.stream_no WHERE p.distance > 0
    """,
    """
    CREATE VIEW instep_references AS
    SELECT s.consumer, s.stream, e.key, e.class, e.uuid, p.role, p.name, p.uuid AS target,
           EXISTS (SELECT 1 FROM instep_place AS a JOIN instep_stream AS t ON t.id = a.stream_no
                   WHERE a.uuid = p.uuid AND a.distance = 0 AND t.consumer = s.consumer) AS known,
           {time} AS since
    FROM instep_reference AS p JOIN instep_entity AS e ON e.id = p.entity_id
    JOIN instep_stream AS s ON s.id = p.stream_no
    """,
)
_TIMES = {
    "sqlite": "strftime('%Y-%m-%dT%H:%M:%S', p.since_us / 1000000, 'unixepoch')"
    " || printf('.%06dZ', p.since_us % 1000000)",
    "postgresql": "timestamptz 'epoch' + p.since_us * interval '1 microsecond'",
}


def upgrade() -> None:
    op.create_table(
        "instep_projection",
        Column("name", Text, primary_key=True),
        Column("definition", Text, nullable=False),
    )
    op.create_table(
        "instep_place",
        Column("entity_id", _ID, nullable=False),
        # 0: the parent-address; further ones, if the entity stands in several places.
        Column("place", Integer, nullable=False),
        # 0: the entity itself, 1: its parent, and so on upwards.
        Column("distance", Integer, nullable=False),
        Column("stream_no", Integer, nullable=False),
        Column("since_us", BigInteger, nullable=False),
        Column("name", Text, nullable=False),
        Column("uuid", Text, nullable=False),
        PrimaryKeyConstraint("entity_id", "place", "distance"),
        Index("instep_place_uuid", "uuid", "distance", "stream_no"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "instep_reference",
        Column("entity_id", _ID, nullable=False),
        Column("role", Text, nullable=False),
        Column("name", Text, nullable=False),
        Column("uuid", Text, nullable=False),
        Column("stream_no", Integer, nullable=False),
        Column("since_us", BigInteger, nullable=False),
        PrimaryKeyConstraint("entity_id", "role", "name", "uuid"),
        Index("instep_reference_uuid", "uuid", "stream_no"),
        sqlite_with_rowid=False,
    )
    # What an entity stated when its rows were last derived.
    op.create_table(
        "instep_stated",
        Column("entity_id", _ID, primary_key=True, autoincrement=False),
        Column("digest", BigInteger, nullable=False),
    )
    # Entities that were changed and whose rows are not derived yet.
    op.create_table(
        "instep_stale",
        Column("stream_no", Integer, nullable=False),
        Column("entity_id", _ID, nullable=False),
        PrimaryKeyConstraint("stream_no", "entity_id"),
        sqlite_with_rowid=False,
    )
    database = op.get_bind().dialect.name
    for view in _VIEWS:
        op.execute(view.format(time=_TIMES[database]))
