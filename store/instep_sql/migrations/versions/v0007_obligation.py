"""Sequences tell who sends in them and what they hold, so that counting needs no look at the inbox;
what is owed to the peers is kept until it was sent; delivered messages keep their digest.
"""

from alembic import op
from sqlalchemy import BigInteger, Column, ForeignKey, Integer, LargeBinary, Text

revision = "0007"
down_revision = "0006"

_COUNT = """
    UPDATE instep_sequence SET
      held_messages = (SELECT count(*) FROM instep_inbox AS i
                       WHERE i.sequence_no = instep_sequence.id AND i.stage = 0),
      held_bytes = (SELECT coalesce(sum(length(i.body)), 0) FROM instep_inbox AS i
                    WHERE i.sequence_no = instep_sequence.id AND i.stage = 0)
    WHERE id IN (SELECT sequence_no FROM instep_inbox WHERE stage = 0)
"""


def upgrade() -> None:
    # The one who sends; '' until something comes.
    op.add_column("instep_sequence", Column("peer", Text, nullable=False, server_default=""))
    # Behind gaps.
    for name in ("held_messages", "held_bytes"):
        op.add_column(
            "instep_sequence", Column(name, BigInteger, nullable=False, server_default="0")
        )
    op.execute(_COUNT)
    # NULL: not kept.
    op.add_column("instep_message", Column("digest", LargeBinary))
    op.create_index("instep_message_number", "instep_message", ["sequence_no", "number"])
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
