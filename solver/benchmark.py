"""Objective against time for three solvers of problem (4), in one run on one machine.

"apg" is `LowRankBilinear`; "paper" is a literal Algorithm 1; "lbfgs" is plain L-BFGS on the factors from a
random start, without proximal steps, preconditioning or a certificate. The distance from the optimum is
measured against the objective of a float64 run with a hundred times smaller tolerance.
"""

from __future__ import annotations

import functools
import os
import platform
import resource
import time
import timeit
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import scipy.optimize
from threadpoolctl import threadpool_info

from solver.bilinear.estimator import LowRankBilinear
from solver.bilinear.solving import BilinearProblem
from solver.datasets import load_npz, load_wikipedia, make_low_rank_pairs
from solver.linalg import FloatArray
from solver.optimisation.paper import DensePairs, iterate_paper
from solver.progress import IterationProgress, OnIteration
from solver.scaling.estimator import FeatureScaler
from solver.supervision.kinds import Labels
from solver.threads import even_slices, map_chunks
from solver.validation import ConvergenceWarning, DatasetError, InvalidParameterError

__all__ = ["DATASETS", "SIZES", "TARGET", "machine", "make_instance", "run_solver_benchmark"]

SEED = 0
"""Seed of the synthetic data and of the random start of L-BFGS."""
NOISE = 4.0
"""Noise of the synthetic data: without any, the problem would be too easy to compare solvers on."""
TARGET = 1e-3
"""Relative distance from the optimum at which the solvers are compared; the default tolerance."""
_REFERENCE_TOL = 1e-5  # tolerance of the run that determines the optimum, a hundredth of `TARGET`
_LITERAL_ITERATIONS = 4  # iterations of Algorithm 1 that are timed; each costs the same but for backtracking
_LBFGS_EVALUATIONS = 2000  # limit on the loss evaluations of L-BFGS, so that the benchmark ends
_TIMINGS = 7  # repetitions of a timing, of which the best counts
_FLOOR_ROWS, _FLOOR_COLUMNS = 256, 1280
"""Tile of the minimal evaluation, close to that of the logistic loss in float32."""


@dataclass(frozen=True, slots=True)
class Size:
    """A synthetic instance with the same number of samples in both modalities."""

    n_samples: int
    n_features_x: int
    n_features_z: int
    n_classes: int
    alpha_fraction: float = 1 / 50  # of `alpha_max`
    tol: float = 1e-3  # relative duality gap


SIZES = {
    "tiny": Size(300, 40, 30, 5),
    "A": Size(2173, 4096, 200, 10),
    "B": Size(20_000, 512, 512, 50),
    "C": Size(100_000, 256, 256, 100, tol=1e-2),
}
DATASETS = ("wikipedia", "wikipedia_cnn", "audio_digits")


@dataclass(slots=True)
class Curve:
    """One method on one instance: seconds since it received the raw samples and objective of each iteration.
    The facts are certified gap, rank and other results."""

    method: str  # "apg", "paper" or "lbfgs"
    seconds: list[float] = field(default_factory=list)
    objective: list[float] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def seconds_to(self, objective: float) -> float | None:
        """Return the seconds until the objective was first at most `objective`, or None if it never was."""
        times = (t for t, value in zip(self.seconds, self.objective, strict=True) if value <= objective)
        return next(times, None)


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """Samples, labels, penalty and tolerance of one benchmark; the last two are as in `Size`."""

    name: str
    X: FloatArray
    Z: FloatArray
    supervision: Labels
    alpha_fraction: float
    tol: float


def machine() -> dict[str, Any]:
    """Return a description of the machine, needed to interpret the figures."""
    blas = [
        f"{info['internal_api']} {info['version']}"
        for info in threadpool_info()
        if info["user_api"] == "blas"
    ]
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "blas": sorted(blas),
        "seed": SEED,
    }


