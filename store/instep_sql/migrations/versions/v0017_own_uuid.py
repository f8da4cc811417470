"""The views of places and references find an entity by its uuid through an index, and give entities
of local classes the uuid that their place makes.
"""

from alembic import op

revision = "0017"
down_revision = "0016"

_OWN = """
    JOIN instep_entity AS e ON e.id = p.entity_id JOIN instep_stream AS s ON s.id = p.stream_no
    LEFT JOIN instep_place AS o ON o.entity_id = p.entity_id AND o.place = 0 AND o.distance = 0
"""
_KNOWN = """
           EXISTS (SELECT 1 FROM instep_place AS a JOIN instep_stream AS t ON t.id = a.stream_no
                   WHERE a.uuid = p.uuid AND a.distance = 0 AND t.consumer = s.consumer) AS known
"""
_VIEWS = {
    "instep_places": """
    SELECT s.consumer, s.stream, e.key, e.class, o.uuid, p.place, p.distance, p.name,
           p.uuid AS ancestor, {known}, {time} AS since
    FROM instep_place AS p {own} WHERE p.distance > 0
    """,
    "instep_references": """
    SELECT s.consumer, s.stream, e.key, e.class, o.uuid, p.role, p.name, p.uuid AS target,
           {known}, {time} AS since
    FROM instep_reference AS p {own}
    """,
}
_SQLITE_TIME = (
    "strftime('%Y-%m-%dT%H:%M:%S', p.since_us / 1000000, 'unixepoch')"
    " || printf('.%06dZ', p.since_us % 1000000)"
)
_POSTGRESQL_TIME = "timestamptz 'epoch' + p.since_us * interval '1 microsecond'"


def upgrade() -> None:
    on_postgresql = op.get_bind().dialect.name == "postgresql"
    time = _POSTGRESQL_TIME if on_postgresql else _SQLITE_TIME
    for name, query in _VIEWS.items():
        if on_postgresql:
            # Views of users may build on it.
            create = f"CREATE OR REPLACE VIEW {name}"
        else:
            op.execute(f"DROP VIEW {name}")
            create = f"CREATE VIEW {name}"
        op.execute(f"{create} AS {query.format(known=_KNOWN, own=_OWN, time=time)}")
