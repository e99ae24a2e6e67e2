"""What can be said of a collection that is to be served: whether it is, and what is wrong."""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.entities import Collection
from app.services.serving.loading import Snapshot


@dataclass(frozen=True, slots=True)
class Outlook:
    """What became of a collection's first load in this process.

    Parameters
    ----------
    is_tried : bool
        Whether it has ended.
    is_served : bool
        Whether searches are answered.
    reason : str or None
        Why not, or what is wrong all the same.
    """

    is_tried: bool
    is_served: bool
    reason: str | None = None


def outlook_of(
    collection: Collection, held: Snapshot | None, failure: str | None, was_loaded: bool
) -> Outlook:
    """Return how a collection stands.

    Parameters
    ----------
    collection : Collection
        As the database has it, with an active version.
    held : Snapshot or None
        What serves.
    failure : str or None
        Why the last renewal failed.
    was_loaded : bool
        Whether it was loaded once, even if it is no longer in memory.
    """
    if held is None:
        if failure is not None:
            return Outlook(True, False, f"{collection.name}: {failure}")
        if was_loaded:
            return Outlook(True, True)
        return Outlook(False, False, f"{collection.name}: loading")
    faults = [
        f"{collection.name}: the encoder of {modality!r}: {fault}"
        for modality, encoder in held.model.encoders.items()
        if (fault := encoder.fault()) is not None
    ]
    if held.damage is not None:
        active, served = collection.active_version, held.model.version
        reason = f"version {served} serves instead of {active}: {held.damage.reason}"
        faults.append(f"{collection.name}: {reason}")
    if (damage := held.model.held_out_damage) is not None:
        faults.append(f"{collection.name}: later versions cannot be compared with the served one: {damage}")
    return Outlook(True, True, "; ".join(faults) or None)
