"""Series of measurements (TR-548 3.9.2.6)."""

from alembic import op
from sqlalchemy import (
    BigInteger,
    Column,
    Integer,
    LargeBinary,
    SmallInteger,
    Text,
    UniqueConstraint,
)

revision = "0016"
down_revision = "0015"

_ID = BigInteger().with_variant(Integer, "sqlite")
_TIMES = {
    "sqlite": "strftime('%Y-%m-%dT%H:%M:%S', {0} / 1000000, 'unixepoch')"
    " || printf('.%06dZ', {0} % 1000000)",
    "postgresql": "timestamptz 'epoch' + {0} * interval '1 microsecond'",
}
_JSON = {"sqlite": "CAST({0} AS TEXT)", "postgresql": "instep_json({0})"}
_VIEW = """
    CREATE VIEW instep_measurements AS
    SELECT s.consumer, s.stream, m.series, m.key, m.class, {end} AS period_end,
           {begin} AS period_begin, m.length_us / 1e6 AS length_s, m.complete <> 0 AS complete,
           m.suspect <> 0 AS suspect, {stated} AS stated_at, {body} AS body
    FROM instep_measurement AS m JOIN instep_stream AS s ON s.id = m.stream_no
"""


def upgrade() -> None:
    op.create_table(
        "instep_measurement",
        Column("id", _ID, primary_key=True),
        Column("stream_no", Integer, nullable=False),
        Column("series", Text, nullable=False),
        # 0 where it is not stated: it tells series of one measured thing apart.
        Column("length_us", BigInteger, nullable=False),
        Column("end_us", BigInteger, nullable=False),
        # Of the statement.
        Column("key", Text, nullable=False),
        Column("class", Text, nullable=False),
        Column("complete", SmallInteger, nullable=False),
        Column("suspect", SmallInteger),
        Column("lineage", Integer, nullable=False),
        Column("appended_at_us", BigInteger, nullable=False),
        Column("body", LargeBinary, nullable=False),
        UniqueConstraint("stream_no", "series", "length_us", "end_us"),
    )
    name = op.get_bind().dialect.name
    op.execute(
        _VIEW.format(
            end=_TIMES[name].format("m.end_us"),
            begin=_TIMES[name].format("(m.end_us - m.length_us)"),
            stated=_TIMES[name].format("m.appended_at_us"),
            body=_JSON[name].format("m.body"),
        )
    )
