"""Files of TLS: what is wrong with them is named by its option."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

import pytest
import trustme

from instep.errors import ConfigurationError
from instep_http.tls import TlsOptions, check_files, client_context, server_context


@pytest.fixture
def pem(tmp_path: Path) -> str:
    path = tmp_path / "pem"
    trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(path))
    return str(path)


def test_files_that_are_not_there_are_named(pem: str, tmp_path: Path) -> None:
    check_files(TlsOptions(ca=pem, cert=pem), "x")
    none = str(tmp_path / "none")
    for tls, where in (
        (TlsOptions(ca=none), "x.ca"),
        (TlsOptions(cert=none), "x.cert"),
        (TlsOptions(cert=pem, key=none), "x.key"),
        (TlsOptions(key=pem), "x.key"),
    ):
        with pytest.raises(ConfigurationError) as raised:
            check_files(tls, where.partition(".")[0])
        assert raised.value.where == where


@pytest.mark.parametrize(("mode", "warnings"), [(0o600, 0), (0o640, 0), (0o644, 1)])
def test_a_key_that_everybody_can_read_is_logged(
    mode: int, warnings: int, pem: str, caplog: pytest.LogCaptureFixture
) -> None:
    Path(pem).chmod(mode)
    with caplog.at_level(logging.WARNING):
        check_files(TlsOptions(cert=pem, key=pem), "x")
    assert len(caplog.records) == warnings


def test_files_without_what_is_wanted_are_named(pem: str, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("")
    for tls, where in (
        (TlsOptions(ca=str(empty)), "x.ca"),
        (TlsOptions(cert=str(empty)), "x.cert"),
    ):
        with pytest.raises(ConfigurationError) as raised:
            client_context(tls, "x")
        assert raised.value.where == where
    with pytest.raises(ConfigurationError, match="do not fit"):
        server_context(str(empty), None, "x")
    with pytest.raises(ConfigurationError) as raised:
        server_context(pem, pem, "x", client_ca=str(empty))
    assert raised.value.where == "x.client_ca"


def test_verification_is_on_unless_it_is_turned_off_by_name(pem: str) -> None:
    assert client_context(TlsOptions(), "x").verify_mode is ssl.CERT_REQUIRED
    assert client_context(TlsOptions(verify="on"), "x").check_hostname
    assert client_context(TlsOptions(verify="off"), "x").verify_mode is ssl.CERT_NONE
    assert server_context(pem, None, "x").verify_mode is ssl.CERT_NONE
    assert server_context(pem, pem, "x", client_ca=pem).verify_mode is ssl.CERT_REQUIRED


def test_clients_without_files_share_one_context(pem: str) -> None:
    first = client_context(TlsOptions(), "x")
    assert client_context(TlsOptions(verify="on"), "x") is first
    unverified = client_context(TlsOptions(verify="off"), "x")
    assert unverified is not first
    assert first.verify_mode is ssl.CERT_REQUIRED
    assert client_context(TlsOptions(ca=pem), "x") is not client_context(TlsOptions(ca=pem), "x")
