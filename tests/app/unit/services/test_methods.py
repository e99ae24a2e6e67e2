"""Which methods are evaluated, and what happens to one that cannot be fitted."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from app.cli.train import choice_lines
from app.domain.reports import TrainingParameters, TrainingReport
from app.services.training.data import LabelledItems
from app.services.training.methods import LowRankMethod, SemanticMethod, evaluate_all
from solver import make_low_rank_pairs
from solver.evaluation.splits import LabelledPair
from solver.validation import InvalidInputError, NumericalError, SolverError, SupervisionError


class _Refusing(SemanticMethod):
    def __init__(self, error: SolverError, name: str = "refusing") -> None:
        self.name, self._error = name, error

    def evaluate(self, fitting: Any, held_out: Any) -> Any:
        raise self._error


@pytest.fixture
def parts() -> tuple[LabelledPair, LabelledPair]:
    drawn = make_low_rank_pairs(60, 60, n_features_x=5, n_features_z=4, n_classes=3, random_state=0)
    labels = (each.astype(np.str_) for each in (drawn.x_labels, drawn.z_labels))
    ids = np.arange(60).astype(np.str_)
    return LabelledItems(drawn.X, drawn.Z, *labels, ids, ids).split(0.3, 100, 0)


@pytest.mark.parametrize("kind", [SupervisionError, InvalidInputError, NumericalError])
def test_the_other_method_is_used_when_one_cannot_be_fitted(
    kind: type[SolverError], parts: tuple[LabelledPair, LabelledPair]
) -> None:
    methods = [LowRankMethod(TrainingParameters(), lambda _: None), _Refusing(kind("too odd"))]
    for order in (methods, methods[::-1]):
        fits, refused = evaluate_all(order, *parts, lambda _: None)
        assert list(fits) == ["lrbs"]
        assert refused == {"refusing": (why := "it cannot be fitted without held-out items: too odd")}
    report = TrainingReport.from_json({"methods": {"lrbs": 0.5}, "refused": refused})
    assert choice_lines(report) == [f"method 'refusing' was left out: {why}"]
    report = TrainingReport.from_json(
        {"method": "lrbs", "refused": {"lrbs": "without held-out items: too few"}}
    )
    assert choice_lines(report) == ["nothing was measured without held-out items: too few"]


def test_when_none_can_be_fitted_the_first_says_why(parts: tuple[LabelledPair, LabelledPair]) -> None:
    methods = [_Refusing(InvalidInputError("too odd")), _Refusing(NumericalError("too large"), "second")]
    with pytest.raises(NumericalError, match="too large"):
        evaluate_all(methods[::-1], *parts, lambda _: None)


def test_all_items_are_fitted_with_the_classifiers_that_were_selected(
    parts: tuple[LabelledPair, LabelledPair],
) -> None:
    fitting, held_out = parts
    method = SemanticMethod(TrainingParameters(), lambda _: None)
    fitted: Any = method.evaluate(fitting, held_out)
    sides = (fitted.x_ensemble, fitted.z_ensemble)
    evaluated = [
        [
            (b.feature_map.scaler.kind_, b.feature_map.kernel, m.weight)
            for b in side.branches
            for m in b.classifiers
        ]
        for side in sides
    ]
    # Of features whose norm alone says the class, others than those of "l2" would be chosen.
    rng = np.random.default_rng(7)
    norms = 1.0 + np.unique(fitting.x_labels, return_inverse=True)[1][:, None]
    directions = rng.standard_normal(fitting.X.shape)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    data = dataclasses.replace(fitting, X=norms * directions, Z=rng.permutation(fitting.Z))
    assert classifiers(SemanticMethod(TrainingParameters(), lambda _: None), data) != evaluated
    assert classifiers(method, data) == evaluated


def classifiers(method: SemanticMethod, data: LabelledPair) -> list[list[tuple[str, str, float]]]:
    posteriors = method.fit(data).report.posteriors
    return [[(c.scaling, c.kernel, c.weight) for c in side.classifiers] for side in posteriors]
