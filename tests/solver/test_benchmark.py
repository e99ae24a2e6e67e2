import json
from pathlib import Path

import numpy as np
import pytest

from solver.benchmark import (
    DATASETS,
    TARGET,
    Curve,
    machine,
    make_instance,
    run_solver_benchmark,
)
from solver.progress import IterationProgress
from solver.validation import DatasetError, InvalidParameterError


def test_report_compares_all_methods_at_one_optimum() -> None:
    seen: list[tuple[str, IterationProgress]] = []
    report = run_solver_benchmark(
        make_instance("tiny", None), on_step=lambda method, step: seen.append((method, step))
    )
    assert json.loads(json.dumps(report)) == report
    assert {method for method, _ in seen} == {"apg"}
    curves = {curve["method"]: curve for curve in report["curves"]}
    assert set(curves) == {"apg", "paper", "lbfgs"}
    assert curves["apg"]["facts"]["converged"]
    for name, curve in curves.items():
        assert len(curve["seconds"]) == len(curve["objective"]) > 0
        assert curve["seconds"] == sorted(curve["seconds"])
        # None is better than the optimum but for the rounding of its own precision.
        assert min(curve["objective"]) >= report["optimum"] * (1 - 1e-5)
        assert report["seconds_to_target"][name] == next(
            t
            for t, value in zip(curve["seconds"], curve["objective"], strict=True)
            if value <= report["optimum"] * (1 + TARGET)
        )
        assert report["ratio_to_apg"][name] * report["seconds_to_target"]["apg"] == pytest.approx(
            report["seconds_to_target"][name]
        )
    assert report["ratio_to_apg"]["apg"] == 1.0
    assert report["peak_memory_mib"] > 0
    cost = report["evaluation"]
    assert cost["ratio"] == cost["evaluation"] / cost["floor"] > 0
    assert cost["ratio_two_products"] == cost["evaluation"] / cost["floor_two_products"]


def test_paper_counts_the_iterations_of_the_literal_algorithm() -> None:
    from solver import LowRankBilinear

    instance = make_instance("tiny", None)
    report = run_solver_benchmark(instance, ("apg", "paper"))
    counted = next(curve for curve in report["curves"] if curve["method"] == "paper")
    literal = LowRankBilinear(report["alpha"], solver="paper", tol=1e-9, max_iter=len(counted["objective"]))
    with pytest.warns(UserWarning, match="stopped after"):
        literal.fit(instance.X, instance.Z, instance.supervision)
    objectives = [step.objective for step in literal.history_]
    # The same steps in another basis; float32 samples rounded in each.
    np.testing.assert_allclose(counted["objective"], objectives, rtol=1e-4)


def test_target_never_reached_is_none() -> None:
    curve = Curve("lbfgs", [1.0, 2.0], [0.5, 0.4])
    assert curve.seconds_to(0.45) == 2.0
    assert curve.seconds_to(0.3) is None


def test_machine_is_described() -> None:
    facts = machine()
    assert facts["cores"] >= 1
    assert facts["numpy"] == np.__version__
    assert facts["blas"]


def test_unknown_size_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="sizes must be one of tiny, A, B, C, wikipedia"):
        make_instance("Z", None)


@pytest.mark.parametrize("name", DATASETS)
def test_absent_data_are_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="LRBS_TEST_DATA"):
        make_instance(name, tmp_path)


@pytest.mark.data
@pytest.mark.parametrize("name", DATASETS)
def test_real_sets_can_be_made(name: str, test_data: Path) -> None:
    instance = make_instance(name, test_data)
    assert len(instance.X) == len(instance.Z) >= 1000
    assert 0 < instance.alpha_fraction < 1