def make_instance(name: str, data_dir: Path | None) -> Instance:
    """Return a synthetic instance, by a key of `SIZES`, or one of `DATASETS` in their folder.

    InvalidParameterError if the name is unknown, DatasetError if the data are missing.
    """
    if name in SIZES:
        size = SIZES[name]
        data = make_low_rank_pairs(
            size.n_samples,
            size.n_samples,
            n_features_x=size.n_features_x,
            n_features_z=size.n_features_z,
            n_classes=size.n_classes,
            noise=NOISE,
            random_state=SEED,
        )
        X, Z, labels = data.X.astype(np.float32), data.Z.astype(np.float32), (data.x_labels, data.z_labels)
        return Instance(name, X, Z, Labels(*labels), size.alpha_fraction, size.tol)
    if name not in DATASETS:
        raise InvalidParameterError("sizes", name, f"one of {', '.join([*SIZES, *DATASETS])}")
    if data_dir is None or not (data_dir / name).is_dir():
        raise DatasetError(f"{name} needs the real data: set LRBS_TEST_DATA to their folder")
    if name == "wikipedia":
        pairs = load_wikipedia(data_dir / name)
    else:
        x, z = ("I", "T") if name == "wikipedia_cnn" else ("A", "I")
        pairs = load_npz(next((data_dir / name).glob("*.npz")), x=x, z=z)
    train = np.flatnonzero(pairs.is_train)
    X, Z = (FeatureScaler("center").fit(side[train]).transform(side[train]) for side in (pairs.X, pairs.Z))
    return Instance(name, X, Z, Labels(pairs.labels[train]), 1 / 50, 1e-3)


def run_solver_benchmark(
    instance: Instance,
    methods: tuple[str, ...] = ("apg", "paper", "lbfgs"),
    *,
    on_step: Callable[[str, IterationProgress], None] | None = None,
) -> dict[str, Any]:
    """Run the methods in turn and compare them.

    Parameters
    ----------
    instance : Instance
        The problem to solve.
    methods : tuple of str
        Some of "apg", "paper" and "lbfgs".
    on_step : callable, optional
        Called with the name of the method and its progress.

    Returns
    -------
    dict
        JSON-serialisable: sizes, curves, seconds until within `TARGET` of the optimum, their ratios, and the
        cost of an evaluation beside its minimum.
    """
    apg = _run_apg(instance, None if on_step is None else functools.partial(on_step, "apg"))
    model: LowRankBilinear = apg.facts.pop("model")
    optimum = model.objective_
    if set(methods) - {"apg"}:
        optimum = min(_fit(instance, np.float64, _REFERENCE_TOL).objective_, optimum)
    curves = [apg]
    if "paper" in methods:
        curves.append(_run_paper(instance, model.alpha_, optimum))
    if "lbfgs" in methods:
        curves.append(_run_lbfgs(instance, model.alpha_, 2 * model.rank_))
    to_target = {curve.method: curve.seconds_to(optimum * (1 + TARGET)) for curve in curves}
    fastest = to_target["apg"]
    return {
        "instance": instance.name,
        "shape": [*instance.X.shape, *instance.Z.shape],
        "alpha": model.alpha_,
        "optimum": optimum,
        "seconds_to_target": to_target,
        "ratio_to_apg": {
            name: None if seconds is None or fastest is None else seconds / fastest
            for name, seconds in to_target.items()
        },
        "evaluation": evaluation_cost(instance, model),
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "curves": [asdict(curve) for curve in curves],
    }


def evaluation_cost(instance: Instance, model: LowRankBilinear) -> dict[str, float]:
    """Return milliseconds (best of several) of one value and factor gradient, and of the least work for them:
    one tanh a pair with the three products of matrices ("floor") or two of them; and the ratios."""
    problem = BilinearProblem(instance.X, instance.Z, instance.supervision, True, None)
    x_factors = np.vstack([model.x_factors_, model.x_intercept_])
    z_factors = np.vstack([model.z_factors_, model.z_intercept_])
    A, B = problem.lower(x_factors, z_factors).balanced_factors()
    loss = problem.loss(np.float32)
    XA = np.asarray(problem.X @ A, np.float32)
    ZB = np.asarray(problem.Z @ B, np.float32)
    n_threads = os.cpu_count() or 1

    def floor(with_both: bool) -> None:
        def evaluate(rows: slice) -> FloatArray:
            along_x, along_z = np.zeros((rows.stop - rows.start, ZB.shape[1]), np.float32), np.zeros_like(ZB)
            buffer = np.empty(_FLOOR_ROWS * _FLOOR_COLUMNS, np.float32)
            for start in range(rows.start, rows.stop, _FLOOR_ROWS):
                left = XA[start : min(start + _FLOOR_ROWS, rows.stop)]
                for first in range(0, len(ZB), _FLOOR_COLUMNS):
                    right = ZB[first : first + _FLOOR_COLUMNS]
                    t = buffer[: len(left) * len(right)].reshape(len(left), len(right))
                    np.matmul(left, right.T, out=t)
                    np.tanh(t, out=t)
                    along_x[start - rows.start : start - rows.start + len(left)] += t @ right
                    if with_both:
                        along_z[first : first + len(right)] += t.T @ left
            return along_z

        map_chunks(evaluate, even_slices(len(XA), 8), n_threads)

    timings = {
        "evaluation": _best(lambda: loss.value_and_factor_gradients(A, B)),
        "floor": _best(lambda: floor(True)),
        "floor_two_products": _best(lambda: floor(False)),
    }
    return {
        **timings,
        "ratio": timings["evaluation"] / timings["floor"],
        "ratio_two_products": timings["evaluation"] / timings["floor_two_products"],
    }


