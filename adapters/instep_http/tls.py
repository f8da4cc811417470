"""TLS contexts of clients and servers: certificates from files; verification is on unless it is
turned off by name.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final, Literal, Protocol
from weakref import WeakValueDictionary

import msgspec

from instep.config.secret import warn_if_readable
from instep.errors import ConfigurationError

__all__ = ["TlsFiles", "TlsOptions", "check_files", "client_context", "server_context"]

_shared: Final[WeakValueDictionary[bool, ssl.SSLContext]] = WeakValueDictionary()
"""The contexts in use without files of their own, by whether they verify. One takes 0.8 MB and 50
ms, because it has all authorities of the system.
"""


class TlsOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """TLS options of a client: how the server is verified, and the certificate that we present."""

    ca: str | None = None
    """File of the trusted certificates, PEM; None: those of the system."""
    cert: str | None = None
    """File of our certificate and its chain, PEM, for a server that requires one."""
    key: str | None = None
    """File of its private key, PEM; None: it is in the file of the certificate."""
    verify: bool | Literal["on", "off"] = True
    """Only the name ``off`` (or false) turns verification off."""

    @property
    def verifies(self) -> bool:
        """Whether the server's certificate is checked."""
        return self.verify in {True, "on"}


class TlsFiles(Protocol):
    """A table of options that names TLS files. It may name a `client_ca` besides."""

    @property
    def ca(self) -> str | None:
        """The file of the trusted certificates."""

    @property
    def cert(self) -> str | None:
        """The file of our certificate."""

    @property
    def key(self) -> str | None:
        """The file of its private key."""


def check_files(tls: TlsFiles, where: str) -> None:
    """Check that all files exist. A key that every user can read is logged as a warning.

    Raises `ConfigurationError`: a file is missing, or a key is given without a certificate.
    """
    if tls.key and not tls.cert:
        raise ConfigurationError("tls has a key and no cert", where=f"{where}.key")
    for name in ("ca", "client_ca", "cert", "key"):
        path = getattr(tls, name, None)
        if path is not None and not Path(path).is_file():
            raise ConfigurationError(
                f"no such file: {path}",
                where=f"{where}.{name}",
                hint=f"it is looked for as {Path(path).absolute()}",
            )
    if tls.key is not None:
        warn_if_readable(tls.key, f"{where}.key")


def client_context(tls: TlsOptions, where: str) -> ssl.SSLContext:
    """The TLS context of a client: verification is on unless it is turned off by name. Those that
    name no files share one: it must not be changed.

    Raises `ConfigurationError`, with the option that is wrong below `where`.
    """
    if tls.ca or tls.cert:
        return _client_context(tls, where)
    context = _shared.get(tls.verifies)
    if context is None:
        context = _shared[tls.verifies] = _client_context(tls, where)
    return context


def _client_context(tls: TlsOptions, where: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.ca)
    except (ssl.SSLError, OSError) as error:
        raise ConfigurationError(
            f"the file has no usable certificates: {error}", where=f"{where}.ca"
        ) from None
    if not tls.verifies:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert:
        _load_cert(context, tls.cert, tls.key, where)
    return context


def server_context(
    cert: str, key: str | None, where: str, *, client_ca: str | None = None
) -> ssl.SSLContext:
    """The TLS context of a server.

    Args:
        cert: File of the certificate and its chain, PEM.
        key: File of its private key, PEM; None: it is in the file of the certificate.
        where: The place of the options in the configuration, for errors.
        client_ca: File of the authorities that must have signed a client's certificate; None: no
            client certificate is required.

    Raises:
        ConfigurationError: The files cannot be read or do not belong together.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _load_cert(context, cert, key, where)
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except (ssl.SSLError, OSError) as error:
            raise ConfigurationError(
                f"the file has no usable certificates: {error}", where=f"{where}.client_ca"
            ) from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _load_cert(context: ssl.SSLContext, cert: str, key: str | None, where: str) -> None:
    try:
        context.load_cert_chain(cert, key)
    except (ssl.SSLError, OSError) as error:
        raise ConfigurationError(
            f"certificate and key do not fit: {error}", where=f"{where}.cert"
        ) from None
