"""A bounded, fair queue: no collection or caller waits behind the whole queue of another.

A fixed number of requests run, a fixed number wait, and the rest is rejected immediately. Free places go to
the collections in turn (round robin), and within a collection to its callers in turn. A request that arrives
when the queue is full is rejected, unless another collection (or, within the collection, another caller) has
at least two more waiting: then the last of those is rejected instead (longest queue drop; Suter, Lakshman,
Stiliadis and Choudhury, INFOCOM 1998).

Requests of one group may be answered together: they share a ride, which takes one place. While as many rides
of the group are under way as may be, its requests wait, and the next ride takes all of them.

AnyIO's `CapacityLimiter` bounds what runs, but its queue is neither bounded nor fair between callers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

import anyio

from app.domain.errors import OverloadedError

OnChange = Callable[["ConcurrencyLimiter"], None]
_Key = TypeVar("_Key", bound=Hashable)
_LARGEST_RIDE = 16
"""Requests of one ride: the first of them waits for the answers to all."""


def _ignore(_: ConcurrencyLimiter) -> None:
    """Observe nothing."""


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks for a place.

    Parameters
    ----------
    collection : str
        Collection of the request; empty for none.
    caller : str
        Identifies the caller: the id of its key, or its address.
    """

    collection: str = ""
    caller: str = ""

    @property
    def parties(self) -> tuple[Hashable, Hashable]:
        """Those who take turns: the collections, and the callers of each."""
        return self.collection, (self.collection, self.caller)


@dataclass(eq=False, slots=True)
class Ride:
    """Requests that hold one place together.

    Parameters
    ----------
    group : hashable or None
        What they have in common; None for a request that is alone.
    collection : str
        Whose place it is.
    size : int
        How many of them have not left.
    load : object
        Set by those who ride.
    """

    group: Hashable | None
    collection: str
    size: int
    load: object = None


@dataclass(eq=False, slots=True)
class _Waiter:
    asker: Asker
    group: Hashable | None
    ride: Ride | None = None
    decided: anyio.Event | None = None

    def decide(self, ride: Ride | None) -> None:
        """Admit it to a ride; reject it if that is None."""
        self.ride = ride
        if self.decided is not None:
            self.decided.set()


