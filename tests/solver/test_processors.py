"""What rounds differently on another processor is tested as that processor would round."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SENSITIVE = ("bilinear/test_solving.py", "losses/test_kernels.py", "optimisation/test_certificate.py")
"""Tests that once held on the processors they were written on only."""


@pytest.mark.parametrize(("blas_kernel", "with_vectors"), [("Haswell", True), ("Nehalem", False)])
def test_results_hold_on_processors_with_fewer_instructions(blas_kernel: str, with_vectors: bool) -> None:
    features = np._core._multiarray_umath.__cpu_features__  # type: ignore[attr-defined]
    if blas_kernel == "Haswell" and not features["AVX2"]:
        pytest.skip("this processor has no AVX2")
    environment = {**os.environ, "OPENBLAS_CORETYPE": blas_kernel, "OPENBLAS_NUM_THREADS": "1"}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # but for the hook of xdist
    if not with_vectors:
        optional = np._core._multiarray_umath.__cpu_dispatch__  # type: ignore[attr-defined]
        environment["NPY_DISABLE_CPU_FEATURES"] = " ".join(optional)
    folder = Path(__file__).parent
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "xdist.plugin"]
    done = subprocess.run(
        [*command, *SENSITIVE], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
