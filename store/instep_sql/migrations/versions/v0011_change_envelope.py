"""The journal keeps the envelope of the record that caused a change: its event time (TR-548
3.11.1), parent address, and members that are not known.
"""

from alembic import op
from sqlalchemy import Column, LargeBinary

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    # NULL: not kept.
    op.add_column("instep_change", Column("envelope", LargeBinary))
