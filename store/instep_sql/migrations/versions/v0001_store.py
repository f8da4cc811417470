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
        # The large columns last: what is asked of a row stands on its first page.
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
        # A cursor is never given twice, even when the whole journal was trimmed.
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
    op.execute("""
        CREATE VIEW instep_entities AS
        SELECT s.consumer, s.stream, e.key, e.class, e.uuid, e.token,
               strftime('%Y-%m-%dT%H:%M:%S', e.appended_at_us / 1000000, 'unixepoch')
                 || printf('.%06dZ', e.appended_at_us % 1000000) AS appended_at,
               e.attempt, e.proven,
               CAST(e.envelope AS TEXT) AS envelope, CAST(e.body AS TEXT) AS body
        FROM instep_entity AS e JOIN instep_stream AS s ON s.id = e.stream_no
    """)
