"""All answers in the order in which they build upon each other, and their queries for an engine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from instep.errors import ConfigurationError
from instep.ports.lake import LakeFunction, LakeView
from instep_spark.answers.bitemporal import ENTITIES_AT, EPISODES, INTERVALS
from instep_spark.answers.dialects import Dialect
from instep_spark.answers.proof import PROOF_VIEWS
from instep_spark.derivations import FUNCTIONS as DERIVED_FUNCTIONS
from instep_spark.derivations import READINGS
from instep_spark.derivations import VIEWS as DERIVED_VIEWS

__all__ = ["FUNCTIONS", "TABLES", "Answer", "answers", "query"]

TABLES: Final = (
    *("changes", "entities", "entity_history", "alarms", "topology", "stream_health"),
    "stream_facts",
)
"""The tables of a lake that answers read."""
FUNCTIONS: Final[tuple[LakeFunction, ...]] = (ENTITIES_AT, *DERIVED_FUNCTIONS)
_READ: Final = re.compile(r"\b(?:FROM|JOIN)\s+(\w+)")


class Answer(NamedTuple):
    """One answer in the SQL of an engine."""

    name: str
    meaning: str
    sql: str
    """A query over tables and the answers before it, by their names."""
    reads: tuple[str, ...]
    """These, but only those that it names itself."""
    parameters: tuple[tuple[str, bool], ...] = ()
    """As those of `LakeFunction`; none: it is a view."""
    reading: bool = False
    """It reads JSON: an engine that keeps it as a table reads each body once."""


def answers(dialect: Dialect) -> Iterator[Answer]:
    """Every answer, each behind those that it reads (L6)."""
    known = set(TABLES)

    def answer(one: LakeView | LakeFunction, sql: str, *, reading: bool = False) -> Answer:
        named = dict.fromkeys(name for name in _READ.findall(sql) if name in known)
        parameters = one.parameters if isinstance(one, LakeFunction) else ()
        known.add(one.name)
        return Answer(one.name, one.meaning, sql, tuple(named), parameters, reading)

    for reading in READINGS:
        view = LakeView(reading.name, reading.meaning, "")
        yield answer(view, dialect.reading(reading), reading=True)
    defined: list[LakeView | LakeFunction] = [*PROOF_VIEWS, INTERVALS, *EPISODES, *DERIVED_VIEWS]
    defined += FUNCTIONS
    for one in defined:
        yield answer(one, dialect.spell(one.sql))


def query(
    name: str,
    tables: Mapping[str, str],
    dialect: Dialect,
    arguments: Mapping[str, str] | None = None,
) -> str:
    """SQL of one answer that needs nothing but the tables of the lake, each of which has SQL in
    `tables`. `arguments`: SQL for the parameters of a function; one that is left out is null.

    Raises `ConfigurationError` for an answer that is not known.
    """
    known = {one.name: one for one in answers(dialect)}
    if name not in known:
        raise ConfigurationError(
            f"there is no answer {name!r}", hint=f"there are {', '.join(sorted(known))}"
        )
    wanted: dict[str, None] = {}

    def want(one: str) -> None:
        for read in known[one].reads if one in known else ():
            want(read)
        wanted[one] = None

    want(name)
    parts = [
        f"{one} AS ({known[one].sql if one in known else f'SELECT * FROM {tables[one]}'})"
        for one in wanted
        if one != name
    ]
    sql = known[name].sql
    for parameter, _ in known[name].parameters:
        value = (arguments or {}).get(parameter, "CAST(NULL AS TIMESTAMP)")
        sql = re.sub(rf"\b{parameter}\b", value, sql)
    return f"WITH {', '.join(parts)} SELECT * FROM ({sql}) AS answer"
