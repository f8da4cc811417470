"""The store of 0.1.0."""

from __future__ import annotations

from collections.abc import Iterable

from alembic import op
from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Text,
    UniqueConstraint,
    text,
)

revision = "0100"
down_revision = None

# SQLite's rowid is an alias of INTEGER PRIMARY KEY only.
_ID = BigInteger().with_variant(Integer, "sqlite")


def upgrade() -> None:
    if _on_postgresql():
        _execute(_FUNCTIONS)
    _create_streams_and_entities()
    _create_journal()
    _create_receivers()
    _create_quarantine()
    _create_messages()
    _create_outboxes()
    _create_lease()
    # What a store keeps beside the entities and messages, if it is asked to.
    _create_definitions()
    _create_projections()


def _on_postgresql() -> bool:
    return op.get_bind().dialect.name == "postgresql"


def _execute(statements: Iterable[str]) -> None:
    for statement in statements:
        op.execute(text(statement))


def _partial_index(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    return Index(
        name, *columns, unique=unique, sqlite_where=text(where), postgresql_where=text(where)
    )


def _time(column: str) -> str:
    """SQL for a time that a column has in microseconds."""
    if _on_postgresql():
        return f"timestamptz 'epoch' + {column} * interval '1 microsecond'"
    return (
        f"strftime('%Y-%m-%dT%H:%M:%S', {column} / 1000000, 'unixepoch')"
        f" || printf('.%06dZ', {column} % 1000000)"
    )


def _json(column: str) -> str:
    """SQL for the JSON that a column has in bytes."""
    if _on_postgresql():
        return f"instep_json({column})"
    return f"CAST({column} AS TEXT)"


# --- Functions that views on PostgreSQL call ------------------------------------------------------

# Neither is PARALLEL SAFE: before version 17, a block with EXCEPTION fails in a parallel query
# ("cannot start subtransactions during a parallel operation").
_FUNCTIONS = (
    # A body that is not UTF-8 must not make the view fail for the others.
    """
    CREATE FUNCTION instep_text(bytes bytea) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL UNSAFE AS $$
    BEGIN
        RETURN convert_from(bytes, 'UTF8');
    EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
        RETURN NULL;
    END $$
    """,
    # Nor what is no JSON. The character NUL is JSON that jsonb cannot hold: it reads as U+FFFD.
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
)


# --- Streams and their entities -------------------------------------------------------------------


def _create_streams_and_entities() -> None:
    op.create_table(
        "instep_stream",
        Column("id", Integer, primary_key=True),
        Column("consumer", Text, nullable=False),
        Column("stream", Text, nullable=False),
        # `stream`, or `audit` for what a running audit keeps.
        Column("kind", Text, nullable=False),
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
        # No foreign key: PostgreSQL's check of each new row costs a third of the insert.
        Column("stream_no", Integer, nullable=False),
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
        _partial_index("instep_entity_uuid", "stream_no", "uuid", where="uuid <> ''"),
    )
    if _on_postgresql():
        # An update fits on the page of its row, so that no index is written.
        op.execute("ALTER TABLE instep_entity SET (fillfactor = 50)")
        # Each row of an upsert draws an id, also for an entity that exists.
        op.execute("ALTER SEQUENCE instep_entity_id_seq CACHE 1000")
    # Parts of entities of CHANGE_ONLY streams.
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
    # The keys of ended entities.
    op.create_table(
        "instep_tombstone",
        Column("id", _ID, primary_key=True),
        Column("stream_no", Integer, ForeignKey("instep_stream.id"), nullable=False),
        Column("key", Text, nullable=False),
        Column("uuid", Text, nullable=False),
        Column("lineage", Integer, nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("appended_at_us", BigInteger, nullable=False),
        UniqueConstraint("stream_no", "key"),
        Index("instep_tombstone_uuid", "stream_no", "uuid"),
        sqlite_autoincrement=True,
    )
    op.execute(f"""
    CREATE VIEW instep_streams AS
    SELECT s.consumer, s.stream, s.phase, s.attempt, s.token,
           {_time("nullif(s.appended_at_us, 0)")} AS appended_at, s.records,
           {_time("s.updated_at_us")} AS updated_at
    FROM instep_stream AS s WHERE s.kind = 'stream'
    """)
    op.execute(f"""
    CREATE VIEW instep_entities AS
    SELECT s.consumer, s.stream, e.key, e.class, e.uuid, e.token,
           {_time("e.appended_at_us")} AS appended_at, e.attempt, e.proven <> 0 AS proven,
           {_json("e.envelope")} AS envelope, {_json("e.body")} AS body
    FROM instep_entity AS e JOIN instep_stream AS s ON s.id = e.stream_no
    """)


# --- The journal of changes -----------------------------------------------------------------------

# Subscribers continue from the highest cursor they have seen. So cursors are assigned in the order
# of the commits, without gaps: a writer of changes locks the row of the last cursor, and others
# wait for its commit. SQLite has one writer at a time anyway.
_CURSORS = (
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
    # A commit that changes nothing notifies nobody; listeners read on from their own cursor.
    """
    CREATE FUNCTION instep_change_end() RETURNS trigger
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
    """
    CREATE TRIGGER instep_change_begin BEFORE INSERT ON instep_change
    FOR EACH STATEMENT EXECUTE FUNCTION instep_change_begin()
    """,
    """
    CREATE TRIGGER instep_change_end AFTER INSERT ON instep_change
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION instep_change_end()
    """,
)


def _create_journal() -> None:
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
        # Of the record that caused the change: its event time (TR-548 3.11.1), parent address, and
        # members that are not known. NULL: no record did.
        Column("envelope", LargeBinary),
        Column("body", LargeBinary, nullable=False),
        Column("previous", LargeBinary),
        # A cursor is never assigned twice, even if the whole journal was trimmed.
        sqlite_autoincrement=True,
    )
    if _on_postgresql():
        _execute(_CURSORS)
    # A journal without bodies keeps an empty one.
    op.execute(f"""
    CREATE VIEW instep_changes AS
    SELECT c.cursor, s.consumer, s.stream, c.key, c.class, c.change,
           CASE c.kind WHEN 1 THEN 'CREATE_UPDATE' WHEN 2 THEN 'DELETE' WHEN 3 THEN 'TOMBSTONE' END
           AS kind, c.token, {_time("c.appended_at_us")} AS appended_at,
           {_time("c.committed_at_us")} AS committed_at, {_json("c.envelope")} AS envelope,
           {_json("nullif(c.body, '')")} AS body, {_json("c.previous")} AS previous
    FROM instep_change AS c JOIN instep_stream AS s ON s.id = c.stream_no
    """)


# --- Receivers of numbered messages, and their sequences ------------------------------------------


def _create_receivers() -> None:
    op.create_table(
        "instep_receiver",
        Column("id", Integer, primary_key=True),
        Column("consumer", Text, nullable=False, unique=True),
        # Of the listener.
        Column("kind", Text, nullable=False),
        # The process that receives; every other one is fenced.
        Column("owner", Text, nullable=False),
        # The number that the owner has given to its last transaction.
        Column("commits", BigInteger, nullable=False),
        Column("messages", BigInteger, nullable=False),
        Column("deviations", Text, nullable=False),
        Column("updated_at_us", BigInteger, nullable=False),
    )
    op.create_table(
        "instep_sequence",
        Column("id", _ID, primary_key=True),
        Column("receiver_no", Integer, ForeignKey("instep_receiver.id"), nullable=False),
        Column("scope", Text, nullable=False),
        # The one who sends; '' until something comes.
        Column("peer", Text, nullable=False),
        # Behind gaps. Kept here, so that counting needs no look at the inbox.
        Column("held_messages", BigInteger, nullable=False),
        Column("held_bytes", BigInteger, nullable=False),
        # When a gap or an expiry wants attention.
        Column("due_us", BigInteger),
        # When the handler may be given the messages that wait for it; NULL: none wait, or blocked.
        Column("deliver_at_us", BigInteger),
        Column("attempts", Integer, nullable=False),
        Column("blocked", SmallInteger, nullable=False),
        Column("error", Text, nullable=False),
        # The highest id that a delivered message can have of a sequence that was forgotten. NULL:
        # no message that was delivered before the sequence was last forgotten is kept.
        Column("last_message", BigInteger),
        Column("updated_at_us", BigInteger, nullable=False),
        # Ranges and positions; what is held is in the inbox.
        Column("state", Text, nullable=False),
        UniqueConstraint("receiver_no", "scope"),
        _partial_index("instep_sequence_due", "receiver_no", "due_us", where="due_us IS NOT NULL"),
        _partial_index(
            "instep_sequence_deliver",
            "receiver_no",
            "deliver_at_us",
            where="deliver_at_us IS NOT NULL",
        ),
        _partial_index("instep_sequence_blocked", "receiver_no", where="blocked = 1"),
        sqlite_autoincrement=True,
    )
    if _on_postgresql():
        # An index in the order of the database's language finds no beginnings of texts.
        ops = {"scope": "text_pattern_ops"}
        columns = ["receiver_no", "scope"]
        op.create_index("instep_sequence_scope", "instep_sequence", columns, postgresql_ops=ops)
    op.create_table(
        "instep_sequence_request",
        Column("id", _ID, primary_key=True),
        Column("sequence_no", _ID, nullable=False),
        Column("action", Text, nullable=False),
        Column("number", BigInteger),
    )
    # What is owed to peers until it was sent.
    op.create_table(
        "instep_obligation",
        Column("receiver_no", Integer, ForeignKey("instep_receiver.id"), primary_key=True),
        # Given by the receiver, growing.
        Column("number", BigInteger, primary_key=True, autoincrement=False),
        Column("scope", Text, nullable=False),
        Column("peer", Text, nullable=False),
        # What to tell, as JSON.
        Column("effect", Text, nullable=False),
    )


# --- Quarantine -----------------------------------------------------------------------------------


def _create_quarantine() -> None:
    op.create_table(
        "instep_quarantine",
        Column("id", _ID, primary_key=True),
        # Of a record.
        Column("stream_no", Integer, ForeignKey("instep_stream.id")),
        # Of a message that a handler failed on: its receiver, its scope, its row in the inbox.
        Column("receiver_no", Integer, ForeignKey("instep_receiver.id")),
        Column("scope", Text),
        Column("inbox_no", BigInteger),
        Column("reason", Text, nullable=False),
        Column("token", Text),
        Column("received_at_us", BigInteger, nullable=False),
        Column("replayed_at_us", BigInteger),
        # Of token and bytes, so that a log read again does not fill the quarantine; NULL without
        # token.
        Column("digest", LargeBinary),
        Column("raw", LargeBinary, nullable=False),
        UniqueConstraint("stream_no", "digest"),
        Index("instep_quarantine_receiver", "receiver_no"),
        sqlite_autoincrement=True,
    )


# --- Messages -------------------------------------------------------------------------------------


def _create_messages() -> None:
    op.create_table(
        "instep_inbox",
        Column("id", _ID, primary_key=True),
        Column("sequence_no", _ID, nullable=False),
        # Counts the resets of the sequence: numbers compare only within one epoch.
        Column("epoch", Integer, nullable=False),
        Column("number", BigInteger, nullable=False),
        # 0 held behind a gap, 1 waits for the handler, 2 the handler has failed.
        Column("stage", SmallInteger, nullable=False),
        Column("message_id", Text, nullable=False),
        Column("sender", Text, nullable=False),
        Column("attributes", Text, nullable=False),
        Column("digest", LargeBinary, nullable=False),
        Column("expires_at_us", BigInteger, nullable=False),
        Column("received_at_us", BigInteger, nullable=False),
        Column("buffered_at_us", BigInteger, nullable=False),
        Column("body", LargeBinary, nullable=False),
        # A JSON array, with contents in base64. NULL: none, as of nearly all messages.
        Column("attachments", Text),
        _partial_index(
            "instep_inbox_number",
            "sequence_no",
            "epoch",
            "number",
            where="number >= 0",
            unique=True,
        ),
        Index("instep_inbox_stage", "sequence_no", "stage", "epoch", "number", "id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "instep_message",
        Column("id", _ID, primary_key=True),
        Column("sequence_no", _ID, nullable=False),
        Column("number", BigInteger, nullable=False),
        Column("message_id", Text, nullable=False),
        Column("sender", Text, nullable=False),
        Column("attributes", Text, nullable=False),
        Column("digest", LargeBinary),
        Column("received_at_us", BigInteger, nullable=False),
        Column("delivered_at_us", BigInteger, nullable=False),
        Column("body", LargeBinary, nullable=False),
        # As in the inbox.
        Column("attachments", Text),
        # By number first: senders that have sent about as many messages write into the same pages
        # of the index, and not each into one of its own.
        Index("instep_message_number", "number", "sequence_no"),
        # Keeps the order of delivery even if all earlier rows were removed.
        sqlite_autoincrement=True,
    )
    # One row: the size of all delivered messages up to an id, so that it can be bounded.
    op.create_table(
        "instep_message_size",
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("counted_to", BigInteger, nullable=False),
        Column("size_bytes", BigInteger, nullable=False),
    )
    op.execute("INSERT INTO instep_message_size (id, counted_to, size_bytes) VALUES (1, 0, 0)")
    # Identifiers of messages without a number.
    op.create_table(
        "instep_seen",
        Column("id", _ID, primary_key=True),
        Column("sequence_no", _ID, nullable=False),
        Column("digest", LargeBinary, nullable=False),
        Column("seen_at_us", BigInteger, nullable=False),
        UniqueConstraint("sequence_no", "digest"),
        sqlite_autoincrement=True,
    )
    # What a handler replied, so that a request that comes again gets the same.
    op.create_table(
        "instep_reply",
        Column("id", _ID, primary_key=True),
        Column("sequence_no", _ID, nullable=False),
        Column("number", BigInteger, nullable=False),
        Column("replied_at_us", BigInteger, nullable=False),
        Column("body", LargeBinary, nullable=False),
        UniqueConstraint("sequence_no", "number"),
        sqlite_autoincrement=True,
    )
    body = "instep_text(m.body)" if _on_postgresql() else "CAST(m.body AS TEXT)"
    op.execute(f"""
    CREATE VIEW instep_messages AS
    SELECT m.id AS cursor, r.consumer, q.scope AS stream, m.number, m.message_id AS id, m.sender,
           {_time("m.received_at_us")} AS received_at,
           {_time("m.delivered_at_us")} AS delivered_at, {body} AS body,
           CAST(m.attachments AS {"jsonb" if _on_postgresql() else "TEXT"}) AS attachments
    FROM instep_message AS m
    JOIN instep_sequence AS q ON q.id = m.sequence_no
    JOIN instep_receiver AS r ON r.id = q.receiver_no
    """)


def _create_outboxes() -> None:
    op.create_table(
        "instep_outbox",
        Column("id", _ID, primary_key=True),
        Column("receiver_no", Integer, ForeignKey("instep_receiver.id"), nullable=False),
        Column("scope", Text, nullable=False),
        Column("next_number", BigInteger, nullable=False),
        # A recipient of our messages -> the first number of which it was one, as JSON.
        Column("parties", Text, nullable=False),
        UniqueConstraint("receiver_no", "scope"),
    )
    op.create_table(
        "instep_sent",
        Column("outbox_no", _ID, primary_key=True, autoincrement=False),
        Column("number", BigInteger, primary_key=True, autoincrement=False),
        Column("entry", Text, nullable=False),
        Column("body", LargeBinary, nullable=False),
    )


# --- The lease of a consumer: which of several processes may write --------------------------------


def _create_lease() -> None:
    op.create_table(
        "instep_lease",
        Column("consumer", Text, primary_key=True),
        # Grows with each holder; a transaction with another epoch fails.
        Column("epoch", BigInteger, nullable=False),
        # Of each take: an epoch may be given twice where a take was lost. Empty: given up.
        Column("nonce", Text, nullable=False),
        # Grows with each transaction of the holder.
        Column("beat", BigInteger, nullable=False),
        # Empty: nobody.
        Column("holder", Text, nullable=False),
        Column("lease_s", Float, nullable=False),
        Column("taken_at_us", BigInteger, nullable=False),
        # The epoch whose holder was asked to hand over.
        Column("asked_epoch", BigInteger, nullable=False),
    )


# --- What else a store keeps, with the definition that it was built from --------------------------


def _create_definitions() -> None:
    op.create_table(
        "instep_projection",
        Column("name", Text, primary_key=True),
        Column("definition", Text, nullable=False),
    )


# --- The user's own tables ------------------------------------------------------------------------


def _create_projections() -> None:
    # Entities that were changed and are not projected anew yet.
    op.create_table(
        "instep_unprojected",
        Column("stream_no", Integer, nullable=False),
        Column("name", Text, nullable=False),
        Column("entity_id", _ID, nullable=False),
        PrimaryKeyConstraint("stream_no", "name", "entity_id"),
        sqlite_with_rowid=False,
    )
    # Rows that could not be written.
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
