import itertools
from typing import Any

import pytest

from solver import IterationProgress, Labels, Progress, SemanticBilinear, StepProgress
from solver.datasets import SyntheticPairs
from solver.progress import WorkPlan

_QUICK: dict[str, Any] = {
    "kernels": ("linear",), "scalings": ("standard",), "n_folds": 2, "n_jobs": 1, "alpha_fraction": 1e-3
}  # fmt: skip


def test_callback_of_the_semantic_estimator_sees_numbered_steps_then_the_iterations_on_m(
    pairs: SyntheticPairs,
) -> None:
    seen: list[Progress] = []
    model = SemanticBilinear(**_QUICK)
    model.fit(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels), callback=seen.append)
    steps = list(itertools.takewhile(lambda progress: isinstance(progress, StepProgress), seen))
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    shares = [step.share for step in steps]
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert 0.7 < shares[-1] < 1.0
    assert len(steps) > 2
    iterations = seen[len(steps) :]
    assert all(isinstance(progress, IterationProgress) for progress in iterations)
    assert model.bilinear_ is not None
    assert iterations == model.bilinear_.history_


@pytest.mark.parametrize("alpha_fraction", [None, 1e-3])  # chosen after the other stages; iterated on
def test_an_exception_of_the_callback_ends_the_semantic_fit_in_every_stage(
    alpha_fraction: float | None, pairs: SyntheticPairs
) -> None:
    seen: list[Progress] = []
    model = SemanticBilinear(**{**_QUICK, "kernels": ("rbf",), "n_kept": 1, "alpha_fraction": alpha_fraction})
    arguments = pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels)
    model.fit(*arguments, callback=seen.append)
    for last in (*range(1, len(seen), 25), len(seen)):
        steps = list(range(1, last))
        with pytest.raises(IndexError, match="pop from empty list"):
            model.fit(*arguments, callback=lambda _, steps=steps: steps.pop())


def test_the_share_follows_the_costs_of_the_stages() -> None:
    shares: list[float] = []
    work = WorkPlan(shares.append)
    work.plan({"a": 1.0, "b": 3.0})
    work.begin("a", 2)
    work()
    work()
    work.begin("b", 3)
    work()
    work()
    work.finish()
    assert shares == [0.0, 0.125, 0.25, 0.5, 1.0]


def test_a_stage_may_end_early_or_be_left_out_and_stays_within_its_part() -> None:
    shares: list[float] = []
    work = WorkPlan(shares.append)
    work.plan({"a": 1.0, "b": 1.0, "none": 0.0, "c": 2.0})
    work.begin("a", 1)
    for _ in range(3):
        work()
    work.begin("b", 100)
    work()
    work.begin("c", 0)
    work()
    work()
    work.finish()
    assert shares == [0.0, 0.25, 0.25, 0.25, 0.5, 1.0, 1.0]
