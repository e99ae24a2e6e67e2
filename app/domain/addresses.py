"""Client addresses: which of them count as one client."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network

_SITE_BITS = 64
"""Leading bits that all addresses of one IPv6 site share (RFC 6177)."""
_REMEMBERED = 4096
"""Addresses whose party is remembered: a client sends many requests."""


@lru_cache(_REMEMBERED)
def party_of(host: str) -> str:
    """Return what stands for all addresses that one party has: of IPv6, its network.

    Parameters
    ----------
    host : str
        An address; anything else, such as the path of a socket, stands for itself.
    """
    try:
        address = ip_address(host)
    except ValueError:
        return host
    is_network = isinstance(address, IPv6Address)
    return str(ip_network((int(address), _SITE_BITS), strict=False)) if is_network else host


def unmap_ipv4(host: str) -> str:
    """Return an IPv4 address that a socket of both families gives as IPv6 in its usual form."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return host if mapped is None else str(mapped)
