"""The views of a lake, and each query of the page of questions, over the network of a provider."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from instep_spark import create_views
from instep_spark.answers import open_lake
from instep_spark.lake.lake import Lake
from instep_spark.lake.tables.schema import LAKE_TABLES
from instep_spark.lake.views import FUNCTIONS, VIEWS
from instep_spark.landing_schema import FACTS, arrow_schema
from instep_tapi_provider.context import Context, Nested, Node
from instep_tapi_provider.topology import topology_context
from tests.docs.snippets_kit import Snippet, snippets
from tests.instep_spark.lake.lake_kit import UNGUARDED
from tests.instep_spark.lake.log_kit import START_US, Row, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("topohub", reason="the extra `simulator` is not installed")
# A JVM starts, and may share the machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PAGE = Path(__file__).resolve().parents[3] / "docs/how-to/questions.md"
CAPACITY = {"total-size": {"value": "400", "unit": "GBPS"}}
MAY_BE_EMPTY = (*("entities_at", "current_timestamp", "FROM flapping", "'SWEEP'", "stream_health"),)
"""Words of questions that the network of the tests has no answer to."""
ANSWER = """
import json, sys

lake = open_lake(sys.argv[1])
for question in json.load(sys.stdin):
    print(json.dumps(lake.sql(question).to_arrow_table().to_pylist(), default=str))
"""
POLARS_ANSWER = """
import json, sys

lake = open_lake(sys.argv[1])
for question in json.load(sys.stdin):
    print(json.dumps(lake.execute(question).to_dicts(), default=str))
