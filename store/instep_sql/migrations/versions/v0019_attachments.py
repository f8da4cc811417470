"""Messages may have attachments: a JSON array, with their contents in base64."""

from alembic import op
from sqlalchemy import Column, Text

revision = "0019"
down_revision = "0018"

_VIEW = """
    {create} VIEW instep_messages AS
    SELECT m.id AS cursor, r.consumer, q.scope AS stream, m.number, m.message_id AS id, m.sender,
           {received} AS received_at, {delivered} AS delivered_at, {body} AS body,
           {attachments} AS attachments
    FROM instep_message AS m
    JOIN instep_sequence AS q ON q.id = m.sequence_no
    JOIN instep_receiver AS r ON r.id = q.receiver_no
"""
_SQLITE_TIME = (
    "strftime('%Y-%m-%dT%H:%M:%S', {at} / 1000000, 'unixepoch') || printf('.%06dZ', {at} % 1000000)"
)
_POSTGRESQL_TIME = "timestamptz 'epoch' + {at} * interval '1 microsecond'"


def upgrade() -> None:
    # NULL: none, as of nearly all messages.
    for table in ("instep_inbox", "instep_message"):
        op.add_column(table, Column("attachments", Text))
    if op.get_bind().dialect.name == "postgresql":
        # Replaced, not dropped: views of users may build on it.
        view = _view("CREATE OR REPLACE", _POSTGRESQL_TIME, "instep_text(m.body)", "jsonb")
    else:
        op.execute("DROP VIEW instep_messages")
        view = _view("CREATE", _SQLITE_TIME, "CAST(m.body AS TEXT)", "TEXT")
    op.execute(view)


def _view(create: str, time: str, body: str, json: str) -> str:
    return _VIEW.format(
        create=create,
        received=time.format(at="m.received_at_us"),
        delivered=time.format(at="m.delivered_at_us"),
        body=body,
        attachments=f"CAST(m.attachments AS {json})",
    )
