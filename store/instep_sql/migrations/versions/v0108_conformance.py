"""Which rules of its specification the peer of a consumer holds."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Text

revision = "0108"
down_revision = "0107"


def upgrade() -> None:
    op.create_table(
        "instep_conformance",
        Column("consumer", Text, primary_key=True),
        # As JSON, with what shows that a rule is broken. It is of the process that wrote it last.
        Column("report", Text, nullable=False),
    )
