"""Delivered messages are found by number first: senders that have sent about as many messages write
into the same pages of the index, and not each into one of its own. A forgotten sequence keeps the
highest id that a message of it can have.
"""

from alembic import op
from sqlalchemy import BigInteger, Column

revision = "0018"
down_revision = "0017"

_LAST = """
    UPDATE instep_sequence SET last_message =
      (SELECT max(m.id) FROM instep_message AS m WHERE m.sequence_no = instep_sequence.id)
"""


def upgrade() -> None:
    # NULL: no message that was delivered before the sequence was last forgotten is kept.
    op.add_column("instep_sequence", Column("last_message", BigInteger))
    op.execute(_LAST)
    op.drop_index("instep_message_number", "instep_message")
    op.create_index("instep_message_number", "instep_message", ["number", "sequence_no"])
