"""How many connections there are, and which one goes when there are too many."""

from __future__ import annotations

import math
import resource
from collections import Counter, defaultdict
from typing import Protocol

_MOST_DESCRIPTORS = 65_536
_RESERVED_DESCRIPTORS = 256
"""For the database, pictures, indexes, and connections that are being closed."""
_MOST_LINGERING = 32
_CLOSING_SECONDS = 20.0
"""How long the rest of an answer may take once its connection is being closed."""


class Connection(Protocol):
    """What is known of a connection here."""

    address: str
    """The client's."""
    deadline: float
    """On the loop's clock; infinite while a request is being answered."""
    closing_since: float
    """On the loop's clock; infinite while it is open."""

    def is_closing(self) -> bool:
        """Return whether it ends once all that was written is sent."""
        ...

    def expire(self) -> None:
        """End it, since its deadline has passed."""
        ...

    def abort(self) -> None:
        """End it at once."""
        ...


class Connections:
    """The open connections of one process.

    Those that wait for a request are kept in the order in which they began to wait. When there are too many
    the address that holds the most loses one of them: one that never asked for anything, or else the one that
    has waited longest. Connections whose request is being answered are left alone.

    Parameters
    ----------
    most : int
        So many are open at once; of one address no more than three quarters of them.
    head_seconds : float
        How long each waits for the end of a request's head, from its first byte on, and of the first one
        from the beginning on.
    """

    def __init__(self, most: int, head_seconds: float) -> None:
        self.head_seconds = head_seconds
        self._most = most
        self._most_of_one = max(most * 3 // 4, 1)
        self._open: dict[Connection, None] = {}
        self._of_address: Counter[str] = Counter()
        self._new: defaultdict[str, dict[Connection, None]] = defaultdict(dict)
        self._used: defaultdict[str, dict[Connection, None]] = defaultdict(dict)
        self._lingering = 0

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: Connection) -> bool:
        """Take in a connection that waits for its first request; returns False when there is no room."""
        address = connection.address
        if self._of_address[address] >= self._most_of_one:
            has_room = self._end_one_of(address)
        elif len(self._open) >= self._most:
            has_room = self._end_one_of(self._largest_waiting())
        else:
            has_room = True
        if has_room:
            self._open[connection] = None
            self._of_address[address] += 1
            self._new[address][connection] = None
        return has_room

    def remove(self, connection: Connection) -> None:
        """Forget a connection, if it is known."""
        if connection not in self._open:
            return
        del self._open[connection]
        self._of_address[connection.address] -= 1
        if not self._of_address[connection.address]:
            del self._of_address[connection.address]
        self.begin(connection)

    def begin(self, connection: Connection) -> None:
        """Note that a connection has asked for something."""
        for waiting in (self._new, self._used):
            waiting[connection.address].pop(connection, None)
            if not waiting[connection.address]:
                del waiting[connection.address]

    def wait(self, connection: Connection) -> None:
        """Note that a connection was answered, and waits for its next request."""
        if connection in self._open:
            self._used[connection.address][connection] = None

    def linger(self) -> bool:
        """Return whether one more refused connection may stay until its client has read why."""
        if self._lingering >= _MOST_LINGERING:
            return False
        self._lingering += 1
        return True

    def stop_lingering(self) -> None:
        """Give back what `linger` gave."""
        self._lingering -= 1

    def sweep(self, now: float) -> None:
        """End those whose time is over.

        Parameters
        ----------
        now : float
            On the loop's clock, in seconds.
        """
        for connection in list(self._open):
            if connection.is_closing():
                connection.closing_since = min(connection.closing_since, now)
                if now - connection.closing_since > _CLOSING_SECONDS:
                    connection.abort()
            elif now > connection.deadline:
                connection.expire()

    def _largest_waiting(self) -> str:
        waiting = self._new.keys() | self._used.keys()
        return max(waiting, key=self._of_address.__getitem__, default="")

    def _end_one_of(self, address: str) -> bool:
        for waiting in (self._new, self._used):
            if address in waiting:
                victim = next(iter(waiting[address]))
                self.remove(victim)
                victim.abort()
                return True
        return False


def raise_descriptor_limit() -> int:
    """Allow this process as many open files as the system lets it have; returns how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY:
        return _MOST_DESCRIPTORS
    if soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(soft, most)


def most_connections(wanted: int, descriptors: int) -> int:
    """Return how many connections leave enough descriptors for everything else.

    Parameters
    ----------
    wanted : int
        No more than this.
    descriptors : int
        As many files may be open in this process.
    """
    reserved = min(_RESERVED_DESCRIPTORS, math.ceil(descriptors / 2))
    return max(min(wanted, descriptors - reserved), 1)
