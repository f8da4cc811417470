"""Views that are read without knowing the tables: JSON and truth values in PostgreSQL, the journal
and the streams beside the entities; and a notification of each commit that has changes.
"""

from alembic import op
from sqlalchemy import Connection, text

revision = "0014"
down_revision = "0013"

_ENTITIES = """
    CREATE VIEW instep_entities AS
    SELECT s.consumer, s.stream, e.key, e.class, e.uuid, e.token, {appended} AS appended_at,
           e.attempt, e.proven <> 0 AS proven, instep_json(e.envelope) AS envelope,
           instep_json(e.body) AS body
    FROM instep_entity AS e JOIN instep_stream AS s ON s.id = e.stream_no
"""
_CHANGES = """
    CREATE VIEW instep_changes AS
    SELECT c.cursor, s.consumer, s.stream, c.key, c.class, c.change,
           CASE c.kind WHEN 1 THEN 'CREATE_UPDATE' WHEN 2 THEN 'DELETE' WHEN 3 THEN 'TOMBSTONE' END
           AS kind, c.token, {appended} AS appended_at, {committed} AS committed_at,
           {envelope} AS envelope, {body} AS body, {previous} AS previous
    FROM instep_change AS c JOIN instep_stream AS s ON s.id = c.stream_no
"""
_STREAMS = """
    CREATE VIEW instep_streams AS
    SELECT s.consumer, s.stream, s.phase, s.attempt, s.token, {appended} AS appended_at,
           s.records, {updated} AS updated_at
    FROM instep_stream AS s WHERE s.kind = 'stream'
"""
_POSTGRESQL_TIME = "timestamptz 'epoch' + {0} * interval '1 microsecond'"
_SQLITE_TIME = (
    "strftime('%Y-%m-%dT%H:%M:%S', {0} / 1000000, 'unixepoch') || printf('.%06dZ', {0} % 1000000)"
)
_POSTGRESQL = (
    # Before version 17, a block with EXCEPTION fails in a parallel query: "cannot start
    # subtransactions during a parallel operation".
    "ALTER FUNCTION instep_text(bytea) PARALLEL UNSAFE",
    # What is no JSON must not make the view fail for the others. The character NUL is JSON that
    # jsonb cannot hold: it reads as U+FFFD.
    r"""
    CREATE FUNCTION instep_json(bytes bytea) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL UNSAFE AS $$
    BEGIN
        RETURN convert_from(bytes, 'UTF8')::jsonb;
    EXCEPTION WHEN data_exception THEN
        BEGIN
            RETURN regexp_replace(convert_from(bytes, 'UTF8'),
                '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd', 'g')::jsonb;
        EXCEPTION WHEN data_exception THEN
            RETURN NULL;
        END;
    END $$
    """,
    # A commit that changes nothing notifies nobody; listeners read on from their own cursor.
    """
    CREATE OR REPLACE FUNCTION instep_change_end() RETURNS trigger
    LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
    BEGIN
        UPDATE instep_change_last SET cursor = added.last
        FROM (SELECT max(cursor) AS last FROM added) AS added WHERE added.last IS NOT NULL;
        IF FOUND THEN
            PERFORM pg_notify('instep_changes', TG_TABLE_SCHEMA);
        END IF;
        RETURN NULL;
    END $$
    """,
)
_DEPENDS = text("""
    SELECT EXISTS (
        SELECT 1 FROM pg_depend AS d JOIN pg_rewrite AS r ON r.oid = d.objid
        WHERE d.refobjid = CAST('instep_entities' AS regclass) AND r.ev_class <> d.refobjid)
""")


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        time, json = _POSTGRESQL_TIME, "instep_json({0})"
        for statement in _POSTGRESQL:
            op.execute(text(statement))
        _free_the_name(connection)
        op.execute(_ENTITIES.format(appended=time.format("e.appended_at_us")))
    else:
        time, json = _SQLITE_TIME, "CAST({0} AS TEXT)"
    op.execute(
        _CHANGES.format(
            appended=time.format("c.appended_at_us"),
            committed=time.format("c.committed_at_us"),
            envelope=json.format("c.envelope"),
            # A journal without bodies keeps an empty one.
            body=json.format("nullif(c.body, '')"),
            previous=json.format("c.previous"),
        )
    )
    op.execute(
        _STREAMS.format(
            appended=time.format("nullif(s.appended_at_us, 0)"),
            updated=time.format("s.updated_at_us"),
        )
    )


def _free_the_name(connection: Connection) -> None:
    """The types of a view's columns cannot be changed. Where views of users build on it, it stays
    for them as `instep_entities_text`.
    """
    if connection.execute(_DEPENDS).scalar_one():
        op.execute("ALTER VIEW instep_entities RENAME TO instep_entities_text")
    else:
        op.execute("DROP VIEW instep_entities")
