"""Whatever lacks an extra names it: each command, kind and option, where none is installed."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest

from instep.config.entry_points import broken, install_hint
from tests.instep.config.extras_kit import commands_without, modules_of_extras, run_without

REPOSITORY = Path(__file__).resolve().parents[3]
EXTRAS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]
GROUPS = sorted(group for group in entry_points().groups if group.startswith("instep."))
LOAD_ALL = """
import json, sys
from importlib.metadata import entry_points
from instep.config.entry_points import broken
for group in sys.argv[1:]:
    for point in entry_points(group=group):
        try:
            point.load()
        except Exception as error:
            told = broken(point, "part", "", error)
            print(json.dumps([group, point.name, getattr(error, "name", None), told.hint]))
        else:
            print(json.dumps([group, point.name, None, ""]))
"""
NEEDS = { "sdpi": "soap", "wsr": "soap", "wsrm": "soap",
    "didcomm": "didcomm", "nats": "nats", "delta": "spark", "lake": "spark",
}  # fmt: skip
"""What cannot be imported without an extra; all else can."""
SOURCE = {
    "didcomm": 'listen = "http://127.0.0.1:0/x"\nprotocols = [{ type = "https://a/1.0/*" }]',
    "nats": 'servers = "nats://127.0.0.1:1"\nstream = "x"\nnumber = "subject"',
    "sdpi": 'provider = "http://127.0.0.1:1"\nlisten = "127.0.0.1:0"',
    "tapi": 'endpoints = ["http://127.0.0.1:1"]',
    "wsr": 'listen = "http://127.0.0.1:0/x"',
    "wsrm": 'listen = "http://127.0.0.1:0/x"',
}
CONFIG = """
[[consumers]]
name = "one"
[consumers.source]
kind = "{source}"
{options}
[consumers.sink]
{sink}
"""
SQLITE = 'kind = "sql"\nurl = "sqlite:///a.db"'
LAKE = "file:///tmp/lake"


def test_every_entry_point_loads_or_names_its_extra(tmp_path: Path) -> None:
    refused = modules_of_extras()
    assert refused >= {"pyarrow", "lxml", "pyspark", "psycopg", "aries_askar", "topohub"}
    found = run_without(refused, tmp_path, LOAD_ALL, *GROUPS)
    ours = {
        name: re.findall(r'pip install "instep\[(\w+)\]"', hint)
        for group, name, _, hint in found
        if group in GROUPS
    }
    assert {name: extras for name, extras in ours.items() if extras} == {
        name: [extra] for name, extra in NEEDS.items()
    }
    assert all(not missing or hint.startswith("install") for _, _, missing, hint in found)


COMMANDS = [
    (["lake", "run"], "spark"),
    (["lake", "verify"], "spark"),
    (["lake", "--help"], "spark"),
    (["conformance", "sdpi", "http://127.0.0.1:1"], "soap"),
    (["demo"], "simulator"),
    (["entities", "--store", "file:///tmp/lake"], "spark"),
    (["entities", "--store", "postgresql://u@127.0.0.1:1/x"], "postgres"),
    (["status", "--store", "postgresql://u@127.0.0.1:1/x"], "postgres"),
    (["sweep", "status", "--store", "file:///tmp/lake"], "spark"),
    (["provider"], "simulator"),
]
TEE = f"""kind = "tee"
sinks = [{{ kind = "sql", url = "sqlite:///a.db" }}, {{ kind = "delta", url = "{LAKE}" }}]"""
PARTS = [
    *((kind, SQLITE, NEEDS[kind]) for kind in ("didcomm", "nats", "sdpi", "wsr", "wsrm")),
    ("tapi", f'kind = "delta"\nurl = "{LAKE}"', "spark"),
    ("tapi", 'kind = "sql"\nurl = "postgresql://u@127.0.0.1:1/x"', "postgres"),
    ("tapi", TEE, "spark"),
]


def test_each_command_kind_and_option_names_the_extra_that_it_lacks(tmp_path: Path) -> None:
    wanted = list(COMMANDS)
    for number, (source, sink, extra) in enumerate(PARTS):
        config = tmp_path / f"{number}.toml"
        config.write_text(CONFIG.format(source=source, options=SOURCE[source], sink=sink))
        wanted += [([verb, str(config)], extra) for verb in ("check", "run")]
    done = commands_without(modules_of_extras(), tmp_path, [each for each, _ in wanted])
    for (arguments, extra), (code, told) in zip(wanted, done, strict=True):
        assert code == 2, (arguments, told)
        assert f'pip install "instep[{extra}]"' in told.replace('\\"', '"'), arguments
        assert "mend or remove" not in told


def test_an_option_that_needs_more_than_its_kind_names_the_extra(tmp_path: Path) -> None:
    config = tmp_path / "instep.toml"
    sink = f'kind = "delta"\nurl = "{LAKE}"\nwriter = "spark"'
    config.write_text(CONFIG.format(source="tapi", options=SOURCE["tapi"], sink=sink))
    [(code, told)] = commands_without({"pyspark"}, tmp_path, [["run", str(config)]])
    assert code == 2, told
    assert "instep[spark]" in told


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("delta.tables", "spark"),
        ("aries_askar", "didcomm"),
        ("nats.aio.client", "nats"),
        ("did_peer_2", "didcomm"),
        ("lxml.etree", "soap"),
        ("psycopg", "postgres"),
    ],
)
def test_a_module_is_traced_to_the_smallest_extra(module: str, extra: str) -> None:
    hint = install_hint(ModuleNotFoundError("no", name=module))
    assert hint == f'install what it needs: pip install "instep[{extra}]"'
    assert extra in EXTRAS


@pytest.mark.parametrize(
    "error", [ModuleNotFoundError("no", name="numpyy"), ImportError("no"), ValueError("lxml")]
)
def test_what_no_extra_brings_has_no_such_hint(error: Exception) -> None:
    assert install_hint(error) == ""
    point = EntryPoint("x", "x:y", "instep.commands")
    assert broken(point, "command", "", error).hint == "mend or remove the distribution x:y"
