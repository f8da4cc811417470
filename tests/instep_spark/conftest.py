"""Real Spark sessions, which the tests of the lake share: one of each process that runs some."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from instep.errors import ConfigurationError
from instep_spark.session import SparkOptions, open_session
from tests.instep_spark.spark_server_kit import QUICK


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark leaves its sockets to the garbage collector, which may come in any later test."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with Delta, shared by all of this process; skipped without Java or its jar."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is not None:
        # Fails in a third worker: the tests that share a session are of two groups.
        sessions = tmp_path_factory.getbasetemp().parent / "spark"
        sessions.mkdir(exist_ok=True)
        (sessions / worker).touch(exist_ok=False)
        assert len(list(sessions.iterdir())) <= 2
    warehouse: Path = tmp_path_factory.mktemp("warehouse")
    options = SparkOptions(
        master="local[2]",
        config={
            **QUICK,
            "spark.sql.warehouse.dir": str(warehouse),
        },
    )
    try:
        session = open_session(options)
    except ConfigurationError as error:
        pytest.skip(str(error))
    yield session
    session.stop()


_SPARK = pytest.param("spark", marks=pytest.mark.spark)


@pytest.fixture(params=["rust", _SPARK])
def writer(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The options of a writer; the session of all tests serves the one that needs it."""
    if request.param == "spark":
        request.getfixturevalue("spark")
        return {"writer": "spark", "spark": {"master": "local[2]"}}
    return {"writer": "rust"}
