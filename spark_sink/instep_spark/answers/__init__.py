"""Ready answers: defined once by derivations and generated for each engine (L6)."""

from instep_spark.answers.duckdb_lake import open_lake
from instep_spark.answers.functions import (
    alarm_floods,
    alarm_places,
    answer,
    availability,
    connection_hops,
    edges,
    entities_at,
    failure_impact,
    flapping,
    impact,
    link_capacity,
    link_load,
    repair_times,
    topology_at,
)

__all__ = [
    "alarm_floods",
    "alarm_places",
    "answer",
    "availability",
    "connection_hops",
    "edges",
    "entities_at",
    "failure_impact",
    "flapping",
    "impact",
    "link_capacity",
    "link_load",
    "open_lake",
    "repair_times",
    "topology_at",
]
