"""Episodes of alarms (TR-548 4)."""

from alembic import op
from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    SmallInteger,
    Text,
    UniqueConstraint,
    text,
)

revision = "0015"
down_revision = "0014"

_ID = BigInteger().with_variant(Integer, "sqlite")
_TEXTS = (
    *("severity", "service_affect", "info", "condition", "condition_normalized"),
    *("detector_type", "detector_native_id", "detector_uuid", "measured_class"),
    *("measured_native_id", "measured_local_id", "node_uuid"),
)
_TIMES = {
    "sqlite": "strftime('%Y-%m-%dT%H:%M:%S', {0} / 1000000, 'unixepoch')"
    " || printf('.%06dZ', {0} % 1000000)",
    "postgresql": "timestamptz 'epoch' + {0} * interval '1 microsecond'",
}
_ALARMS = """
    CREATE VIEW instep_alarms AS
    SELECT s.consumer, s.stream, a.key, a.number, a.condition, a.condition_normalized, a.state,
           a.severity, a.worst_severity, a.service_affect, a.acknowledged, a.info,
           {raised} AS raised_at, {start} AS raised_from, a.raised_spread, a.raised_precision,
           {first} AS first_raised_at, {stated} AS last_stated_at,
           {cleared} AS cleared_at, a.cleared_spread, a.cleared_precision, a.ended_by,
           (a.cleared_at_us - a.raised_at_us) / 1e6 AS duration_s,
           a.flapping_count, a.severity_changes, a.intermittent_count, a.statements,
           a.reduced AS reduced_fidelity, a.measured_class, a.measured_uuid,
           EXISTS (SELECT 1 FROM instep_stream AS o JOIN instep_entity AS e ON e.stream_no = o.id
                   WHERE o.consumer = s.consumer AND e.uuid = a.measured_uuid
                     AND e.uuid <> '') AS measured_known,
           a.measured_native_id, a.measured_local_id, a.node_uuid, a.detector_native_id,
           a.detector_uuid
    FROM instep_alarm AS a JOIN instep_stream AS s ON s.id = a.stream_no WHERE a.event = 0
"""
_EVENTS = """
    CREATE VIEW instep_alarm_events AS
    SELECT s.consumer, s.stream, a.key, a.number, a.condition, a.condition_normalized,
           a.detector_type, {raised} AS occurred_at, {start} AS occurred_from,
           a.raised_spread AS spread, a.raised_precision AS "precision", a.measured_class,
           a.measured_uuid, a.measured_native_id, a.measured_local_id, a.node_uuid,
           a.detector_native_id, a.detector_uuid
    FROM instep_alarm AS a JOIN instep_stream AS s ON s.id = a.stream_no WHERE a.event = 1
"""


def upgrade() -> None:
    op.create_table(
        "instep_alarm",
        Column("id", _ID, primary_key=True),
        Column("stream_no", Integer, nullable=False),
        Column("key", Text, nullable=False),
        # Counts the episodes and events of a detector.
        Column("number", Integer, nullable=False),
        Column("event", SmallInteger, nullable=False),
        # CLEAR when it is over; `last_state` is the one before.
        Column("state", Text, nullable=False),
        Column("last_state", Text, nullable=False),
        Column("acknowledged", SmallInteger),
        Column("worst_severity", Text),
        Column("severity_changes", Integer, nullable=False),
        Column("intermittent_count", Integer, nullable=False),
        Column("statements", Integer, nullable=False),
        Column("flapping_count", Integer, nullable=False),
        Column("reduced", SmallInteger, nullable=False),
        # NULL while it lasts.
        Column("ended_by", Text),
        Column("first_raised_at_us", BigInteger, nullable=False),
        Column("raised_at_us", BigInteger, nullable=False),
        Column("raised_from_us", BigInteger),
        Column("raised_spread", Text),
        Column("raised_precision", Text),
        Column("stated_at_us", BigInteger, nullable=False),
        Column("cleared_at_us", BigInteger),
        Column("cleared_from_us", BigInteger),
        Column("cleared_spread", Text),
        Column("cleared_precision", Text),
        # The place of the last statement, the end included.
        Column("lineage", Integer, nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("partition", Text, nullable=False),
        Column("offset", BigInteger, nullable=False),
        Column("appended_at_us", BigInteger, nullable=False),
        Column("digest", BigInteger, nullable=False),
        Column("measured_uuid", Text),
        *(Column(name, Text) for name in _TEXTS),
        UniqueConstraint("stream_no", "key", "number"),
        Index("instep_alarm_measured", "measured_uuid"),
        Index(
            "instep_alarm_standing",
            "stream_no",
            sqlite_where=text("ended_by IS NULL"),
            postgresql_where=text("ended_by IS NULL"),
        ),
    )
    time = _TIMES[op.get_bind().dialect.name]
    times = {
        name: time.format(f"a.{column}")
        for name, column in {
            "raised": "raised_at_us",
            "start": "raised_from_us",
            "first": "first_raised_at_us",
            "stated": "stated_at_us",
            "cleared": "cleared_at_us",
        }.items()
    }
    for view in (_ALARMS, _EVENTS):
        op.execute(view.format(**times))
