"""What every test runs under: asyncio's debug mode, a Hypothesis profile, the public data."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

REPOSITORY = Path(__file__).resolve().parents[1]

# In the environment, so that the programs that a test starts run under it too.
os.environ["PYTHONASYNCIODEBUG"] = "1"

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
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


@pytest.hookimpl(tryfirst=True)  # xdist looks at the groups in a hook of the same name
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs Spark comes first, since it takes longest. Two processes run all that shares a
    session, one the tables and one the rest; others run what has JVMs of its own.
    """
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if item.get_closest_marker("spark") is not None and {"spark", "writer"} & set(fixtures):
            group = "spark-tables" if "tables" in item.path.parts else "spark"
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of public data kept beside a checkout; the test is skipped where there is none."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no public data beside the checkout (../shared/data)")
    return folder