def _run_apg(instance: Instance, callback: OnIteration | None) -> Curve:
    curve, begin = Curve("apg"), time.perf_counter()

    def record(progress: IterationProgress) -> None:
        if progress.share == 1.0:
            curve.seconds.append(time.perf_counter() - begin)
            curve.objective.append(progress.objective)
        if callback is not None:
            callback(progress)

    model = _fit(instance, np.float32, instance.tol, record)
    curve.facts = {
        "model": model,
        "seconds": time.perf_counter() - begin,
        "converged": model.converged_,
        "duality_gap": model.duality_gap_,
        "rank": model.rank_,
        "iterations": model.n_iter_,
    }
    return curve


def _fit(instance: Instance, dtype: type, tol: float, callback: OnIteration | None = None) -> LowRankBilinear:
    model = LowRankBilinear(alpha_fraction=instance.alpha_fraction, tol=tol, dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(instance.X, instance.Z, instance.supervision, callback=callback)


def _run_paper(instance: Instance, alpha: float, optimum: float) -> Curve:
    """Time the literal iteration on the raw features, and count iterations on an equivalent smaller
    problem."""
    # Algorithm 1 takes the same steps in any orthonormal basis, so its iterations can be counted in the
    # reduced basis, and only a few are run on the raw features.
    X, Z = (np.hstack([side, np.ones((len(side), 1), side.dtype)]) for side in (instance.X, instance.Z))
    problem = BilinearProblem(instance.X, instance.Z, instance.supervision, True, None)
    first_step = problem.first_step / problem.penalty_scale**2
    literal = iterate_paper(DensePairs(X, Z, instance.supervision), alpha, first_step)
    next(literal)
    begin = time.perf_counter()
    for _ in range(_LITERAL_ITERATIONS):
        next(literal)
    per_iteration = (time.perf_counter() - begin) / _LITERAL_ITERATIONS
    curve = Curve("paper", facts={"seconds_per_iteration": per_iteration, "extrapolated": True})
    states = iterate_paper(
        DensePairs(problem.X, problem.Z, instance.supervision),
        problem.to_problem_units(alpha),
        problem.first_step,
    )
    for state in states:
        curve.seconds.append(state.iteration * per_iteration)
        curve.objective.append(state.objective)
        if state.objective <= optimum * (1 + TARGET):
            break
    curve.facts["iterations"] = len(curve.objective)
    return curve


def _run_lbfgs(instance: Instance, alpha: float, rank: int) -> Curve:
    curve, begin = Curve("lbfgs", facts={"rank": rank}), time.perf_counter()
    problem = BilinearProblem(instance.X, instance.Z, instance.supervision, True, None)
    loss, weight, (d1, d2) = problem.loss(np.float32), problem.to_problem_units(alpha), problem.shape
    last = np.inf

    def evaluate(flat: FloatArray) -> tuple[float, FloatArray]:
        nonlocal last
        A, B = flat[: d1 * rank].reshape(d1, rank), flat[d1 * rank :].reshape(d2, rank)
        value, on_A, on_B = loss.value_and_factor_gradients(A, B)
        last = value + 0.5 * weight * float(flat @ flat)
        return last, np.concatenate([on_A.ravel(), on_B.ravel()]) + weight * flat

    def record(_: FloatArray) -> None:
        curve.seconds.append(time.perf_counter() - begin)
        curve.objective.append(last)

    start = 0.01 * np.random.default_rng(SEED).standard_normal((d1 + d2) * rank)
    options: Any = {"maxfun": _LBFGS_EVALUATIONS, "maxiter": _LBFGS_EVALUATIONS, "ftol": 1e-9}
    minimize: Any = scipy.optimize.minimize
    result = minimize(evaluate, start, jac=True, method="L-BFGS-B", callback=record, options=options)
    curve.facts |= {"evaluations": int(result.nfev), "seconds": time.perf_counter() - begin}
    return curve


def _best(run: Callable[[], object]) -> float:
    return 1000.0 * min(timeit.repeat(run, number=1, repeat=_TIMINGS))


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
