"""What a provider says of our reading of a stream (TR-548 3.18)."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Text

revision = "0106"
down_revision = "0105"


def upgrade() -> None:
    # As JSON; empty where the provider says nothing.
    op.add_column("instep_freshness", Column("monitor", Text, nullable=False, server_default=""))
