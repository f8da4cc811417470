"""Streams, entities, the journal of changes and the quarantine."""

from alembic import op
from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Text,
    UniqueConstraint,
    text,
)

revision = "0001"
down_revision = None

# SQLite's rowid is an alias of INTEGER PRIMARY KEY only.
_ID = BigInteger().with_variant(Integer, "sqlite")

_VIEW = """
    CREATE VIEW instep_entities AS
    SELECT s.consumer, s.stream, e.key, e.class, e.uuid, e.token, {time} AS appended_at,
           e.attempt, e.proven, {envelope} AS envelope, {body} AS body
    FROM instep_entity AS e JOIN instep_stream AS s ON s.id = e.stream_no
"""
_SQLITE_WORDS = {
    "time": "strftime('%Y-%m-%dT%H:%M:%S', e.appended_at_us / 1000000, 'unixepoch')"
    " || printf('.%06dZ', e.appended_at_us % 1000000)",
    "envelope": "CAST(e.envelope AS TEXT)",
    "body": "CAST(e.body AS TEXT)",
}
_POSTGRESQL_WORDS = {
    "time": "timestamptz 'epoch' + e.appended_at_us * interval '1 microsecond'",
    "envelope": "instep_text(e.envelope)",
    "body": "instep_text(e.body)",
}
_POSTGRESQL = (
    # An update fits on the page of its row, so that no index is written.
    "ALTER TABLE instep_entity SET (fillfactor = 50)",
    # The check for each new row costs a third of the insert; streams are never removed.
    "ALTER TABLE instep_entity DROP CONSTRAINT instep_entity_stream_no_fkey",
    # A body that is not UTF-8 must not make the view fail for the others.
    """
    CREATE FUNCTION instep_text(bytes bytea) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
    BEGIN
        RETURN convert_from(bytes, 'UTF8');
    EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
        RETURN NULL;
    END $$
    """,
    # Subscribers continue from the highest cursor they have seen. So cursors are assigned in the
    # order of the commits, without gaps: a writer of changes locks the row of the last cursor, and
    # others wait for its commit.
    """
    CREATE TABLE instep_change_last (
        one boolean PRIMARY KEY DEFAULT true CHECK (one), cursor bigint NOT NULL)
    """,
    "INSERT INTO instep_change_last (cursor) VALUES (0)",
    """
    CREATE FUNCTION instep_change_begin() RETURNS trigger
    LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
    BEGIN
        PERFORM setval('instep_change_cursor_seq', cursor + 1, false)
        FROM (SELECT cursor FROM instep_change_last FOR UPDATE) AS held;
        RETURN NULL;
    END $$
    """,
    """
    CREATE FUNCTION instep_change_end() RETURNS trigger
    LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
    BEGIN
        UPDATE instep_change_last SET cursor = added.last
        FROM (SELECT max(cursor) AS last FROM added) AS added WHERE added.last IS NOT NULL;
        RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER instep_change_begin BEFORE INSERT ON instep_change
    FOR EACH STATEMENT EXECUTE FUNCTION instep_change_begin()
    """,
    """
    CREATE TRIGGER instep_change_end AFTER INSERT ON instep_change
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION instep_change_end()
    """,
)


def upgrade() -> None:
    op.create_table(
        "instep_stream",
        Column("id", Integer, primary_key=True),
        Column("consumer", Text, nullable=False),
        Column("stream", Text, nullable=False),
        Column("position", Text, nullable=False),
        Column("token", Text),
        Column("appended_at_us", BigInteger, nullable=False),
        Column("phase", Text, nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("ordinal", BigInteger, nullable=False),
        Column("records", BigInteger, nullable=False),
        Column("info", Text, nullable=False),
        Column("deviations", Text, nullable=False),
        Column("journal", Text, nullable=False),
        Column("updated_at_us", BigInteger, nullable=False),
        UniqueConstraint("consumer", "stream"),
    )
    op.create_table(
        "instep_entity",
        Column("id", _ID, primary_key=True),
        Column("stream_no", Integer, ForeignKey("instep_stream.id"), nullable=False),
        Column("key", Text, nullable=False),
        Column("class", Text, nullable=False),
        Column("token", Text, nullable=False),
        Column("partition", Text, nullable=False),
        Column("offset", BigInteger, nullable=False),
        Column("appended_at_us", BigInteger, nullable=False),
        Column("lineage", Integer, nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("proven", SmallInteger, nullable=False),
        Column("uuid", Text, nullable=False),
        # The large columns come last: the others are then on the row's first page.
        Column("envelope", LargeBinary, nullable=False),
        Column("body", LargeBinary, nullable=False),
        UniqueConstraint("stream_no", "key"),
        Index(
            "instep_entity_uuid",
            "stream_no",
            "uuid",
            sqlite_where=text("uuid <> ''"),
            postgresql_where=text("uuid <> ''"),
        ),
    )
    op.create_table(
        "instep_change",
        Column("cursor", _ID, primary_key=True),
        Column("stream_no", Integer, nullable=False),
        Column("key", Text, nullable=False),
        Column("class", Text, nullable=False),
        Column("change", Text, nullable=False),
        Column("kind", SmallInteger),
        Column("token", Text, nullable=False),
        Column("appended_at_us", BigInteger, nullable=False),
        Column("committed_at_us", BigInteger, nullable=False),
        Column("body", LargeBinary, nullable=False),
        Column("previous", LargeBinary),
        # A cursor is never assigned twice, even if the whole journal was trimmed.
        sqlite_autoincrement=True,
    )
    op.create_table(
        "instep_quarantine",
        Column("id", _ID, primary_key=True),
        Column("stream_no", Integer, ForeignKey("instep_stream.id"), nullable=False),
        Column("reason", Text, nullable=False),
        Column("token", Text),
        Column("received_at_us", BigInteger, nullable=False),
        Column("replayed_at_us", BigInteger),
        # Of token and bytes, so that a log read again does not fill the quarantine; NULL without
        # token.
        Column("digest", LargeBinary),
        Column("raw", LargeBinary, nullable=False),
        UniqueConstraint("stream_no", "digest"),
        sqlite_autoincrement=True,
    )
    if op.get_bind().dialect.name == "postgresql":
        for statement in (*_POSTGRESQL, _VIEW.format(**_POSTGRESQL_WORDS)):
            op.execute(statement)
    else:
        op.execute(_VIEW.format(**_SQLITE_WORDS))
