"""What ties a database and a data folder to each other."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Installation:
    """What a database says of itself.

    Parameters
    ----------
    identity : str
        Given when its schema was made, kept by every copy.
    points : tuple of str
        The last points of its history, each a random word, newest last; none before it had a data folder.
    """

    identity: str
    points: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """What a data folder remembers of its database.

    Parameters
    ----------
    identity : str
        Of the database; empty where the mark names another one in an older form.
    point : str
        The newest point of the database's history that the folder saw.
    """

    identity: str
    point: str


@dataclass(frozen=True, slots=True)
class CopiedFiles:
    """What became of the files that were to be copied.

    Parameters
    ----------
    count : int
        How many were copied; those that were there are not counted.
    damaged : tuple of str
        Names of those that were left out, because they are missing or not what their sums say.
    """

    count: int
    damaged: tuple[str, ...] = ()
