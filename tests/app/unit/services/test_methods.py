"""Which methods of a retrain are tried, and what becomes of one that cannot be fitted."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from app.cli.console import choice_lines
from app.domain.entities import TrainingParameters, TrainingReport
from app.services.training.methods import LowRankRecipe, SemanticRecipe, try_each
from solver import make_low_rank_pairs
from solver.errors import InvalidInputError, NumericalError, SolverError, SupervisionError
from solver.evaluation.splits import LabelledPair


class _Refusing(SemanticRecipe):
    def __init__(self, error: SolverError, method: str = "refusing") -> None:
        self.method, self._error = method, error

    def tried(self, fitting: Any, held_out: Any) -> Any:
        raise self._error


@pytest.fixture
def parts() -> tuple[LabelledPair, LabelledPair]:
    drawn = make_low_rank_pairs(60, 60, n_features_x=5, n_features_z=4, n_classes=3, random_state=0)
    labels = (each.astype(np.str_) for each in (drawn.x_labels, drawn.z_labels))
    return LabelledPair(drawn.X, drawn.Z, *labels).split(0.3, 100, 0)


@pytest.mark.parametrize("kind", [SupervisionError, InvalidInputError, NumericalError])
def test_the_other_method_is_used_when_one_cannot_be_fitted(
    kind: type[SolverError], parts: tuple[LabelledPair, LabelledPair]
) -> None:
    recipes = [LowRankRecipe(TrainingParameters(), lambda _: None), _Refusing(kind("too odd"))]
    for order in (recipes, recipes[::-1]):
        trials, refused = try_each(order, *parts)
        assert list(trials) == ["lrbs"]
        assert refused == {"refusing": "without held-out items: too odd"}
    report = TrainingReport.from_json({"methods": {"lrbs": 0.5}, "refused": refused})
    assert choice_lines(report) == ["'refusing' could not be tried: without held-out items: too odd"]


def test_when_none_can_be_fitted_the_first_says_why(parts: tuple[LabelledPair, LabelledPair]) -> None:
    recipes = [_Refusing(InvalidInputError("too odd")), _Refusing(NumericalError("too large"), "second")]
    with pytest.raises(NumericalError, match="too large"):
        try_each(recipes[::-1], *parts)


def test_all_items_are_fitted_with_the_classifiers_that_were_tried(
    parts: tuple[LabelledPair, LabelledPair],
) -> None:
    fitting, held_out = parts
    recipe = SemanticRecipe(TrainingParameters(), lambda _: None)
    trial = recipe.tried(fitting, held_out)
    sides = (trial.projector.x_ensemble, trial.projector.z_ensemble)
    tried = [
        [
            (b.feature_map.scaler.kind_, b.feature_map.kernel, m.weight)
            for b in side.branches
            for m in b.classifiers
        ]
        for side in sides
    ]
    # Of other features others would be chosen.
    rng = np.random.default_rng(7)
    sizes = np.exp(4.0 * rng.standard_normal((len(fitting.X), 1)))
    data = dataclasses.replace(fitting, X=sizes * fitting.X, Z=rng.permutation(fitting.Z))
    assert classifiers(SemanticRecipe(TrainingParameters(), lambda _: None), data) != tried
    assert classifiers(recipe, data) == tried


def classifiers(recipe: SemanticRecipe, data: LabelledPair) -> list[list[tuple[str, str, float]]]:
    posteriors = recipe.fitted(data).posteriors
    return [[(c.scaling, c.kernel, c.weight) for c in side.classifiers] for side in posteriors]
