"""`instep.toml`: what is read, and every mistake named by its place."""

from pathlib import Path

import pytest

from instep.config.file import default_path, load
from instep.config.options import unknown_key
from instep.errors import ConfigurationError
from instep.runtime.settings import ConsumerSettings

GOOD = """
[[consumers]]
name = "east"
[consumers.source]
kind = "tapi"
endpoints = ["https://${HOST}:8443"]
auth = { kind = "bearer", token = "${TOKEN}" }
[consumers.sink]
kind = "sql"
url = "sqlite:///network.db"
"""
ENVIRON = {"HOST": "ctrl-a", "TOKEN": "s3cret"}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("instep.toml")


def refused(file: Path, text: str) -> ConfigurationError:
    file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load(file, ENVIRON)
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(caught.value)
    return caught.value


def test_the_peer_of_several_workers_is_not_judged(file: Path) -> None:
    text = GOOD.replace('name = "east"', 'name = "east"\nconformance = true\nworkers = 2')
    error = refused(file, text)
    assert "cannot be judged with several workers" in error.message
    assert error.where == f"{file}: consumers[0].conformance"
    assert "instep conformance CONFIG" in error.hint


def test_conformance_is_off_unless_it_is_asked_for(file: Path) -> None:
    file.write_text(GOOD)
    assert not load(file, ENVIRON).consumers[0].conformance
    file.write_text(GOOD.replace('name = "east"', 'name = "east"\nconformance = true'))
    assert load(file, ENVIRON).consumers[0].conformance
    error = refused(file, GOOD.replace('name = "east"', 'name = "east"\nconformance = "on"'))
    assert "'conformance' is not usable" in error.message


def test_a_consumer_is_read(file: Path) -> None:
    file.write_text(GOOD)
    (consumer,) = load(file, ENVIRON).consumers
    assert consumer.name == "east"
    assert consumer.source.kind == "tapi"
    assert consumer.source.where == "instep.toml: consumers[0].source"
    assert consumer.source.options == {
        "endpoints": ["https://ctrl-a:8443"],
        "auth": {"kind": "bearer", "token": "s3cret"},
    }
    assert consumer.sink.options == {"url": "sqlite:///network.db"}
    assert consumer.settings == ConsumerSettings()


def test_a_value_from_a_variable_never_shows(file: Path) -> None:
    file.write_text(GOOD)
    configuration = load(file, ENVIRON)
    assert "s3cret" not in repr(configuration)
    source = configuration.consumers[0].source
    assert source.as_written["auth"]["token"] == "${TOKEN}"
    redacted = source.redact(ConfigurationError("bad 's3cret'", where="x", hint="s3cret is bad"))
    assert str(redacted) == "x: bad '${TOKEN}' — ${TOKEN} is bad"


def test_settings_are_read_to_their_full_depth(file: Path) -> None:
    extra = "[consumers.settings]\nbatch_records = 7\nalignment = { quiet_s = 2 }\n"
    file.write_text(GOOD + extra)
    settings = load(file, ENVIRON).consumers[0].settings
    assert settings.batch_records == 7
    assert settings.alignment.quiet_s == 2.0
    assert settings.alignment.heartbeat_s == ConsumerSettings().alignment.heartbeat_s


def test_a_file_has_several_consumers(file: Path) -> None:
    file.write_text(GOOD + GOOD.replace('"east"', '"west"'))
    consumers = load(file, ENVIRON).consumers
    assert [consumer.name for consumer in consumers] == ["east", "west"]
    assert consumers[1].sink.where == "instep.toml: consumers[1].sink"


def test_a_name_is_given_once(file: Path) -> None:
    error = refused(file, GOOD + GOOD)
    assert error.message == "the name 'east' is taken by consumers[0]"
    assert error.where == "instep.toml: consumers[1].name"


@pytest.mark.parametrize(
    ("change", "where", "key", "meant"),
    [
        (("[[consumers]]", "[[consumer]]"), "instep.toml", "consumer", "consumers"),
        (('name = "east"', 'nam = "east"'), "instep.toml: consumers[0]", "nam", "name"),
        (("[consumers.sink]", "[consumers.sinc]"), "instep.toml: consumers[0]", "sinc", "sink"),
    ],
)
def test_an_unknown_key_is_named_with_the_likely_one(
    file: Path, change: tuple[str, str], where: str, key: str, meant: str
) -> None:
    error = refused(file, GOOD.replace(*change))
    assert error.message == f"unknown key {key!r}"
    assert error.where == where
    assert error.hint.startswith(f"did you mean {meant!r}? known keys: ")


