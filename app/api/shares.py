"""What each of several server processes holds of the collections, told by whichever of them is asked.

The client library's own files for several processes have no way to forget a label, and collections come and
go: so each process writes what it holds to a file of its own, beside those of the library.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from prometheus_client.multiprocess import mark_process_dead

from app.services.health.status import CollectionStatus

_Number = TypeVar("_Number", int, float)


class Shares:
    """The files of the processes behind one port.

    Parameters
    ----------
    folder : Path
        Where they lie.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, found: Sequence[CollectionStatus]) -> None:
        """Tell the others what this process holds."""
        path = _file_of(self._folder, os.getpid())
        unfinished = path.with_suffix(".tmp")
        unfinished.write_text(json.dumps([dataclasses.asdict(one) for one in found]), encoding="utf-8")
        unfinished.replace(path)

    def merged(self, found: Sequence[CollectionStatus]) -> list[CollectionStatus]:
        """Return what this process found, each fact replaced by the worst that any process tells of it."""
        told: dict[str, list[CollectionStatus]] = {one.name: [one] for one in found}
        own = _file_of(self._folder, os.getpid())
        for path in self._folder.glob(_file_of(self._folder, "*").name):
            if path == own:
                continue
            try:
                entries = json.loads(path.read_text(encoding="utf-8"))
            except FileNotFoundError:
                continue  # its process has ended
            for entry in entries:
                if entry["name"] in told:
                    told[entry["name"]].append(CollectionStatus(**entry))
        return [_worst(one, told[one.name]) for one in found]


def forget_process(pid: int, folder: str) -> None:
    """Remove what an ended process told of the present; what it counted stays.

    Parameters
    ----------
    pid : int
        Its number.
    folder : str
        Where the processes share what they count.
    """
    mark_process_dead(pid, folder)  # type: ignore[no-untyped-call]
    _file_of(Path(folder), pid).unlink(missing_ok=True)


def _file_of(folder: Path, pid: int | str) -> Path:
    return folder / f"collections_{pid}.json"


def _worst(own: CollectionStatus, told: Sequence[CollectionStatus]) -> CollectionStatus:
    return CollectionStatus(
        own.name,
        own.active_version,
        served_version=min(
            (one.served_version for one in told if one.served_version is not None), default=None
        ),
        revision_lag=max((one.revision_lag for one in told if one.revision_lag is not None), default=None),
        index_sizes=_least(one.index_sizes for one in told),
        recall=_least(one.recall for one in told),
    )


def _least(told: Iterable[Mapping[str, _Number]]) -> dict[str, _Number]:
    found: dict[str, _Number] = {}
    for one in told:
        for name, number in one.items():
            found[name] = min(found.get(name, number), number)
    return found
