"""Limits the number of open connections, in total and per address; it only counts, without I/O."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

__all__ = ["TOO_MANY", "ConnectionLimits", "is_loopback"]

TOO_MANY: Final = "too-many"
"""The reason of a refusal where there are too many connections in total."""

_LEAST_PER_ADDRESS: Final = 8
_NETWORKS_CACHED: Final = 1_024


class ConnectionLimits:
    """Counts open connections.

    Args:
        most: Most connections in total.
        most_per_address: Most from one IPv4 address or one IPv6 /64, which one host can use as a
            whole; 0: a tenth of `most`, at least 8. Loopback is exempt: a proxy on this machine may
            forward for many peers.
    """

    def __init__(self, most: int, most_per_address: int = 0) -> None:
        self.limit(most, most_per_address)
        self._by_network: Counter[str] = Counter()
        self.open = 0

    def limit(self, most: int, most_per_address: int = 0) -> None:
        """Set other limits. What is open stays open."""
        self.most = most
        """Most connections in total."""
        self._most_per_address = most_per_address or max(most // 10, _LEAST_PER_ADDRESS)

    def admit(self, address: str) -> str:
        """Count a connection of this address. Returns the reason if it is refused, else an empty
        text.
        """
        if self.open >= self.most:
            return TOO_MANY
        network = _network(address)
        if network:
            if self._by_network[network] >= self._most_per_address:
                return "too-many-of-address"
            self._by_network[network] += 1
        self.open += 1
        return ""

    def release(self, address: str) -> None:
        """Stop counting an admitted connection: it is closed."""
        self.open -= 1
        network = _network(address)
        if network:
            self._by_network[network] -= 1
            if not self._by_network[network]:
                del self._by_network[network]


def is_loopback(host: str) -> bool:
    """Whether a host, an address or a name, can only mean this machine (RFC 6761 6.3)."""
    name = host.lower().removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    ip = _address(host)
    return ip is not None and ip.is_loopback


@lru_cache(maxsize=_NETWORKS_CACHED)
def _network(address: str) -> str:
    """The network whose connections are counted together; empty for an address that is exempt."""
    ip = _address(address)
    if ip is None or ip.is_loopback:
        return ""
    if isinstance(ip, IPv6Address):
        return str(IPv6Network((int(ip) >> 64 << 64, 64)))
    return str(ip)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        ip = ip_address(text)
    except ValueError:
        return None
    mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
    return mapped or ip
