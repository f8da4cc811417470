"""Up to when a quiet stream is known to have been read whole."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column

revision = "0109"
down_revision = "0108"


def upgrade() -> None:
    # Of the clock of the process that says it; 0: it was not shown.
    op.add_column(
        "instep_freshness", Column("known_at_us", BigInteger, nullable=False, server_default="0")
    )
