"""Stores as older versions left them: their schema, and rows of what they held."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import text

from instep_sql.engine.registry import dialect_of
from instep_sql.options import SqlOptions
from tests.instep.runtime.messages.intake_kit import SCOPE

Row = tuple[str, dict[str, Any]]
"""A statement and its values."""


def make(url: str, revision: str, content: Sequence[Row] = ()) -> None:
    """A store as the version of that revision left it."""
    engine = dialect_of(SqlOptions(url=url)).writer()
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", "instep_sql:migrations")
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        for statement, values in content:
            connection.execute(text(statement), values)
    engine.dispose()


def insert(table: str, **values: Any) -> Row:
    columns = ", ".join(f'"{name}"' for name in values)
    marks = ", ".join(f":{name}" for name in values)
    return f"INSERT INTO {table} ({columns}) VALUES ({marks})", values


def stream_row(stream: str, phase: str, **changes: Any) -> Row:
    """A row of `instep_stream`, as of before 0006."""
    given = {
        "consumer": "east",
        "stream": stream,
        "position": "{}",
        "token": None,
        "appended_at_us": 0,
        "phase": phase,
        "attempt": 0,
        "ordinal": 0,
        "records": 0,
        "info": "{}",
        "deviations": "{}",
        "journal": "off",
        "updated_at_us": 5,
        **changes,
    }
    return insert("instep_stream", **given)


STREAM_1 = [
    stream_row(
        "s1",
        "aligned",
        position='{"token": "t9", "ordinal": 4}',
        token="t9",
        appended_at_us=9,
        attempt=1,
        ordinal=4,
        records=9,
    ),
    insert(
        "instep_entity",
        **{"stream_no": 1, "key": "a", "class": "NODE", "token": "t9", "partition": ""},
        offset=9,
        appended_at_us=9,
        lineage=0,
        attempt=1,
        proven=1,
        uuid="",
        envelope=b"",
        body=b"1",
    ),
]
SPEAKING = stream_row(
    "messages",
    "receiving",
    token="an owner",
    ordinal=77,
    records=3,
    info='{"id": "messages", "kind": "spoken"}',
    deviations='{"content-changed": 1}',
)
MESSAGE: dict[str, Any] = {
    "message_id": "m",
    "sender": "bob",
    "attributes": "{}",
    "received_at_us": 7,
    "body": b"{}",
}


def received(no: int) -> list[Row]:
    """Of the stream `no`: number 1 is delivered, 2 in quarantine, 4 held, and a sent one kept."""
    state = '{"next_number": 3, "received": [[1, 4], [2, 4]]}'
    kept = {**MESSAGE, "sequence_no": 1, "epoch": 0, "digest": b"", "kept_at_us": 7}
    kept["expires_at_us"] = 0
    failed = {"reason": "failed", "token": "2 m", "received_at_us": 7, "raw": b"{}"}
    return [
        insert(
            "instep_sequence",
            stream_no=no,
            scope=SCOPE,
            state=state,
            due_us=None,
            attempts=0,
            deliver_at_us=None,
            blocked=1,
            error="failed",
            updated_at_us=7,
        ),
        insert("instep_message", **MESSAGE, sequence_no=1, number=1, delivered_at_us=8),
        insert("instep_inbox", **kept, number=2, stage=2),
        insert("instep_inbox", **kept, number=4, stage=0),
        insert("instep_quarantine", **failed, stream_no=no, scope=SCOPE, inbox_no=1),
        insert("instep_outbox", stream_no=no, scope="t", next_number=3),
        insert(
            "instep_sent",
            outbox_no=1,
            number=2,
            entry=SENT,
            body=b"sent",
        ),
    ]


SENT = '{"number": 2, "id": "m2", "size_bytes": 4, "waiting_for": ["bob"]}'
AUDIT = stream_row("s1 audited at 5", "receiving")