class ConcurrencyLimiter:
    """Places for requests of one workload, and the queue in front of them.

    Parameters
    ----------
    name : str
        Name in the metrics.
    running : int
        Most requests that run at the same time.
    waiting : int
        Most requests that wait.
    whole : bool
        Whether a place is held until the end of the answer, not only until its beginning.
    of_caller : int, optional
        Most requests of one caller, running and waiting; one more is rejected.
    of_collection : int, optional
        Most running requests of one collection; one more waits, if there is room.
    rides_of_group : int
        Most rides of one group that are under way.
    """

    def __init__(
        self,
        name: str,
        running: int,
        waiting: int,
        whole: bool = False,
        of_caller: int | None = None,
        of_collection: int | None = None,
        rides_of_group: int = 1,
    ) -> None:
        self.name = name
        self.whole = whole
        self.running = 0
        self.on_change: OnChange = _ignore
        self.on_refusal: OnChange = _ignore
        self._max_running = running
        self._max_waiting = waiting
        self._of_caller = of_caller
        self._of_collection = running if of_collection is None else of_collection
        self._rides_of_group = rides_of_group
        self._queue: list[_Waiter] = []
        self._callers: Counter[str] = Counter()
        self._working: Counter[str] = Counter()
        self._rides: Counter[Hashable] = Counter()
        self._present: Counter[Hashable] = Counter()
        self._last_turns: dict[Hashable, int] = {}
        self._turns = count(1)

    @property
    def waiting(self) -> int:
        """Number of waiting requests."""
        return len(self._queue)

    def check(self, asker: Asker) -> None:
        """Raise OverloadedError if there is no room, or none for this caller."""
        self._find_room(asker)

    async def enter(self, asker: Asker, group: Hashable | None = None) -> Ride:
        """Wait for a place; raises OverloadedError if there is no room to wait, or no longer.

        Parameters
        ----------
        asker : Asker
            Who asks.
        group : hashable, optional
            Others of this group may share the place.
        """
        dropped = self._find_room(asker, group)
        if dropped is not None:
            self._queue.remove(dropped)
            dropped.decide(None)
        # A party's first request waits for one turn of each other party, not for all that arrives meanwhile.
        for party in asker.parties:
            self._last_turns.setdefault(party, next(self._turns))
        waiter = _Waiter(asker, group)
        self._queue.append(waiter)
        self._callers[asker.caller] += 1
        self._present.update(asker.parties)
        self._admit()
        if waiter.ride is not None:
            return waiter.ride
        waiter.decided = anyio.Event()
        try:
            await waiter.decided.wait()
            if waiter.ride is None:
                raise self._refusal()
        except BaseException:
            if waiter.ride is not None:
                self.leave(asker, waiter.ride)
            else:
                if waiter in self._queue:
                    self._queue.remove(waiter)
                self._forget(asker)
                self.on_change(self)
            raise
        return waiter.ride

    def leave(self, asker: Asker, ride: Ride | None = None) -> None:
        """End a request's part in a ride (None where it is alone); the place is free once all have left."""
        if ride is not None:
            ride.size -= 1
        if ride is None or not ride.size:
            self.running -= 1
            _decrease(self._working, asker.collection if ride is None else ride.collection)
            if ride is not None and ride.group is not None:
                _decrease(self._rides, ride.group)
        self._forget(asker)
        self._admit()

    def _admit(self) -> None:
        while self.running < self._max_running:
            candidates = [
                waiter
                for waiter in self._queue
                if self._may_work(waiter.asker) and self._may_ride(waiter.group)
            ]
            if not candidates:
                break
            first = min(candidates, key=self._turns_of)
            riders = [first] if first.group is None else self._waiting_of(first.group)
            ride = Ride(first.group, first.asker.collection, len(riders))
            self.running += 1
            self._working[first.asker.collection] += 1
            if first.group is not None:
                self._rides[first.group] += 1
            turn = next(self._turns)
            for rider in riders:
                self._queue.remove(rider)
                self._last_turns.update(dict.fromkeys(rider.asker.parties, turn))
                rider.decide(ride)
        self.on_change(self)

    def _waiting_of(self, group: Hashable) -> list[_Waiter]:
        """Return those of a group who wait, in turn, and no more than may ride together."""
        waiting = [waiter for waiter in self._queue if waiter.group == group]
        return sorted(waiting, key=self._turns_of)[:_LARGEST_RIDE]

    def _turns_of(self, waiter: _Waiter) -> tuple[int, ...]:
        return tuple(self._last_turns[party] for party in waiter.asker.parties)

    def _find_room(self, asker: Asker, group: Hashable | None = None) -> _Waiter | None:
        """Return who must leave the queue for this asker; None if none must."""
        if self._of_caller is not None and self._callers[asker.caller] >= self._of_caller:
            raise self._refusal(f"{self._of_caller} requests of this kind by the same caller are running")
        if len(self._queue) < self._max_waiting:
            return None
        if self._has_place(asker) and (self._may_ride(group) or self._has_room_beside_ride(asker)):
            return None
        of_collection = [waiter for waiter in self._queue if waiter.asker.collection == asker.collection]
        for queue, level in ((self._queue, 0), (of_collection, 1)):
            lengths = Counter(waiter.asker.parties[level] for waiter in queue)
            for party, length in lengths.most_common(1):
                if length > lengths[asker.parties[level]] + 1:
                    return next(w for w in reversed(queue) if w.asker.parties[level] == party)
        raise self._refusal()

    def _has_place(self, asker: Asker) -> bool:
        return self.running < self._max_running and self._may_work(asker)

    def _has_room_beside_ride(self, asker: Asker) -> bool:
        """Return whether as few wait as could wait and run if each of them had a place of its own."""
        unused = min(self._max_running - self.running, self._of_collection - self._working[asker.collection])
        return len(self._queue) < self._max_waiting + unused

    def _may_ride(self, group: Hashable | None) -> bool:
        return group is None or self._rides[group] < self._rides_of_group

    def _may_work(self, asker: Asker) -> bool:
        return not asker.collection or self._working[asker.collection] < self._of_collection

    def _refusal(self, reason: str | None = None) -> OverloadedError:
        self.on_refusal(self)
        return OverloadedError() if reason is None else OverloadedError(reason)

    def _forget(self, asker: Asker) -> None:
        _decrease(self._callers, asker.caller)
        for party in asker.parties:
            _decrease(self._present, party)
            if party not in self._present:
                self._last_turns.pop(party, None)


def _decrease(counter: Counter[_Key], key: _Key) -> None:
    """Subtract one, and forget a key at zero."""
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
