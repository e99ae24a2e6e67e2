"""Collection metrics shared between server processes, so that any of them can report for all."""
# The files by which the Prometheus client shares metrics cannot drop a label, while collections come and go:
# hence each process writes the state of its collections to a file of its own, beside those of the client.

from __future__ import annotations

import dataclasses
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from prometheus_client.multiprocess import mark_process_dead

from app.services.health import CollectionStatus, IndexStatus

_STATUSES = msgspec.json.Decoder(list[CollectionStatus])


class Shares:
    """The files of the processes behind one port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, statuses: Sequence[CollectionStatus]) -> None:
        """Write the state of this process's collections."""
        path = _file_of(self._folder, os.getpid())
        unfinished = path.with_suffix(".tmp")
        unfinished.write_text(
            json.dumps([dataclasses.asdict(status) for status in statuses]), encoding="utf-8"
        )
        unfinished.replace(path)

    def merge(self, statuses: Sequence[CollectionStatus]) -> list[CollectionStatus]:
        """Return the given states, each value replaced by the worst of all processes."""
        by_name: dict[str, list[CollectionStatus]] = {status.name: [status] for status in statuses}
        own = _file_of(self._folder, os.getpid())
        for path in self._folder.glob(_file_of(self._folder, "*").name):
            if path == own:
                continue
            try:
                others = _STATUSES.decode(path.read_bytes())
            except FileNotFoundError:
                continue  # its process has ended
            for status in others:
                if status.name in by_name:
                    by_name[status.name].append(status)
        return [_worst(status, by_name[status.name]) for status in statuses]


def forget_process(pid: int, folder: str) -> None:
    """Remove the state that an ended process shared; its counts stay."""
    mark_process_dead(pid, folder)  # type: ignore[no-untyped-call]
    _file_of(Path(folder), pid).unlink(missing_ok=True)


def _file_of(folder: Path, pid: int | str) -> Path:
    return folder / f"collections_{pid}.json"


def _worst(own: CollectionStatus, statuses: Sequence[CollectionStatus]) -> CollectionStatus:
    return CollectionStatus(
        own.name,
        own.active_version,
        served_version=min(
            (status.served_version for status in statuses if status.served_version is not None), default=None
        ),
        revision_lag=max(
            (status.revision_lag for status in statuses if status.revision_lag is not None), default=None
        ),
        indexes=_worst_indexes([status.indexes for status in statuses]),
    )


def _worst_indexes(of_processes: Sequence[Mapping[str, IndexStatus]]) -> dict[str, IndexStatus]:
    """Return by modality the index of the lowest recall, and whether any process serves without its index."""
    worst: dict[str, IndexStatus] = {}
    for name in dict.fromkeys(itertools.chain.from_iterable(of_processes)):
        indexes = [indexes[name] for indexes in of_processes if name in indexes]
        worst[name] = dataclasses.replace(
            min(indexes, key=lambda index: index.recall),
            is_fallback=any(index.is_fallback for index in indexes),
            n_items=min((index.n_items for index in indexes if index.n_items is not None), default=None),
        )
    return worst