"""
TABLES = {"entities", "entity_history", "alarms", "topology", "stream_health"}


def pages() -> tuple[list[Snippet], list[Snippet], Snippet, Snippet]:
    """The questions for Spark; the recipe without Spark and its questions; that with Polars; the
    job.
    """
    with_spark, without = PAGE.read_text("utf-8").split("## Without Spark\n")
    without, polars = without.split("## With Polars\n")
    _, *questions = snippets(with_spark)
    recipe, job = snippets(polars)
    return questions, snippets(without), recipe, job


def asks_tables_only(question: str) -> bool:
    read = set(re.findall(r"\b(?:FROM|JOIN)\s+(\w+)", question))
    return read <= TABLES and "current_timestamp" not in question


def may_be_empty(question: str) -> bool:
    return any(word in question for word in MAY_BE_EMPTY)


def of_class(context: Context, entity_class: str) -> list[Node]:
    return [node for node in context.nodes.values() if node.cls == entity_class]


def rows(context: Context, alarmed: Node, down: Node) -> Iterator[tuple[Row, str, str | None, str]]:
    """Each row with its class, its parent-address and its body."""
    ordinal = 0

    def row(key: str, **facts: Any) -> Row:
        nonlocal ordinal
        ordinal += 1
        at = START_US + ordinal * 1_000_000
        facts |= {"appended_at": at, "event_at": at, "committed_at": at}
        return Row("c", "s", ordinal, "CREATE_UPDATE", key, f"t{ordinal}", **facts)

    for node in context.nodes.values():
        if node is down:
            node.value["total-potential-capacity"] = CAPACITY
            node.value["available-capacity"] = {"total-size": {"value": "100.5", "unit": "GBPS"}}
        parents = json.dumps(node.parent_address)
        yield row(node.key), node.cls, parents, node.body(Nested.IDENTIFIED).decode()
    down.value["operational-state"] = "DISABLED"
    parents = json.dumps(down.parent_address)
    yield row(down.key), down.cls, parents, down.body(Nested.IDENTIFIED).decode()
    for measured in (alarmed, down):
        raised = row(f"LOS {measured.uuid}", detector=True, state="ACTIVE", severity="CRITICAL")
        body = json.loads(raised.body or "")
        body |= {"measured-entity-class": measured.cls, "measured-entity-uuid": measured.uuid}
        yield raised, "CONDITION_DETECTOR", None, json.dumps(body)


def name_of(node: Node) -> str:
    return str(node.value["name"][0]["value"])


class Network(NamedTuple):
    """A network, and the lake that has it."""

    lake: Path
    context: Context
    route: list[Any]
    """The end points that the first connection passes."""
    down: Node
    """A link on it that is down."""


@pytest.fixture(scope="module")
def network(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Network:
    lake = tmp_path_factory.mktemp("network")
    context = topology_context("sndlib/abilene", services=6)
    route = of_class(context, "CONNECTION")[0].value["route"][0]["connection-end-point"]
    port = next(
        node for node in context.nodes.values() if node.uuid == route[1]["node-edge-point-uuid"]
    )
    down = next(
        link
        for link in of_class(context, "LINK")
        if port.uuid in {end["node-edge-point-uuid"] for end in link.value["node-edge-point"]}
    )
    stated = list(rows(context, port, down))
    landed = table([row for row, *_ in stated])
    for name, at in (("class", 1), ("parent_address", 2), ("body", 3)):
        column = pa.array([one[at] for one in stated], pa.string())
        landed = landed.set_column(landed.schema.get_field_index(name), name, column)
    write_deltalake(lake / "changes", landed)
    write_deltalake(lake / "stream_facts", arrow_schema(FACTS).empty_table())
    Lake(lake.as_uri(), spark, settings=UNGUARDED).run(once=True)
    return Network(lake, context, route, down)


@pytest.fixture(scope="module")
def session(spark: SparkSession, network: Network) -> SparkSession:
    """A session with the views of the lake."""
    made = spark.newSession()
    assert set(create_views(made, network.lake.as_uri())) >= VIEWS.keys()
    return made


def test_the_views_are_the_network(session: SparkSession, network: Network) -> None:
    _, context, route, down = network

    def found(sql: str) -> list[Any]:
        return session.sql(sql).collect()

    ends = len(of_class(context, "LINK"))
    assert len(found("SELECT * FROM edges")) == 2 * ends
    sites = {node.uuid: name_of(node) for node in of_class(context, "NODE")}
    places = found(
        "SELECT node_name, link_name FROM alarm_places ORDER BY id LIKE '%' || link_uuid"
    )
    assert {tuple(one) for one in places} == {
        (sites[route[1]["node-uuid"]], name_of(down)),
        (None, name_of(down)),
    }
    hops = found(
        "SELECT connection_uuid, cep_uuid, node_uuid FROM connection_hops ORDER BY 1, position"
    )
    assert hops
    assert [tuple(hop) for hop in hops] == [
        (connection.uuid, end["connection-end-point-uuid"], end["node-uuid"])
        for connection in sorted(of_class(context, "CONNECTION"), key=lambda one: one.uuid)
        for end in connection.value["route"][0]["connection-end-point"]
    ]
    over = {
        connection.uuid
        for connection in of_class(context, "CONNECTION")
        if any(
            end["node-edge-point-uuid"]
            in {one["node-edge-point-uuid"] for one in down.value["node-edge-point"]}
            for end in connection.value["route"][0]["connection-end-point"]
        )
    }
    hit = found(
        "SELECT connection_uuid, service_name, basis FROM impact WHERE link_uuid IS NOT NULL"
    )
    assert {one.connection_uuid for one in hit} == over
    assert {one.basis for one in hit} == {"ROUTE"}
    assert {one.service_name for one in hit} == {
        name_of(service)
        for service in of_class(context, "CONNECTIVITY_SERVICE")
        if service.value["connection"][0]["connection-uuid"] in over
    }
    spells = found(f"SELECT state, basis FROM availability WHERE uuid = '{down.uuid}' ORDER BY 1")
    assert [tuple(one) for one in spells] == [("down", "STATED"), ("up", "STATED")]
    (capacity,) = found("SELECT total, free, used, unit FROM link_capacity WHERE total > 0")
    assert tuple(capacity) == (400.0, 100.5, 299.5, "GBPS")
    (before,) = found(f"SELECT count(*) FROM entities_at(timestamp_micros({START_US + 1_500_000}))")
    assert before[0] == 1
    # The newest topology is the table; before the last statements, the link was up.
    columns = (
        "id, uuid, name, node_uuid, nep_uuid, a_nep_uuid, z_nep_uuid, layer, operational_state"
    )
    then = f"SELECT {columns} FROM topology_at(timestamp_micros({{}}))"
    newest = found(then.format(START_US + 10**12))
    assert newest
    assert set(newest) == set(found(f"SELECT {columns} FROM topology"))
    earlier = found(then.format(START_US + len(context.nodes) * 1_000_000))
    state = {one.uuid: one.operational_state for one in earlier}
    assert state[down.uuid] == "ENABLED"
    spans = found(
        "SELECT DISTINCT operational_state, valid_to IS NULL FROM edge_history "
        f"WHERE link_uuid = '{down.uuid}'"
    )
    assert {tuple(one) for one in spans} == {("ENABLED", False), ("DISABLED", True)}


def test_spark_understands_the_questions_of_an_operator(session: SparkSession) -> None:
    """Their answers are those of DuckDB, below; `make long` asks Spark for each."""
    questions, *_ = pages()
    assert len(questions) == 20
    for question in questions:
        assert len(question.text.strip().splitlines()) <= 5
        assert session.sql(question.text).columns, question.text


@pytest.mark.long
def test_the_questions_of_an_operator_have_answers(session: SparkSession) -> None:
    questions, *_ = pages()
    for question in questions:
        answer = session.sql(question.text).collect()
        assert answer or may_be_empty(question.text), question.text


@pytest.mark.parametrize("name", ["entities", "entity_history", "alarms", "topology"])
def test_columns_state_what_they_mean_and_delta_rs_still_answers(
    network: Network, name: str
) -> None:
    table = DeltaTable(network.lake / name)
    schema = json.loads(table.schema().to_json())
    told = {field["name"]: field["metadata"].get("comment") for field in schema["fields"]}
    assert told == {
        column.name: column.meaning.replace("'", "\N{RIGHT SINGLE QUOTATION MARK}")
        for column in LAKE_TABLES[name].columns
    }
    found: pa.Table = pa.table(
        QueryBuilder()
        .register("t", table)
        .execute(
            "SELECT count(*) AS n, max(b.last) AS last FROM t "
            "JOIN (SELECT stream, max(ordinal) AS last FROM t GROUP BY stream) b USING (stream) "
            "WHERE t.ordinal <= b.last"
        )
        .read_all()
    )
    read = pa.table(table.to_pyarrow_table())
    assert read.num_rows > 0
    assert found.to_pylist() == [
        {"n": read.num_rows, "last": max(read["ordinal"].to_pylist())},
    ]


READERS_ASK_BY = {
    "entities": {"class", "id"},
    "entity_history": {"class", "valid_from", "valid_to"},
    "alarms": {"raised_at", "cleared_at", "node_uuid"},
    "topology": {"class", "node_uuid"},
    "stream_health": {"minute"},
}


@pytest.mark.parametrize("name", READERS_ASK_BY)
def test_files_have_statistics_of_what_readers_ask_by(network: Network, name: str) -> None:
    files: Any = pa.table(DeltaTable(network.lake / name).get_add_actions(flatten=True))
    assert files.num_rows > 0
    found = {column.removeprefix("null_count.") for column in files.column_names}
    assert found >= READERS_ASK_BY[name]
    assert not found & {"body", "envelope"}


def answers_of(program: str, questions: list[Snippet], lake: Path) -> list[Any]:
    # A process of its own: the recipe has to end with 0, too.
    done = subprocess.run(
        [sys.executable, "-c", program, str(lake)],
        check=False,
        input=json.dumps([one.text for one in questions]),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_polars_answers_the_questions_that_ask_tables_as_duckdb_does(network: Network) -> None:
    pytest.importorskip("duckdb", reason="DuckDB is not installed")
    pytest.importorskip("polars", reason="Polars is not installed")
    _, (duckdb, *questions), polars, _ = pages()
    chosen = [q for q in questions if asks_tables_only(q.text)]
    assert len(chosen) == 6
    expected = answers_of(duckdb.text + ANSWER, chosen, network.lake)
    found = answers_of(polars.text + POLARS_ANSWER, chosen, network.lake)
    for question, answer, other in zip(chosen, found, expected, strict=True):
        assert in_any_order(answer) == in_any_order(other), question.text


def in_any_order(answer: list[dict[str, Any]]) -> list[list[str]]:
    """The cells of the rows; engines name columns and print times each in their own way."""
    return sorted([str(cell).removesuffix("+00:00") for cell in row.values()] for row in answer)


def test_the_questions_of_an_operator_have_answers_without_spark(network: Network) -> None:
    pytest.importorskip("duckdb", reason="DuckDB is not installed")
    spoken, (recipe, *questions), *_ = pages()
    # One definition for both engines: the questions are the same, too.
    assert [one.text for one in questions] == [one.text for one in spoken]
    assert len(questions) == 20
    answers = answers_of(recipe.text + ANSWER, questions, network.lake)
    for question, answer in zip(questions, answers, strict=True):
        assert len(question.text.strip().splitlines()) <= 5
        assert answer or may_be_empty(question.text), question.text
    by_question = dict(zip((one.text for one in questions), answers, strict=True))
    (down,) = (a for q, a in by_question.items() if "operational_state = 'DISABLED'" in q)
    assert [one["uuid"] for one in down] == [network.down.uuid]
    (full,) = (a for q, a in by_question.items() if "link_capacity" in q)
    assert [(one["link_name"], one["percent"]) for one in full] == [(name_of(network.down), 75.0)]


def test_each_answer_of_duckdb_is_a_frame_of_polars(network: Network) -> None:
    pytest.importorskip("duckdb", reason="DuckDB is not installed")
    polars = pytest.importorskip("polars", reason="Polars is not installed")
    lake = open_lake(str(network.lake))
    questions, *_ = pages()
    for question in questions:
        assert isinstance(lake.sql(question.text).pl(), polars.DataFrame)
    # Times have no zone, so that nothing else has to be installed.
    assert lake.sql("SELECT raised_at FROM alarm_places").fetchall()


def test_the_job_of_the_page_runs(spark: SparkSession, network: Network) -> None:
    *_, job = pages()
    lines = [one for one in job.text.splitlines() if one.strip()]
    assert len(lines) <= 20
    shown = io.StringIO()
    # In this process: its session is the one that the job gets.
    with contextlib.redirect_stdout(shown), patch.object(sys, "argv", ["", network.lake.as_uri()]):
        exec(compile(job.text, "missed_targets.py", "exec"), {})
    assert name_of(network.down) in shown.getvalue()
    del spark


def test_the_notebook_over_a_lake_runs_as_a_program(network: Network, tmp_path: Path) -> None:
    pytest.importorskip("duckdb", reason="DuckDB is not installed")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    page = (PAGE.parent / "jupyter.md").read_text("utf-8")
    (program,) = [one.text for one in snippets(page) if one.value == "explore_lake.py"]
    done = subprocess.run(
        [sys.executable, "-c", program, network.lake.as_uri(), str(tmp_path)],
        check=False,
        env={**os.environ, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"availability.png", "failures.png"}


def test_a_view_of_which_a_table_is_not_there_is_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_deltalake(tmp_path / "changes", table([Row("c", "s", 1, "ATTEMPT")]))
    Lake(tmp_path.as_uri(), spark, tables=["alarms"]).run(once=True)
    made = create_views(spark.newSession(), tmp_path.as_uri())
    assert {"entities", "alarms", "edges", "services"} <= set(made)
    assert not {"topology", "alarm_places", "availability"} & set(made)


@pytest.mark.long
def test_views_of_a_database_stay(spark: SparkSession, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "changes", table([Row("c", "s", 1, "ATTEMPT")]))
    write_deltalake(tmp_path / "stream_facts", arrow_schema(FACTS).empty_table())
    database = "spark_catalog.views"
    spark.sql(f"CREATE DATABASE {database}")
    try:
        for name in ("changes", "stream_facts"):
            there = (tmp_path / name).as_uri()
            spark.sql(f"CREATE TABLE {database}.{name} USING delta LOCATION '{there}'")
        url = tmp_path.as_uri()
        Lake(url, spark, database=database).run(once=True)
        session = spark.newSession()
        made = create_views(session, url, database=database)
        assert set(made) >= VIEWS.keys()
        for name in VIEWS:
            assert spark.sql(f"SELECT * FROM {database}.{name}").collect() == []
        moments = "TIMESTAMP '2026-01-01', TIMESTAMP '2026-02-01'"
        for name, one in FUNCTIONS.items():
            given = moments if len(one.parameters) > 1 else "TIMESTAMP '2026-01-01'"
            assert session.sql(f"SELECT * FROM {name}({given})").collect() == []
    finally:
        spark.sql(f"DROP DATABASE {database} CASCADE")
