"""The table of an audit's marks, and the SQL statements that compare the marks with the entities.

A mark and a row describe one entity when they have the same key. On a stream that is joined with a
baseline, the key of a mark is the uuid, because a row may be renamed while the audit runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    TextClause,
    text,
)
from sqlalchemy import Text as Words

from instep.model.ordering import SQL_PLACE, Place, supersedes_sql

__all__ = [
    "ABANDONED",
    "COUNTS",
    "FINDINGS",
    "FORGET",
    "MARK",
    "OPEN",
    "REMOVE",
    "REOPEN",
    "TABLE",
    "AuditStatements",
]

TABLE: Final = Table(
    "instep_audit_mark",
    MetaData(),
    Column("audit", BigInteger, primary_key=True),
    Column("key", Words, primary_key=True),
    Column("stream_no", Integer, nullable=False),
    # The key as the log or the store has it.
    Column("name", Words, nullable=False),
    Column("class", Words, nullable=False),
    # Empty for a mark made from a GET.
    Column("token", Words, nullable=False),
    Column("partition", Words, nullable=False),
    Column("offset", BigInteger, nullable=False),
    Column("appended_at_us", BigInteger, nullable=False),
    Column("uuid", Words, nullable=False),
    # 0: exists; 1: ended; -1: changed, the body is not known and is not compared.
    Column("ends", Integer, nullable=False),
    # 0 open, 1 equal to the stored entity, 2 suspect, 3 proven wrong, 4 repaired; within a
    # transaction 5 new
    Column("state", Integer, nullable=False),
    Column("verdict", Words, nullable=False),
    Column("seen", Words, nullable=False),
    Column("envelope", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Index("instep_audit_mark_state", "audit", "state"),
    Index(
        "instep_audit_mark_uuid",
        "audit",
        "uuid",
        sqlite_where=text("uuid <> ''"),
        postgresql_where=text("uuid <> ''"),
    ),
)

# A mark from a GET yields to every record: the records that are read follow the committed position,
# and the GET agrees with what was committed before them. An end yields too, as it does in the
# store, where it leaves nothing to compare with. All marks are of one reading, so of one lineage.
_MARKED: Final = Place.of("m", SQL_PLACE)._replace(lineage="")
MARK: Final = f"""
INSERT INTO instep_audit_mark AS m (
    audit, key, stream_no, name, class, token, partition, "offset", appended_at_us, uuid, ends,
    state, verdict, seen, envelope, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 5, '', '', ?, ?)
ON CONFLICT (audit, key) DO UPDATE SET
  name = excluded.name, class = excluded.class, token = excluded.token,
  partition = excluded.partition, "offset" = excluded."offset",
  appended_at_us = excluded.appended_at_us, uuid = excluded.uuid, ends = excluded.ends,
  state = 5, verdict = '', seen = '', envelope = excluded.envelope, body = excluded.body
WHERE CASE
  WHEN m.token = '' OR excluded.token = '' THEN m.token = ''
  ELSE m.ends = 1 OR NOT {supersedes_sql(_MARKED, Place.of("excluded", SQL_PLACE))} END
"""
OPEN: Final = text("UPDATE instep_audit_mark SET state = 0 WHERE audit = :audit AND state = 5")
FORGET: Final = text("""
DELETE FROM instep_audit_mark WHERE audit = :audit AND state = 2 AND appended_at_us = 0
""")
REOPEN: Final = text("""
UPDATE instep_audit_mark SET state = 0, verdict = '', seen = '' WHERE audit = :audit AND state = 2
""")
FINDINGS: Final = text("""
SELECT key, name, class, verdict, token, state FROM instep_audit_mark
WHERE audit = :audit AND state >= 3 AND key > :after ORDER BY key LIMIT :size
""")
COUNTS: Final = text("""
SELECT state, verdict, ends, count(*) AS many FROM instep_audit_mark
WHERE audit = :audit GROUP BY state, verdict, ends
""")
REMOVE: Final = text("DELETE FROM instep_audit_mark WHERE audit = :audit")
ABANDONED: Final = text("DELETE FROM instep_audit_mark WHERE audit < :before_us")

_BY_KEY: Final = ("e.key = m.key",)
# Two conditions instead of one with OR: each is looked up in an index of its own.
_BY_UUID: Final = ("e.uuid <> '' AND e.uuid = m.key", "e.uuid = '' AND e.key = m.key")
_SINGLE: Final = """
(SELECT count(*) FROM instep_entity e WHERE e.stream_no = :no AND e.uuid <> '' AND e.uuid = m.key
 AND e.class = m.class) < 2
