"""What the reading and the updating of snapshots share."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.services.serving.fallback import FallbackPolicy
from app.services.serving.serving_history import ServingHistory
from app.services.serving.snapshot_cache import SnapshotCache
from app.services.serving.waiting_room import WaitingRoom


@dataclass(frozen=True, slots=True)
class ServingState:
    """What is served by this process, and what has happened to it.

    Parameters
    ----------
    cache : SnapshotCache
        The snapshots in memory.
    history : ServingHistory
        Loads, failures and writes.
    fallback : FallbackPolicy
        What serves while an active version cannot be loaded.
    waiting_room : WaitingRoom
        Bounds the requests that wait.
    """

    cache: SnapshotCache
    history: ServingHistory = field(default_factory=ServingHistory)
    fallback: FallbackPolicy = field(default_factory=FallbackPolicy)
    waiting_room: WaitingRoom = field(default_factory=WaitingRoom)
