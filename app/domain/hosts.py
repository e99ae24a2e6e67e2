"""Hosts: which addresses count as one, paths that a service can stand under, and cores of this one."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from pathlib import Path

_SITE_BITS = 64  # leading bits that all addresses of one IPv6 site share (RFC 6177)
_REMEMBERED = 4096  # addresses whose party is remembered: a client sends many requests
_PREFIX = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._~-]+)*")
_LONGEST_PREFIX = 200


@lru_cache(_REMEMBERED)
def party_of(host: str) -> str:
    """Return what stands for all addresses that one party has: of IPv6, its network; of no address, such as a
    socket, itself."""
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


def path_prefix_of(written: str) -> str:
    """Return a path such as ``/lrbs``, empty for ``/``; raises ValueError for anything else.
    It becomes part of addresses: with other characters these could lead to other hosts, or end a header."""
    prefix = written.removesuffix("/")
    if len(prefix) > _LONGEST_PREFIX or not _PREFIX.fullmatch(prefix):
        raise ValueError(
            f"has to be a path such as /lrbs, of letters, digits and ._~- only, not {written[:80]!r}"
        )
    return prefix


_CONTAINER_LIMIT = Path("/sys/fs/cgroup/cpu.max")


def usable_cores() -> int:
    """Return how many cores the machine, its affinity mask and the container's limit leave; at least 1."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = (os.cpu_count() or 1) if affinity is None else len(affinity(0))
    try:
        quota, period = _CONTAINER_LIMIT.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return max(cores, 1)
    return max(min(cores, int(quota) // int(period)), 1) if quota.isdigit() else max(cores, 1)
