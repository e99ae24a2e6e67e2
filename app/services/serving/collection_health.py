"""Whether a collection can be searched in this process, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.domain.entities import Collection
from app.services.serving.snapshot import Snapshot

_ALL_REPLACED = "the items of its index have all been replaced"


@dataclass(frozen=True, slots=True)
class CollectionHealth:
    """How a collection with an active version stands in this process."""

    has_started: bool  # its first load has ended, well or not
    is_searchable: bool
    problem: str | None = None  # why it cannot be searched, or what is wrong all the same


def assess(
    collection: Collection,
    snapshot: Snapshot | None,
    failure: str | None,
    was_loaded: bool,
    given_up: Mapping[str, str],
) -> CollectionHealth:
    """Return how a collection with an active version stands, by its snapshot and why its last load failed."""
    # `was_loaded` once, if no longer in memory; `given_up` are the reasons why approximate indexes went, by
    # modality.
    if snapshot is None:
        if failure is not None:
            return CollectionHealth(True, False, f"{collection.name}: {failure}")
        if was_loaded:
            return CollectionHealth(True, True)
        return CollectionHealth(False, False, f"{collection.name}: loading")
    problems = [
        f"{collection.name}: the encoder of {modality!r}: {fault}"
        for modality, encoder in snapshot.model.encoders.items()
        if (fault := encoder.fault()) is not None
    ]
    if snapshot.load_failure is not None:
        active, served = collection.active_version, snapshot.model.version
        reason = f"version {served} serves instead of {active}: {snapshot.load_failure.reason}"
        problems.append(f"{collection.name}: {reason}")
    if (damage := snapshot.model.held_out_damage) is not None:
        problems.append(f"{collection.name}: later versions cannot be compared with the served one: {damage}")
    for modality in snapshot.without_index:
        reason = given_up.get(modality) or snapshot.missing_indexes.get(modality, _ALL_REPLACED)
        problems.append(f"{collection.name}: {modality!r} is searched exactly: {reason}")
    return CollectionHealth(True, True, "; ".join(problems) or None)
