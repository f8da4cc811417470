"""The keys of a configuration, as the structs have them."""

from __future__ import annotations

import msgspec

from instep.config.reference import Key, Table, installed, tables
from instep.runtime.settings import ConsumerSettings
from instep_sql.options import options_type
from instep_tapi.options import Options


def found() -> dict[tuple[str, str, str], Table]:
    return {(table.path, table.plugin, table.kind): table for table in tables()}


def test_each_table_of_the_file_is_there_with_all_its_keys() -> None:
    every = found()
    for path, plugin, kind, struct in (
        ("consumers.settings", "", "", ConsumerSettings),
        ("consumers.source", "tapi", "tapi", Options),
        ("consumers.sink", "sql", "sql", options_type()),
    ):
        table = every[path, plugin, kind]
        fields = [field.encode_name for field in msgspec.structs.fields(struct)]
        assert [key.name for key in table.keys] == fields
        assert all(key.meaning for key in table.keys)


def test_inner_tables_stand_under_their_path() -> None:
    every = found()
    bearer = every["consumers.source.auth", "tapi", "bearer"]
    assert bearer.heading == '[consumers.source.auth] with kind = "bearer" of tapi'
    assert every["consumers.source.peers", "didcomm", ""].heading == (
        "[[consumers.source.peers]] of didcomm"
    )
    assert every["consumers", "", ""].heading == "[[consumers]]"


def test_a_key_has_the_words_of_toml() -> None:
    every = found()
    keys = {key.name: key for key in every["consumers.sink", "sql", "sql"].keys}
    assert keys["url"].required
    assert (keys["journal"].type, keys["journal"].default) == (
        '"bodies" or "changes" or "off" or "previous"',
        "off",
    )
    retention = keys["journal_retention_s"]
    assert (retention.type, retention.required, retention.default) == ("number", False, None)
    source = {key.name: key for key in every["consumers.source", "tapi", "tapi"].keys}
    assert source["endpoints"].type == "list of texts"
    assert source["tls"] == Key(
        "tls", "table", False, None, "How the provider proves itself, and how we do."
    )


def test_every_plug_in_of_ours_states_its_options() -> None:
    for part in ("source", "sink"):
        assert None not in installed(part).values()


def test_a_secret_is_shown_as_a_text_without_a_value() -> None:
    token = next(
        key
        for key in found()["consumers.source.auth", "tapi", "bearer"].keys
        if key.name == "token"
    )
    assert (token.type, token.default) == ("text", None)


def test_the_meaning_of_a_key_is_read_alone() -> None:
    cut = [
        f"{table.heading} {key.name}"
        for table in tables()
        for key in table.keys
        if not key.meaning or key.meaning.startswith("…")
    ]
    assert cut == []
