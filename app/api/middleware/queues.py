"""A bounded, fair queue: no collection or caller waits behind the whole queue of another."""
# A fixed number of requests run, a fixed number wait, and the rest is rejected immediately. Free places go to
# the collections in turn (round robin), and within a collection to its callers in turn. A request that
# arrives when the queue is full is rejected, unless another collection (or, within the collection, another
# caller) has at least two more waiting: then the last of those is rejected instead (longest queue drop;
# Suter, Lakshman, Stiliadis and Choudhury, INFOCOM 1998).
#
# AnyIO's `CapacityLimiter` bounds what runs, but its queue is neither bounded nor fair between callers.

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

import anyio

from app.domain.errors import UnavailableError, overload

OnChange = Callable[["ConcurrencyLimiter"], None]
_Key = TypeVar("_Key", bound=Hashable)


def _ignore(_: ConcurrencyLimiter) -> None:
    """Observe nothing."""


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks for a place."""

    collection: str = ""  # empty for none
    caller: str = ""  # the id of its key, or its address

    @property
    def parties(self) -> tuple[Hashable, Hashable]:
        """Those who take turns: the collections, and the callers of each."""
        return self.collection, (self.collection, self.caller)


@dataclass(eq=False, slots=True)
class _Waiter:
    asker: Asker
    is_admitted: bool = False
    decided: anyio.Event | None = None

    def decide(self, is_admitted: bool) -> None:
        """Admit or reject it."""
        self.is_admitted = is_admitted
        if self.decided is not None:
            self.decided.set()


class ConcurrencyLimiter:
    """Places for requests of one workload, held until an answer begins (`whole`: until its end), and their
    queue. A caller's request beyond `of_caller` is rejected; a collection's beyond `of_collection` waits."""

    def __init__(
        self,
        name: str,
        running: int,
        waiting: int,
        whole: bool = False,
        of_caller: int | None = None,
        of_collection: int | None = None,
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
        self._queue: list[_Waiter] = []
        self._callers: Counter[str] = Counter()
        self._working: Counter[str] = Counter()
        self._present: Counter[Hashable] = Counter()
        self._last_turns: dict[Hashable, int] = {}
        self._turns = count(1)

    @property
    def waiting(self) -> int:
        """Number of waiting requests."""
        return len(self._queue)

    def check(self, asker: Asker) -> None:
        """Raise UnavailableError if there is no room, or none for this caller."""
        self._find_room(asker)

    async def enter(self, asker: Asker) -> None:
        """Wait for a place; raises UnavailableError if there is no room to wait, or no longer."""
        dropped = self._find_room(asker)
        if dropped is not None:
            self._queue.remove(dropped)
            dropped.decide(False)
        # A party's first request waits for one turn of each other party, not for all that arrives meanwhile.
        for party in asker.parties:
            self._last_turns.setdefault(party, next(self._turns))
        waiter = _Waiter(asker)
        self._queue.append(waiter)
        self._callers[asker.caller] += 1
        self._present.update(asker.parties)
        self._admit()
        if waiter.is_admitted:
            return
        waiter.decided = anyio.Event()
        try:
            await waiter.decided.wait()
            if not waiter.is_admitted:
                raise self._refusal()
        except BaseException:
            if waiter.is_admitted:
                self.leave(asker)
            else:
                if waiter in self._queue:
                    self._queue.remove(waiter)
                self._forget(asker)
                self.on_change(self)
            raise

    def leave(self, asker: Asker) -> None:
        """Give a place back."""
        self.running -= 1
        _decrease(self._working, asker.collection)
        self._forget(asker)
        self._admit()

    def _admit(self) -> None:
        while self.running < self._max_running:
            candidates = [waiter for waiter in self._queue if self._may_work(waiter.asker)]
            if not candidates:
                break
            first = min(candidates, key=self._turns_of)
            self._queue.remove(first)
            self.running += 1
            self._working[first.asker.collection] += 1
            self._last_turns.update(dict.fromkeys(first.asker.parties, next(self._turns)))
            first.decide(True)
        self.on_change(self)

    def _turns_of(self, waiter: _Waiter) -> tuple[int, ...]:
        return tuple(self._last_turns[party] for party in waiter.asker.parties)

    def _find_room(self, asker: Asker) -> _Waiter | None:
        """Return who must leave the queue for this asker; None if none must."""
        if self._of_caller is not None and self._callers[asker.caller] >= self._of_caller:
            raise self._refusal(f"{self._of_caller} requests of this kind by the same caller are running")
        if len(self._queue) < self._max_waiting:
            return None
        if self.running < self._max_running and self._may_work(asker):
            return None
        of_collection = [waiter for waiter in self._queue if waiter.asker.collection == asker.collection]
        for queue, level in ((self._queue, 0), (of_collection, 1)):
            lengths = Counter(waiter.asker.parties[level] for waiter in queue)
            for party, length in lengths.most_common(1):
                if length > lengths[asker.parties[level]] + 1:
                    return next(w for w in reversed(queue) if w.asker.parties[level] == party)
        raise self._refusal()

    def _may_work(self, asker: Asker) -> bool:
        return not asker.collection or self._working[asker.collection] < self._of_collection

    def _refusal(self, reason: str | None = None) -> UnavailableError:
        self.on_refusal(self)
        return overload() if reason is None else overload(reason)

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
