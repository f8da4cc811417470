"""A secret shows itself only when asked by name."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import trustme

from instep.config.plugins import source_plugin
from instep.config.secret import Secret


def test_no_text_form_shows_it() -> None:
    secret = Secret("s3cret")
    assert {repr(secret), str(secret), f"{secret}", f"{secret!r}", "%s" % secret} == {"***"}  # noqa: UP031
    assert secret.reveal() == "s3cret"
    with pytest.raises(TypeError):
        pickle.dumps(secret)


def test_secrets_compare_by_value() -> None:
    assert Secret("a") == Secret("a")
    assert len({Secret("a"), Secret("a"), Secret("é")}) == 2
    assert Secret("a") != "a"
    assert not Secret("")


@pytest.mark.parametrize(
    ("kind", "table"),
    [
        ("tapi", {"auth": {"kind": "bearer", "token_file": "FILE"}, "endpoints": ["https://a"]}),
        ("tapi", {"tls": {"cert": "CERT", "key": "FILE"}, "endpoints": ["https://a"]}),
        ("didcomm", {"listen": "127.0.0.1:0", "secrets_file": "FILE"}),
    ],
)
def test_a_file_of_secrets_that_every_user_can_read_is_reported(
    kind: str, table: dict[str, object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    issued = trustme.CA().issue_cert("a")
    cert, file = tmp_path / "cert.pem", tmp_path / "file"
    issued.cert_chain_pems[0].write_to_path(cert)
    keys = b'{"keys": []}' if kind == "didcomm" else issued.private_key_pem.bytes()
    file.write_bytes(keys)

    options = json.loads(
        json.dumps(table).replace('"FILE"', json.dumps(str(file))).replace("CERT", str(cert))
    )
    for mode, reported in ((0o600, False), (0o644, True)):
        file.chmod(mode)
        caplog.clear()
        source_plugin(kind).build(options, "source")
        assert (f"can read {file}" in caplog.text) is reported
