"""Checking that a supervision fits the samples it comes with."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from solver.linalg.matrices import Samples
from solver.supervision.base import Indices
from solver.validation.errors import SupervisionError


@runtime_checkable
class Ordered(Protocol):
    """Supervision of a known number of samples."""

    @property
    def x_order(self) -> Indices:
        """Visiting order of the first modality's samples."""
        ...

    @property
    def z_order(self) -> Indices:
        """Visiting order of the second modality's samples."""
        ...


def check_sizes(X: Samples, Z: Samples, supervision: Ordered) -> None:
    """Raise SupervisionError unless `supervision` is a supervision of as many samples as there are."""
    if not isinstance(supervision, Ordered):
        raise SupervisionError(
            f"expected Labels, MultiLabels, PairedRows or SignedPairs, got {type(supervision).__name__}"
        )
    for name, samples, order in (("X", X, supervision.x_order), ("Z", Z, supervision.z_order)):
        if samples.shape[0] != len(order):
            raise SupervisionError(f"{name} has {samples.shape[0]} samples, the supervision has {len(order)}")
