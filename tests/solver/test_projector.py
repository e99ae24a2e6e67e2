from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from solver import FeatureScaler, Labels, LowRankBilinear
from solver.datasets import SyntheticPairs
from solver.projector import AffineProjector
from solver.validation import InvalidInputError, InvalidParameterError
from tests.solver.every_estimator import make_pairs


def _fitted(pairs: SyntheticPairs, alpha: float = 0.02, **parameters: Any) -> tuple[AffineProjector, Any]:
    scalers = FeatureScaler("center").fit(pairs.X), FeatureScaler("standard").fit(pairs.Z)
    model = LowRankBilinear(alpha, **parameters).fit(
        scalers[0].transform(pairs.X), scalers[1].transform(pairs.Z), Labels(pairs.x_labels, pairs.z_labels)
    )
    return AffineProjector.of(*scalers, model), model


def test_projection_is_scaling_then_the_estimators_own(pairs: SyntheticPairs) -> None:
    projector, model = _fitted(pairs)
    x, z = projector.project_x(pairs.X), projector.project_z(pairs.Z)
    np.testing.assert_array_equal(x, model.project_x(projector.x_scaler.transform(pairs.X)))
    np.testing.assert_array_equal(z, model.project_z(projector.z_scaler.transform(pairs.Z)))
    assert x.shape == (60, projector.rank)
    assert (projector.x_scaling, projector.z_scaling) == ("center", "standard")


def test_projections_are_float32_whatever_the_estimator_computed_in(pairs: SyntheticPairs) -> None:
    projector, _ = _fitted(pairs, dtype=np.float64)
    assert projector.project_x(pairs.X).dtype == np.float32
    assert projector.project_z(pairs.Z).dtype == np.float32


def test_kind_is_that_of_the_fit(pairs: SyntheticPairs) -> None:
    projector, _ = _fitted(pairs)
    before = projector.project_x(pairs.X)
    projector.x_scaler.set_params(kind="l2")
    assert projector.x_scaling == "center"
    np.testing.assert_array_equal(projector.project_x(pairs.X), before)


def _broken(array: npt.NDArray[Any], how: str) -> npt.NDArray[Any]:
    if how == "cut":
        return array[:-1]
    if how == "narrow":
        return array[..., :-1]
    if how == "flat":
        return array.ravel()[:1].reshape(())
    if how == "deep":
        return array[None]
    if how == "int8":
        return array.astype(np.int8)
    if how == "complex":
        return array.astype(complex)
    broken = array.copy()
    broken.flat[-1] = {"nan": np.nan, "inf": np.inf}[how]
    return broken


NAMES = [f"{side}_{part}" for side in "xz" for part in ("mean", "scale", "factors", "intercept")]


@cache
def _arrays() -> dict[str, npt.NDArray[Any]]:
    return _fitted(make_pairs())[0].arrays()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["cut", "narrow", "flat", "deep", "int8", "complex", "nan", "inf"])
def test_array_that_does_not_fit_is_refused(name: str, how: str) -> None:
    # Where two arrays disagree, either may be the one that is named.
    named = name if how in ("int8", "nan") else r"[xz]_\w+"
    with pytest.raises(InvalidInputError, match=rf"^{named} (must|contains)"):
        AffineProjector.from_arrays({**_arrays(), name: _broken(_arrays()[name], how)}, "center", "standard")


@pytest.mark.parametrize("name", NAMES)
def test_missing_and_unknown_arrays_are_refused(name: str) -> None:
    others = {each: array for each, array in _arrays().items() if each != name}
    for arrays in (others, {**_arrays(), "other": _arrays()[name]}):
        with pytest.raises(InvalidInputError, match="expected the arrays"):
            AffineProjector.from_arrays(arrays, "center", "center")


def test_unknown_scaling_is_named() -> None:
    arrays = _arrays()
    with pytest.raises(InvalidParameterError, match=r"^x_scaling must be"):
        AffineProjector.from_arrays(arrays, "evil", "center")
    with pytest.raises(InvalidParameterError, match=r"^z_scaling must be"):
        AffineProjector.from_arrays(arrays, "center", "evil")


def test_parts_of_different_rank_are_refused(pairs: SyntheticPairs) -> None:
    projector, _ = _fitted(pairs)
    with pytest.raises(InvalidInputError, match=r"^z_factors must have shape"):
        AffineProjector(
            projector.x_scaler,
            projector.z_scaler,
            projector.x_factors,
            projector.z_factors[:, 1:],
            projector.x_intercept,
            projector.z_intercept,
        )
