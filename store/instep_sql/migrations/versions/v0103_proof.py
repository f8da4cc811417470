"""Each entity carries its proof (A22), and the quarantine has one row a digest (A11)."""

from __future__ import annotations

from hashlib import blake2b

from alembic import op
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Text,
    text,
)

revision = "0103"
down_revision = "0100"

_ID = BigInteger().with_variant(Integer, "sqlite")
_PAGE = 100

# The reason of one that is singled out, or one that covers more than one entity. Of several, the
# one that ends last.
_REASON = """
    coalesce(
        (SELECT u.reason FROM instep_unproven AS u
         WHERE u.stream_no = e.stream_no AND u.key IN ('', e.key)
           AND (e.proven = 0 AND u.key <> ''
                OR u.key = '' AND u.attempt > e.attempt
                   AND (u.class = '' OR u.class = e.class)
                   AND (u.partition IS NULL OR e.token = '' OR (u.partition = e.partition
                        AND NOT (u.met_before <> 0 AND u.lineage = e.lineage AND u."offset" >= 0
                                 AND e."offset" > u."offset"))))
         ORDER BY CASE u.reason WHEN 'not-offered' THEN 0 WHEN 'unreadable-record' THEN 1
                       WHEN 'unreadable-element' THEN 2 WHEN 'empty-answer' THEN 3 ELSE 4 END
         LIMIT 1),
        CASE WHEN e.proven = 0 THEN 'no-resource' END)
"""


def upgrade() -> None:
    _add_to_quarantine()
    op.create_table(
        "instep_unproven",
        Column("id", _ID, primary_key=True),
        Column("stream_no", Integer, nullable=False),
        # '' for a reason that covers a stream, a partition or a class.
        Column("key", Text, nullable=False),
        Column("class", Text, nullable=False),
        # NULL: any.
        Column("partition", Text),
        Column("reason", Text, nullable=False),
        Column("digest", Text, nullable=False),
        # It covers the entities with a lower mark.
        Column("attempt", Integer, nullable=False),
        Column("offset", BigInteger, nullable=False),
        Column("lineage", Integer, nullable=False),
        Column("met_before", SmallInteger, nullable=False),
        Column("since_us", BigInteger, nullable=False),
        # Whether the journal has said it.
        Column("told", SmallInteger, nullable=False),
        Index("instep_unproven_key", "stream_no", "key"),
    )
    op.create_table(
        "instep_proof",
        Column("stream_no", Integer, nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("kind", Text, nullable=False),
        Column("at_us", BigInteger, nullable=False),
        PrimaryKeyConstraint("stream_no", "attempt"),
    )
    op.create_table(
        "instep_sample",
        Column("stream_no", Integer, nullable=False),
        Column("deviation", Text, nullable=False),
        Column("raw", LargeBinary, nullable=False),
        Column("at_us", BigInteger, nullable=False),
        PrimaryKeyConstraint("stream_no", "deviation"),
    )
    create_view()


def _add_to_quarantine() -> None:
    for column in (
        Column("times", BigInteger, nullable=False, server_default="1"),
        Column("last_at_us", BigInteger),
        Column("key", Text),
        Column("accepted_at_us", BigInteger),
    ):
        op.add_column("instep_quarantine", column)
    connection = op.get_bind()
    _digest_anew(connection)
    connection.execute(text("UPDATE instep_quarantine SET last_at_us = received_at_us"))


def _digest_anew(connection: Connection) -> None:
    """A digest was of token and bytes, and of a record without token there was none."""
    connection.execute(text("UPDATE instep_quarantine SET digest = NULL"))
    seen: dict[tuple[int, bytes], int] = {}
    after = -1
    find = text("""
        SELECT id, stream_no, raw FROM instep_quarantine
        WHERE stream_no IS NOT NULL AND id > :after ORDER BY id LIMIT :size
    """)
    while rows := connection.execute(find, {"after": after, "size": _PAGE}).all():
        for row in rows:
            digest = blake2b(bytes(row.raw), digest_size=16).digest()
            first = seen.setdefault((row.stream_no, digest), row.id)
            if first == row.id:
                values = {"id": row.id, "digest": digest}
                connection.execute(
                    text("UPDATE instep_quarantine SET digest = :digest WHERE id = :id"), values
                )
            else:
                connection.execute(
                    text("UPDATE instep_quarantine SET times = times + 1 WHERE id = :id"),
                    {"id": first},
                )
                connection.execute(
                    text("DELETE FROM instep_quarantine WHERE id = :id"), {"id": row.id}
                )
        after = rows[-1].id


def create_view() -> None:
    """Make the view anew; 0105 does so too, for a store whose view shows another reason."""
    on_postgresql = op.get_bind().dialect.name == "postgresql"
    replace = "CREATE OR REPLACE" if on_postgresql else "CREATE"
    if not on_postgresql:
        op.execute("DROP VIEW instep_entities")
    by_mark = "e.proven <> 0 AND p.at_us >= e.appended_at_us"
    proven_at_us = f"CASE WHEN {by_mark} THEN p.at_us ELSE e.appended_at_us END"
    op.execute(f"""
    {replace} VIEW instep_entities AS
    SELECT s.consumer, s.stream, e.key, e.class, e.uuid, e.token,
           {_time("e.appended_at_us")} AS appended_at, e.attempt,
           ({_REASON}) IS NULL AS proven,
           {_json("e.envelope")} AS envelope, {_json("e.body")} AS body,
           {_time(f"({proven_at_us})")} AS proven_at,
           CASE WHEN {by_mark} THEN p.kind
                WHEN e.token = '' THEN 'baseline' ELSE 'record' END AS proven_by,
           ({_REASON}) AS unproven
    FROM instep_entity AS e JOIN instep_stream AS s ON s.id = e.stream_no
    LEFT JOIN instep_proof AS p ON p.stream_no = e.stream_no AND p.attempt = e.attempt
    """)


def _time(column: str) -> str:
    if op.get_bind().dialect.name == "postgresql":
        return f"timestamptz 'epoch' + {column} * interval '1 microsecond'"
    return (
        f"strftime('%Y-%m-%dT%H:%M:%S', {column} / 1000000, 'unixepoch')"
        f" || printf('.%06dZ', {column} % 1000000)"
    )


def _json(column: str) -> str:
    if op.get_bind().dialect.name == "postgresql":
        return f"instep_json({column})"
    return f"CAST({column} AS TEXT)"
