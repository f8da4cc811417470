"""What every test runs under: asyncio's debug mode, a Hypothesis profile, the public data."""

import gc
import os
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from instep_sql.engine import schema
from tests import new_store_kit
from tests.memory_kit import memory_folder

REPOSITORY = Path(__file__).resolve().parents[1]

# In the environment, so that the programs that a test starts run under it too.
os.environ["PYTHONASYNCIODEBUG"] = "1"

# A store waits for its disk at each commit, and longest when it is made: in memory that takes a
# tenth. What a killed process has written is kept there, too.
if "TMPDIR" not in os.environ and (memory := memory_folder()) is not None:
    os.environ["TMPDIR"] = str(memory)
    tempfile.tempdir = None  # it is looked for again

# The tests of `instep_sql.engine` undo this.
schema.migrate = new_store_kit.migrate

# A slow machine is no defect: no deadline. CI proves the same examples each time, `make properties`
# looks for new ones.
settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile(
    "fuzz",
    deadline=None,
    max_examples=20_000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# A mistake that was planted is found, and nobody reads how: no smaller example is looked for.
settings.register_profile(
    "mutants", deadline=None, database=None, phases=(Phase.explicit, Phase.generate)
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


# All modules and tests live to the end: what looks for garbage need not go through them. That is a
# third of the time that it takes to collect the tests, in each process.
@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


_LAKE_HALF = {"cli", "test_lake.py", "test_bitemporal.py"}
"""Files and folders whose tests take about half of the time of all that share a session."""


@pytest.hookimpl(tryfirst=True)  # xdist looks at the groups in a hook of the same name
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One process runs the tests that share a fixture of their module, so that it is made once.
    Two run all that shares a session of Spark, about half each; others run what has JVMs of its
    own. `--dist loadgroup` begins with the largest groups; what needs Spark alone comes next.
    """
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)
    for item in items:
        group = _spark_group(item) or _module_group(item)
        if group:
            item.add_marker(pytest.mark.xdist_group(group))


def _spark_group(item: pytest.Item) -> str:
    fixtures = {*getattr(item, "fixturenames", ())}
    if item.get_closest_marker("spark") is None or not fixtures & {"spark", "writer"}:
        return ""
    return "spark-lake" if {*item.path.parts} & _LAKE_HALF else "spark"


def _module_group(item: pytest.Item) -> str:
    if not isinstance(item, pytest.Function) or item.get_closest_marker("xdist_group"):
        return ""
    asked = [found for *_, found in item._fixtureinfo.name2fixturedefs.values()]
    shared = any(one.scope == "module" and one.baseid and not one._autouse for one in asked)
    return item.nodeid.partition("::")[0] if shared else ""


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of public data kept beside a checkout; the test is skipped where there is none."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no public data beside the checkout (../shared/data)")
    return folder
