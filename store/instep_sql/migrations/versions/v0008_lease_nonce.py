"""A lease has a nonce for each take: an epoch may be given twice where a take was lost."""

from alembic import op
from sqlalchemy import Column, Text

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    # Empty: given up, or taken by an older version.
    op.add_column("instep_lease", Column("nonce", Text, nullable=False, server_default=""))
