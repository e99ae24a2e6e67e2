"""What the import of the package brings along, and that its face is whole."""

import importlib
import subprocess
import sys

import pytest

import solver

TRAINING_ONLY = (
    "sklearn",
    "scipy.optimize",
    "scipy.stats",
    "solver.baselines",
    "solver.bilinear",
    "solver.comparison",
)
"""Needed by what learns, and not by what projects, ranks and judges."""


def test_the_package_is_imported_without_what_only_training_needs() -> None:
    program = f"import sys, solver; print([name for name in {TRAINING_ONLY!r} if name in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


def test_kernels_of_dense_samples_are_evaluated_without_what_only_training_needs() -> None:
    program = (
        "import sys, numpy as np\n"
        "from solver.scaling.feature_maps import KERNELS, FeatureMap\n"
        "samples = np.random.default_rng(0).normal(size=(20, 3))\n"
        "for kernel in KERNELS:\n"
        "    FeatureMap.fit(samples, 'standard', kernel, 1.0, 10, 0).transform(samples)\n"
        f"print([name for name in {TRAINING_ONLY!r} if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


def test_every_public_name_can_be_imported_and_is_listed() -> None:
    for name in solver.__all__:
        assert getattr(solver, name) is not None
    assert set(solver.__all__) <= set(dir(solver))


def test_a_name_that_is_not_public_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        solver.no_such_name  # noqa: B018
    with pytest.raises(ImportError, match="no_such_name"):
        from solver import no_such_name  # noqa: F401


def test_what_type_checkers_see_is_imported_late_and_public() -> None:
    late = solver._modules()
    assert {"LowRankBilinear", "CCA", "compare"} <= set(late) <= set(solver.__all__)
    assert all(getattr(importlib.import_module(module), name) for name, module in late.items())
