"""What ties a database and a data folder to each other."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Installation:
    """What a database says of itself."""

    identity: str  # given when its schema was made, kept by every copy
    # the last of its history, each a random word, newest last; none before it had a data folder
    points: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """What a data folder remembers of its database."""

    identity: str  # empty where the mark names another database in an older form
    point: str  # the newest of the database's history that the folder saw


@dataclass(frozen=True, slots=True)
class CopiedFiles:
    """What became of the files that were to be copied."""

    count: int  # copied; those that were there are not counted
    damaged: tuple[str, ...] = ()  # left out, because they are missing or not what their sums say
