"""Plug-ins are found as anybody installs them; the error for a missing or broken one names what to
do.
"""

from pathlib import Path

import pytest

from instep.config import plugins
from instep.config.entry_points import command_points, load_command
from instep.config.file import ConsumerConfiguration, load
from instep.errors import ConfigurationError
from tests.instep.third_party_kit import SOURCE, install

ENTRY_POINTS = """
[instep.sources]
odd = odd_source:source
gone = not_installed_anywhere:source
[instep.sinks]
gone = not_installed_anywhere:sink
[instep.commands]
good = odd_command:good
broken = odd_command:missing
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(
        tmp_path, {"odd_source": SOURCE, "odd_command": "def good(): pass\n1 + 1\n"}, ENTRY_POINTS
    )
    monkeypatch.syspath_prepend(tmp_path)


def consumer(folder: Path, source: str) -> ConsumerConfiguration:
    file = folder / "f.toml"
    sink = 'sink = { kind = "sql", url = "sqlite://" }'
    file.write_text(f'[[consumers]]\nname = "a"\nsource = {source}\n{sink}\n')
    return load(file, {"TOKEN": "s3cret"}).consumers[0]


def test_plugins_of_this_distribution_and_of_others_are_found() -> None:
    assert plugins.sink_plugin("sql").reads("sqlite:///a.db")
    plugins.source_plugin("odd").check({}, "here")


def test_an_unknown_kind_is_refused_with_what_is_installed() -> None:
    with pytest.raises(ConfigurationError) as caught:
        plugins.source_plugin("tappi", "f: source.kind")
    assert caught.value.message == "there is no source of kind 'tappi'"
    assert caught.value.where == "f: source.kind"
    assert caught.value.hint == (
        "did you mean 'tapi'? sources installed: didcomm, gone, nats, odd, sdpi, tapi, wsr, wsrm"
    )


def test_a_broken_plugin_names_its_distribution() -> None:
    with pytest.raises(ConfigurationError) as caught:
        plugins.source_plugin("gone")
    assert "the source 'gone' cannot be loaded: ModuleNotFoundError" in caught.value.message
    assert "thirdparty" in caught.value.hint


def test_a_store_is_found_by_its_url_past_a_broken_sink() -> None:
    assert plugins.store_plugin("sqlite:///a.db") is plugins.sink_plugin("sql")


def test_a_url_that_no_sink_reads_shows_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    class Deaf:
        def reads(self, _url: str) -> bool:
            return False

    monkeypatch.setattr(plugins, "sink_plugin", lambda *_: Deaf())
    for url, message in (
        ("oracle://u:pw@host/db", "'oracle'"),
        ("network.db", "this is not a URL"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            plugins.store_plugin(url)
        assert message in caught.value.message
        assert "pw" not in str(caught.value)


def test_checking_asks_both_plugins(tmp_path: Path) -> None:
    plugins.check(consumer(tmp_path, '{ kind = "odd" }'))


@pytest.mark.parametrize("ask", [plugins.check, lambda one: plugins.build_source(one.source)])
def test_a_plugin_that_prints_a_value_of_a_variable_is_scrubbed(
    tmp_path: Path, ask: object
) -> None:
    assert callable(ask)
    with pytest.raises(ConfigurationError) as caught:
        ask(consumer(tmp_path, '{ kind = "odd", token = "${TOKEN}" }'))
    assert caught.value.message == "the token '${TOKEN}' is no token"
    assert "s3cret" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_deviations_are_explained_by_the_source_and_the_core() -> None:
    deviations = plugins.deviations_of("odd")
    assert deviations["odd"] == "it is odd (TR-548 3.10)"
    assert "TR-548" in deviations["offset-backwards"]
    assert plugins.deviations_of("not installed") == plugins.deviations_of("")


def test_a_broken_command_does_not_break_the_others() -> None:
    found = {point.name: point for point in command_points()}
    assert callable(load_command(found["good"]))
    with pytest.raises(ConfigurationError, match="AttributeError"):
        load_command(found["broken"])
