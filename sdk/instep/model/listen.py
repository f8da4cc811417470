"""An address to listen on, as it is written in a configuration. Pure."""

from __future__ import annotations

from ipaddress import ip_address

from instep.errors import ConfigurationError

__all__ = ["parse_listen"]


def parse_listen(text: str, where: str) -> tuple[str, int]:
    """The host and port of `listen`: loopback where no host is named. Raises
    `ConfigurationError`.
    """
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if port.isdecimal() and int(port) < 1 << 16:
        try:
            ip_address(host)
        except ValueError:
            if host == "localhost":
                return host, int(port)
        else:
            return host, int(port)
    raise ConfigurationError(
        f"{text!r} is no address to listen on",
        where=where,
        hint='for example listen = "127.0.0.1:9464", or "0.0.0.0:9464" for all interfaces',
        key="listen",
    )
