"""What a training is asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TrainingParameters:
    """What a training is asked for.

    Parameters
    ----------
    method : {"auto", "lrbs", "semantic", "squared"}
        "lrbs" is the paper's low-rank bilinear similarity of features, "semantic" the one of class
        posteriors (`SemanticBilinear`), "squared" the first with the squared loss, whose cost grows neither
        with pairs nor with classes. "auto" is the better of the first two on a held-out part of the items;
        where one of these would take too long or too much memory (`app.services.training.costs`), "squared"
        is tried in its place.
    alpha : float or None
        Penalty weight of "lrbs" or "squared"; chosen on the held-out part when None. Given with "auto" it
        means "lrbs".
    scaling : str or None
        Kind of feature scaling of "lrbs" or "squared". Given with "auto" it leaves "semantic" out.
    tol : float
        Relative duality gap of the final fit.
    max_iter : int
        Iteration limit of the final fit; seldom met, since a fit takes some twenty.
    seed : int
        Of the held-out split.
    """

    method: str = "auto"
    alpha: float | None = None
    scaling: str | None = None
    tol: float = 1e-3
    max_iter: int = 200
    seed: int = 0