def test_an_unknown_setting_is_named_at_its_depth(file: Path) -> None:
    error = refused(file, GOOD + "[consumers.settings.alignment]\nquite_s = 2\n")
    assert error.message == "unknown key 'quite_s'"
    assert error.where == "instep.toml: consumers[0].settings.alignment"
    assert "did you mean 'quiet_s'?" in error.hint


def test_a_key_without_a_likely_one_still_gets_the_known_ones() -> None:
    assert unknown_key("zzz", ["b", "a"], "f").hint == "known keys: a, b"


@pytest.mark.parametrize(
    ("setting", "key", "fault"),
    [
        ('batch_records = "many"', "batch_records", "Expected a whole number, got a text"),
        ("alignment = { quiet_s = true }", "alignment.quiet_s", "a number, got true or false"),
        ("alignment = 3", "alignment", "Expected a table, got a whole number"),
    ],
)
def test_a_setting_of_another_type_is_refused(
    file: Path, setting: str, key: str, fault: str
) -> None:
    error = refused(file, f"{GOOD}[consumers.settings]\n{setting}\n")
    assert f"the key {key!r} is not usable" in error.message
    assert fault in error.message
    assert error.where == "instep.toml: consumers[0].settings"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no consumer is configured"),
        ("consumers = []", "no consumer is configured"),
        ("consumers = [1]", "'consumers' is not a list of tables"),
        ("[consumers]", "'consumers' is a single table"),
        ("[[consumers]]", "the key 'name' is missing"),
        ('[[consumers]]\nname = ""', "the name is not a text, or it is empty"),
        ("[[consumers]]\nname = 3", "the name is not a text, or it is empty"),
        ('[[consumers]]\nname = "a\\nb"', "the name has a line break or another control character"),
        ('[[consumers]]\nname = "a"', "the key 'source' is missing"),
        ('[[consumers]]\nname = "a"\nsource = 3\nsink = 3', "this is not a table"),
        ('[[consumers]]\nname = "a"\nsource = {}\nsink = {}', "the key 'kind' is missing"),
        ('[[consumers]]\nname = "a"\nsource = { kind = 1 }\nsink = {}', "the kind is not a text"),
        (GOOD + "[[consumers.settings]]", "this is not a table"),
    ],
)
def test_what_is_missing_or_of_another_shape_is_reported(
    file: Path, text: str, message: str
) -> None:
    error = refused(file, text)
    assert error.message == message
    assert error.where.startswith("instep.toml")
    assert error.hint


def test_a_variable_that_is_not_set_is_named_with_file_and_key(file: Path) -> None:
    error = refused(file, GOOD.replace("${HOST}", "${CTRL_HOST}"))
    assert str(error).startswith(
        "instep.toml: consumers[0].source.endpoints[0]: "
        "the environment variable CTRL_HOST is not set"
    )


def test_a_mistake_in_the_toml_is_reported_with_its_line(file: Path) -> None:
    error = refused(file, "[[consumers]]\nname = \n")
    assert error.message.startswith("the file is not TOML: ")
    assert "line 2" in error.message


def test_a_file_that_is_not_text_is_reported_with_its_line(file: Path) -> None:
    file.write_bytes(b'[[consumers]]\nname = "\xff"\n')
    with pytest.raises(ConfigurationError, match=r"not UTF-8 \(at line 2\)"):
        load(file, {})


def test_a_file_nested_without_end_is_refused(file: Path) -> None:
    assert "nested too deeply" in refused(file, "a = " + "[" * 100_000).message


def test_a_file_without_end_is_not_read_to_its_end() -> None:
    with pytest.raises(ConfigurationError, match="the file is over 1,048,576 bytes"):
        load("/dev/zero", {})


def test_a_file_that_is_not_there_is_named(file: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no such file") as caught:
        load(file, {})
    assert caught.value.where == "instep.toml"
    assert "INSTEP_CONFIG" in caught.value.hint


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="this is a directory — name the file in it"):
        load(tmp_path, {})


def test_where_the_file_is_looked_for() -> None:
    assert default_path({}) == Path("instep.toml")
    assert default_path({"INSTEP_CONFIG": ""}) == Path("instep.toml")
    assert default_path({"INSTEP_CONFIG": "/etc/east.toml"}) == Path("/etc/east.toml")
