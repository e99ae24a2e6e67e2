import itertools

import pytest

from solver import IterationProgress, Labels, Progress, SemanticBilinear, StepProgress
from solver.datasets import SyntheticPairs

_QUICK = {"kernels": ("linear",), "scalings": ("standard",), "n_folds": 2, "n_jobs": 1}


def test_callback_of_the_semantic_estimator_sees_numbered_steps_then_the_iterations_on_m(
    pairs: SyntheticPairs,
) -> None:
    seen: list[Progress] = []
    model = SemanticBilinear(**_QUICK)
    model.fit(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels), callback=seen.append)
    steps = list(itertools.takewhile(lambda progress: isinstance(progress, StepProgress), seen))
    assert steps == [StepProgress(number) for number in range(1, len(steps) + 1)]
    assert len(steps) > 2
    iterations = seen[len(steps) :]
    assert all(isinstance(progress, IterationProgress) for progress in iterations)
    assert iterations == model.bilinear_.history_


@pytest.mark.parametrize("kind", [StepProgress, IterationProgress])
def test_exception_of_the_callback_ends_the_semantic_fit(kind: type[Progress], pairs: SyntheticPairs) -> None:
    def stop(progress: Progress) -> None:
        if isinstance(progress, kind):
            raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        SemanticBilinear(**_QUICK).fit(
            pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels), callback=stop
        )
