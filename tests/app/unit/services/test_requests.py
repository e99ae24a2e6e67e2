from collections.abc import Iterator
from dataclasses import replace

import pytest

from app.domain.errors import InvalidFieldError
from app.domain.reports import Supervision, TrainingParameters
from app.services.training.requests import check_labels, check_parameters
from tests.app.refused import refused

NAMES = ("image", "text")


def labels(classes: str) -> Iterator[tuple[str, ...]]:
    return iter([(one,) for one in classes])


@pytest.mark.parametrize(
    ("images", "texts", "chooses", "said"),
    [
        ("", "ab", True, "no item of modality 'image'"),
        ("ab", "", True, "no item of modality 'text'"),
        ("aab", "ccd", True, "'image' has 'a' and 'b' and 'text' has 'c' and 'd'"),
        ("aaaa", "aaaa", False, "have the label 'a'"),
        ("ab", "aabb", True, "two items of 'image' and two of 'text'"),
        ("aab", "abb", True, "give alpha"),
    ],
)
def test_labels_that_cannot_be_trained_on_are_refused(
    images: str, texts: str, chooses: bool, said: str
) -> None:
    with refused("training-data", match=said):
        check_labels(NAMES, (labels(images), labels(texts)), chooses)


@pytest.mark.parametrize(
    ("images", "texts", "chooses"),
    [("aabb", "bbaa", True), ("aa", "aab", True), ("ab", "ab", False), ("a", "ab", False)],
)
def test_labels_that_suffice_pass(images: str, texts: str, chooses: bool) -> None:
    check_labels(NAMES, (labels(images), labels(texts)), chooses)


def test_reading_stops_when_the_labels_suffice() -> None:
    images, texts = labels("aabb" + "c" * 100), labels("abab" + "c" * 100)
    check_labels(NAMES, (images, texts), True)
    assert len(list(images)) == 100


def test_without_pairs_an_objective_may_name_partners_where_they_weigh_nothing() -> None:
    parameters = TrainingParameters(
        supervision=Supervision(pairs=False), objective={"map": 1.0, "recall": 0.0}
    )
    check_parameters(parameters)
    with pytest.raises(InvalidFieldError) as refusal:
        check_parameters(replace(parameters, objective={"map": 1.0, "recall": 0.1}))
    assert refusal.value.field == "objective.recall"


@pytest.mark.parametrize(
    "field",
    [
        *(("alpha", alpha) for alpha in (0.0, 1e-300, 1e-38, 1e300, float("inf"), float("nan"))),
        *(("tol", tol) for tol in (0.0, 1.0, float("nan"))),
        *(("max_iter", limit) for limit in (0, 10**9)),
        *(("seed", seed) for seed in (-1, 2**32)),
        ("scaling", "round"),
    ],
)
def test_parameters_no_training_could_use_are_refused_by_name(field: tuple[str, float | str]) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        check_parameters(replace(TrainingParameters(), **dict([field])))
    assert caught.value.field == field[0]