"""
_PASSED: Final = Place("", ":partition", ":offset", ":appended_at_us")
_SAME: Final = "e.class = m.class AND e.body = m.body"


class AuditStatements:
    """The SQL statements that compare marks with the rows of entities."""

    def __init__(
        self, matches: Sequence[str], key: str, members: str, classes: str, single: str
    ) -> None:
        """Build the statements.

        Args:
            matches: SQL conditions, each of which says that the mark `m` belongs to the row `e`.
            key: SQL for the key that the mark of the row `e` has.
            members: SQL for the set bound to `:keys`.
            classes: SQL for the set bound to `:classes`.
            single: SQL condition that says that the mark `m` belongs to one row at most.
        """
        rows = [f"FROM instep_entity e WHERE e.stream_no = :no AND {match}" for match in matches]

        def exists(condition: str) -> str:
            ways = [f"EXISTS (SELECT 1 {row} AND {condition})" for row in rows]
            return f"({' OR '.join(ways)})"

        stored = exists("e.id > 0")
        token = ", ".join(f"(SELECT e.token {row})" for row in rows)
        body = ", ".join(f"(SELECT e.body {row} AND e.class = m.class)" for row in rows)
        unchanged = f"""
            (verdict = 'missing' AND NOT {stored}
             OR verdict = 'bogus' AND {exists("e.token = m.seen")}
             OR verdict = 'stale' AND {exists(f"e.token = m.seen AND NOT ({_SAME})")})
        """
        # A mark that agrees no longer needs its body: without bodies the table stays small.
        self.agree: TextClause = text(f"""
            UPDATE instep_audit_mark AS m SET state = 1, envelope = :nothing, body = :nothing
            WHERE audit = :audit AND state = :state
              AND (ends = 0 AND {exists(_SAME)} OR ends = 1 AND NOT {stored})
        """)
        """Settles the marks that equal the stored entity byte by byte."""
        self.pairs: TextClause = text(f"""
            SELECT m.key, m.body AS marked, coalesce({body}, NULL) AS stored
            FROM instep_audit_mark m
            WHERE m.audit = :audit AND m.state = :state AND m.ends = 0 AND m.key > :after
            ORDER BY m.key LIMIT :size
        """)
        """Selects the bodies of the marks that differ, page by page; NULL where nothing
        is stored.
        """
        # IS TRUE makes PostgreSQL hash the set once. Without it, PostgreSQL estimates one row and
        # joins.
        self.right: TextClause = text(f"""
            UPDATE instep_audit_mark SET state = 1, envelope = :nothing, body = :nothing
            WHERE audit = :audit AND state = :state AND (key IN {members}) IS TRUE
        """)
        self.suspect: TextClause = text(f"""
            UPDATE instep_audit_mark AS m SET
              state = 2, seen = coalesce({token}, ''),
              verdict = CASE WHEN ends = 1 THEN 'bogus'
                             WHEN {stored} THEN 'stale' ELSE 'missing' END
            WHERE audit = :audit AND state = 0 AND ends >= 0 AND {single}
              AND (token = '' OR partition = :partition AND NOT {supersedes_sql(_MARKED, _PASSED)})
        """)
        """Marks as suspect what differs, up to an offset of one partition."""
        unmarked = f"""
            e.stream_no = :no AND NOT EXISTS (
                SELECT 1 FROM instep_audit_mark m WHERE m.audit = :audit AND m.key = {key})
        """
        self.suspect_unmarked: TextClause = text(f"""
            INSERT INTO instep_audit_mark (
                audit, key, stream_no, name, class, token, partition, "offset", appended_at_us,
                uuid, ends, state, verdict, seen, envelope, body)
            SELECT :audit, {key}, e.stream_no, e.key, e.class, e.token, '', -1, 0,
                   e.uuid, 1, 2, 'bogus', e.token, :nothing, :nothing
            FROM instep_entity e
            WHERE {unmarked} AND (:all_classes = 1 OR e.class IN {classes})
        """)
        self.unproven: TextClause = text(f"""
            SELECT count(*) FROM instep_entity e
            WHERE {unmarked} AND e.class NOT IN {classes}
        """)
        self.attest: TextClause = text(f"""
            INSERT INTO instep_proof (stream_no, attempt, kind, at_us)
            SELECT :no, :attempt, 'audit', :audit
            WHERE NOT EXISTS (
                SELECT 1 FROM instep_entity e
                WHERE e.stream_no = :no AND e.attempt = :attempt AND e.appended_at_us <= :audit
                  AND NOT EXISTS (
                    SELECT 1 FROM instep_audit_mark m
                    WHERE m.audit = :audit AND m.key = {key} AND m.ends = 0 AND m.state IN (1, 4)))
            ON CONFLICT (stream_no, attempt) DO UPDATE
            SET kind = excluded.kind, at_us = excluded.at_us
            WHERE instep_proof.at_us < excluded.at_us
        """)
        """Proves the entities of an attempt, where the audit has found each of them right (A22).
        What came after it began is proven by its record.
        """
        self.prove: TextClause = text(f"""
            UPDATE instep_audit_mark AS m SET state = 3
            WHERE audit = :audit AND state = 2 AND (:bogus = 1 OR verdict <> 'bogus')
              AND (:missing = 1 OR verdict <> 'missing') AND {unchanged}
        """)
        self.proven: TextClause = text(f"""
            SELECT m.* FROM instep_audit_mark m
            WHERE audit = :audit AND state = 3 AND key > :after AND {unchanged}
            ORDER BY key LIMIT :size
        """)
        ids = " UNION ALL ".join(
            f"""
            SELECT e.id FROM instep_audit_mark m JOIN instep_entity e
              ON e.stream_no = :no AND {match}
            WHERE m.audit = :audit AND m.key IN {members}
            """
            for match in matches
        )
        self.disown: TextClause = text(f"UPDATE instep_entity SET lineage = 0 WHERE id IN ({ids})")
        self.repaired: TextClause = text(
            f"UPDATE instep_audit_mark SET state = 4 WHERE audit = :audit AND key IN {members}"
        )

    @staticmethod
    @lru_cache(maxsize=8)
    def of(members: str, classes: str, *, by_uuid: bool) -> AuditStatements:
        """The statements for marks whose key is the entity-key, or with `by_uuid` the uuid where
        the entity has one.
        """
        if by_uuid:
            key = "CASE WHEN e.uuid <> '' THEN e.uuid ELSE e.key END"
            return AuditStatements(_BY_UUID, key, members, classes, _SINGLE)
        return AuditStatements(_BY_KEY, "e.key", members, classes, "true")
