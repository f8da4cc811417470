"""An address to listen on, as it is written in a configuration. Pure."""

from __future__ import annotations

from ipaddress import ip_address

from instep.errors import ConfigurationError

__all__ = ["listen_url", "parse_listen"]


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
        f"{text!r} is not an address to listen on",
        where=where,
        hint='for example listen = "127.0.0.1:9464", or "0.0.0.0:9464" for all interfaces',
        key="listen",
    )


def listen_url(text: str, where: str) -> str:
    """The URL on which what listens there answers on this machine. Raises `ConfigurationError`."""
    host, port = parse_listen(text, where)
    if host != "localhost" and (address := ip_address(host)).is_unspecified:
        host = "127.0.0.1" if address.version == 4 else "::1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
