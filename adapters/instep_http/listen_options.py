"""The options that every source which listens has: where, for whom, within which bounds."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

import msgspec
from yarl import URL

from instep.config.options import read_table
from instep.errors import ConfigurationError
from instep.model.limits import Count, Seconds
from instep_http.connection_limits import is_loopback
from instep_http.server import ServerLimits
from instep_http.tls import TlsOptions, client_context, server_context
from instep_http.urls import read_listen

__all__ = ["ListenOptions", "ListenTls", "check_authenticated", "read_listen_table"]

_MIB = 1024 * 1024
_BOUNDS: Final = (
    "max_body_bytes",
    "max_connections",
    "max_connections_per_address",
    "head_timeout_s",
    "body_timeout_s",
    "idle_timeout_s",
)
"""The options that `ListenOptions.limits` is made of."""


class ListenTls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Certificates of a server, and of the client that sends to its peers."""

    cert: str | None = None
    """Our certificate (PEM), for a `listen` of https."""
    key: str | None = None
    """The key of our certificate (PEM)."""
    client_ca: str | None = None
    """The certificate authorities (PEM) that must have signed the certificate of whoever sends to
    us: its name is the sender. None: no certificate is asked for.
    """
    ca: str | None = None
    """The certificate authorities (PEM) of the servers that we send to; None: those of the
    system."""


class ListenOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a source listens. An adapter inherits it, and adds what its protocol needs."""

    listen: str
    """``http://127.0.0.1:9555/path``, or ``127.0.0.1:9555``; port 0 for a free one."""
    max_body_bytes: Count = 4 * _MIB
    """Longest body of a request."""
    max_connections: Count = 1_000
    """Most connections at once; more are closed."""
    max_connections_per_address: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Most connections from one IPv4 address or IPv6 /64; 0: a tenth of `max_connections`, at least
    8. Loopback is exempt.
    """
    allow_origins: tuple[str, ...] = ()
    """Web pages that may send: ``https://app.example.org``. Any other request with an Origin is
    refused."""
    allow_hosts: tuple[str, ...] = ()
    """Host names that requests may have, beside that of `listen`. Without any, Host is checked only
    if `listen` is on loopback: a proxy in front of it must then send its address or one of these
    names.
    """
    head_timeout_s: Seconds = 10.0
    """Longest wait for the head of a request."""
    body_timeout_s: Seconds = 30.0
    """Longest wait for the body of a request."""
    idle_timeout_s: Seconds = 60.0
    """How long a connection is kept open without a request."""
    send_timeout_s: Seconds = 20.0
    """Longest wait for the response to what we send to a peer."""
    tls: ListenTls = ListenTls()
    """Certificates of the server and of the client."""
    allow_unauthenticated: bool = False
    """Whether `listen` may be beyond loopback although nobody who sends there has to prove who it
    is: anybody who reaches it can then write in anybody's name."""

    def limits(self) -> ServerLimits:
        """The bounds of the server."""
        return ServerLimits(**{name: getattr(self, name) for name in _BOUNDS})

    def with_limits_of(self, other: ListenOptions) -> tuple[Self, list[str]]:
        """These options with the bounds of the server of others, and the names of what differs
        besides.
        """
        taken = {name: getattr(other, name) for name in _BOUNDS}
        left = [
            name
            for name in self.__struct_fields__
            if name not in _BOUNDS and getattr(self, name) != getattr(other, name)
        ]
        return msgspec.structs.replace(self, **taken), left

    def check_listen(self, where: str, *, proven: bool = False, keys_hint: str = "") -> None:
        """Raise `ConfigurationError` for an address that no server can listen on as configured, or
        at which nobody has to prove who it is: see `check_authenticated`.

        Args:
            where: The place of the options in the configuration, for errors.
            proven: Whether messages themselves prove their sender.
            keys_hint: The option that makes them.
        """
        url = read_listen(self.listen, f"{where}.listen")
        if url.scheme == "https" and not self.tls.cert:
            raise ConfigurationError("https without a certificate", where=f"{where}.tls.cert")
        if self.tls.client_ca and url.scheme != "https":
            raise ConfigurationError(
                "a client shows its certificate over https only",
                where=f"{where}.tls.client_ca",
                hint="listen on https://…",
            )
        check_authenticated(
            url,
            f"{where}.listen",
            proven=proven or bool(self.tls.client_ca),
            allowed=self.allow_unauthenticated,
            keys_hint=keys_hint,
        )

    def server_tls(self, where: str) -> ssl.SSLContext | None:
        """The TLS context of our server; None for http. Raises `ConfigurationError`."""
        if not self.listen.startswith("https:"):
            return None
        return server_context(
            self.tls.cert or "", self.tls.key, f"{where}.tls", client_ca=self.tls.client_ca
        )

    def client_tls(self, where: str) -> ssl.SSLContext:
        """The TLS context for sending to peers. Raises `ConfigurationError`."""
        return client_context(TlsOptions(ca=self.tls.ca), f"{where}.tls")


def check_authenticated(
    listen: URL, where: str, *, proven: bool, allowed: bool, keys_hint: str = ""
) -> None:
    """Check that whoever reaches the address has to prove who it is, unless it is on loopback or
    that is allowed by name. Nothing is looked up: a host name other than ``localhost`` counts as
    beyond loopback, whatever it means today.

    Raises `ConfigurationError`.

    Args:
        listen: The address.
        where: Its place in the configuration, for errors.
        proven: Whether a certificate or a key proves who sends.
        allowed: Whether `allow_unauthenticated` is set.
        keys_hint: What else would prove it, for the hint.
    """
    host = listen.host or ""
    if proven or allowed or is_loopback(host):
        return
    keys = f"{keys_hint}, or " if keys_hint else ""
    raise ConfigurationError(
        f"{host} is not loopback, and anybody who reaches it could write there in anybody's name",
        where=where,
        hint=f"{keys}https with tls.client_ca, or allow it by name: allow_unauthenticated = true",
    )


def read_listen_table(table: Mapping[str, Any], where: str, *, example: str) -> dict[str, Any]:
    """A copy of the table of a source that listens, with `listen` as a URL and `tls` read.

    Raises `ConfigurationError`; its hint shows `example`, a URL to listen on.
    """
    read = dict(table)
    if "tls" in read:
        read["tls"] = read_table(ListenTls, read["tls"], f"{where}.tls")
    if "listen" not in read:
        raise ConfigurationError(
            "the key 'listen' is missing", where=where, hint=f'for example listen = "{example}"'
        )
    if isinstance(read["listen"], str) and "://" not in read["listen"]:
        read["listen"] = f"http://{read['listen']}"
    return read
