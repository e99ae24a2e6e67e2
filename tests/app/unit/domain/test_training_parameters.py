"""Parameters of stored jobs: those of earlier releases are read, unknown ones are no silent default."""

from dataclasses import asdict
from typing import Any

import pytest

from app.domain.reports import Supervision, TrainingParameters


def test_stored_parameters_are_read_as_they_were() -> None:
    parameters = TrainingParameters(seed=3, supervision=Supervision(facets=("colour",)), objective="map")
    assert TrainingParameters.from_json(asdict(parameters)) == parameters


def test_parameters_of_an_earlier_job_have_defaults_for_what_came_later() -> None:
    earlier = {"method": "lrbs", "alpha": 0.1, "scaling": None, "tol": 1e-3, "max_iter": 50, "seed": 1}
    assert TrainingParameters.from_json(earlier).supervision == Supervision()


@pytest.mark.parametrize("values", [{"clicks": True}, {"supervision": {"clicks": True}}])
def test_unknown_parameters_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"unknown training parameters: .*clicks"):
        TrainingParameters.from_json(values)
