"""Which IP addresses a client connects to.

An address is checked when the connection is made, after the name was resolved: a name that
resolves to another address each time cannot pass the check with one and be connected to by another.
"""

from __future__ import annotations

import errno
import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final, Protocol

from instep_http.errors import AddressRefusedError

__all__ = ["ANY_ADDRESS", "PUBLIC_ONLY", "AddressPolicy", "literal_address"]

_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
_NAT64: Final = IPv6Network("64:ff9b::/96")


class AddressPolicy(Protocol):
    """Decides whether the client may connect to an IP address."""

    def check(self, ip: IPv4Address | IPv6Address) -> None:
        """Raise `AddressRefusedError` where no connection may be made to it."""


class _AnyAddress:
    def check(self, ip: IPv4Address | IPv6Address) -> None:
        pass


class _PublicOnly:
    def check(self, ip: IPv4Address | IPv6Address) -> None:
        if not _is_public(ip):
            # The same text for all addresses: aiohttp merges equal errors of several addresses of a
            # name.
            raise AddressRefusedError(errno.EACCES, "its address is not a public one")


ANY_ADDRESS: Final[AddressPolicy] = _AnyAddress()
"""For hosts that the user configured: allows every address."""
PUBLIC_ONLY: Final[AddressPolicy] = _PublicOnly()
"""For hosts that a peer stated: refuses loopback, link-local, private, shared, multicast, reserved
and unspecified addresses, and IPv6 addresses that contain one of these.
"""


def literal_address(host: str) -> IPv4Address | IPv6Address | None:
    """The IP address that the host of a URL states, in any notation that a resolver accepts; None:
    a name.
    """
    try:
        return ip_address(host)
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host))  # 127.1, 0x7f000001
    except (OSError, ValueError):
        return None


def _is_public(ip: IPv4Address | IPv6Address) -> bool:
    if isinstance(ip, IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        if inner is None and ip in _NAT64:
            inner = IPv4Address(int(ip) & 0xFFFF_FFFF)
        if inner is not None:
            return _is_public(inner)
        if ip not in _GLOBAL_UNICAST:
            return False
    return ip.is_global and not ip.is_multicast and not ip.is_reserved
