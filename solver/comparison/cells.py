"""One cell of a comparison: one method on one set, tuned inside the training split, fitted, projected."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import time
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning

from solver.baselines import CentredBasis
from solver.comparison.methods import Method
from solver.datasets import PairedFeatures
from solver.evaluation.metrics import bidirectional_map
from solver.evaluation.splits import stratified_folds
from solver.linalg import FloatArray
from solver.scaling.estimator import FeatureScaler
from solver.supervision.kinds import Labels
from solver.threads import single_threaded_blas
from solver.validation import ConvergenceWarning, InvalidInputError, NumericalError

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass(slots=True)
class BoundedCache(Generic[Key, Value]):
    """Computed values by key, of at most `max_bytes`; the value last asked for stays in any case."""

    max_bytes: int
    size_of: Callable[[Value], int]
    _values: dict[Key, Value] = field(default_factory=dict)

    def get(self, key: Key, compute: Callable[[], Value]) -> Value:
        """Return the value of a key, computed if it is not there."""
        value = self._values.pop(key) if key in self._values else compute()
        self._values[key] = value  # last in the dict: the most recently used
        n_bytes = sum(map(self.size_of, self._values.values()))
        while n_bytes > self.max_bytes and len(self._values) > 1:
            n_bytes -= self.size_of(self._values.pop(next(iter(self._values))))
        return value


PCA_ENERGY = 0.99  # share of the variance that the principal components keep
_MAX_FEATURE_BYTES = 1 << 29  # 512 MiB for each process, of which a comparison runs one a core
_MAX_BASIS_BYTES = 2 * _MAX_FEATURE_BYTES  # a basis is float64, where prepared features are float32


def prepare_features(scaling: str, pca: bool, fitting: FloatArray, *others: FloatArray) -> list[FloatArray]:
    """Return rows to fit and others as a `FeatureScaler` of the former scales them.
    On demand PCA of the former follows, which keeps 99 % of the energy."""
    scaler = FeatureScaler(scaling).fit(fitting)
    scaled: list[FloatArray] = [scaler.transform(samples) for samples in (fitting, *others)]
    if not pca:
        return scaled
    exact = [samples.astype(np.float64) for samples in scaled]
    is_tall = fitting.shape[0] >= fitting.shape[1]
    model = PCA(PCA_ENERGY, svd_solver="covariance_eigh" if is_tall else "full").fit(exact[0])
    return [model.transform(samples).astype(np.float32) for samples in exact]


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Rows of the whole set to fit, and rows to score the fit on."""

    fitting: npt.NDArray[np.intp]
    scoring: npt.NDArray[np.intp]


FeatureKey = tuple[Split, str, str, bool]
"""Split (the very object), modality, scaling, and whether PCA follows."""
PreparedPair = tuple[FloatArray, FloatArray]  # one modality's prepared rows to fit and to score


class PreparedSplits:
    """A set's cross-validation folds inside the training split, and its final one, training against test.
    Features are prepared once for all methods."""

    def __init__(
        self, data: PairedFeatures, n_folds: int, seed: int, max_feature_bytes: int = _MAX_FEATURE_BYTES
    ) -> None:
        """Deal the training rows to folds, class by class; the two rows of a pair stay together.
        `max_feature_bytes` bounds the prepared features that are held for the next method."""
        training, test = np.flatnonzero(data.is_train), np.flatnonzero(~data.is_train)
        rng = np.random.default_rng(seed)
        scoring = [
            rng.permutation(training[rows]) for rows in stratified_folds(data.labels[training], n_folds, rng)
        ]
        self.data = data
        self.folds = [Split(np.setdiff1d(training, rows), rows) for rows in scoring]
        self.final = Split(training, test)
        self._features = BoundedCache[FeatureKey, PreparedPair](
            max_feature_bytes, lambda arrays: sum(array.nbytes for array in arrays)
        )
        self._bases = BoundedCache[FeatureKey, CentredBasis](_MAX_BASIS_BYTES, lambda basis: basis.n_bytes)

    def features(self, split: Split, modality: str, scaling: str, pca: bool) -> PreparedPair:
        """Return one modality's prepared rows to fit and rows to score."""

        def prepare() -> PreparedPair:
            samples = self.data.X if modality == "x" else self.data.Z
            fitting, scoring = prepare_features(scaling, pca, samples[split.fitting], samples[split.scoring])
            return fitting, scoring

        return self._features.get((split, modality, scaling, pca), prepare)

    def basis(self, split: Split, modality: str, scaling: str, pca: bool) -> CentredBasis:
        """Return the centred basis of the rows to fit that `features` prepares."""

        def compute() -> CentredBasis:
            return CentredBasis.of(self.features(split, modality, scaling, pca)[0], modality.upper())

        return self._bases.get((split, modality, scaling, pca), compute)

    def usable_scalings(self, modality: str, scalings: tuple[str, ...]) -> tuple[str, ...]:
        """Return the kinds of scaling that suit a modality's training rows: no root of negative features."""
        samples = self.data.X if modality == "x" else self.data.Z
        is_negative = bool((samples[self.final.fitting] < 0).any())
        return tuple(kind for kind in scalings if kind != "sqrt" or not is_negative)

    def supervision(self, split: Split) -> Labels:
        return Labels(self.data.labels[split.fitting])


_WORST = float("-inf")  # score of a candidate that cannot be fitted


@dataclass(frozen=True, slots=True)
class Choice:
    """What tuning chose: kinds of `FeatureScaler`, parameters, and the MAP of both directions,
    cross-validated."""

    x_scaling: str
    z_scaling: str
    parameters: dict[str, Any]
    score: float
    n_candidates: int


def tune(splits: PreparedSplits, method: Method, pca: bool) -> Choice:
    """Choose scalings and parameters of a method, by the folds alone: the test split is never looked at.
    InvalidInputError if it cannot be fitted with any scaling."""
    has_choice = bool(method.grid) or len(method.scalings) > 1
    search = _Search(splits, method, pca, splits.folds if has_choice else splits.folds[:1])
    with warnings.catch_warnings():
        # Candidates may stop early; what is reported is whether the final fit converges.
        for category in (ConvergenceWarning, SklearnConvergenceWarning):
            warnings.simplefilter("ignore", category)
        search.choose_scaling()
        search.choose_parameters()
        search.choose_each_scaling()
        search.choose_parameters()
    return search.choice()


class _Search:
    def __init__(self, splits: PreparedSplits, method: Method, pca: bool, folds: Sequence[Split]) -> None:
        self._splits, self._method, self._pca, self._folds = splits, method, pca, folds
        self._x_kinds, self._z_kinds = (splits.usable_scalings(side, method.scalings) for side in ("x", "z"))
        self._parameters = method.defaults
        self._scalings = "", ""
        self._score = _WORST
        self._scores: dict[str, float] = {}
        self._last_error = ""

    def choice(self) -> Choice:
        return Choice(*self._scalings, self._parameters, self._score, len(self._scores))

    def choose_scaling(self) -> None:
        self._choose_pair([(kind, kind) for kind in self._x_kinds if kind in self._z_kinds])
        if self._score == _WORST:
            raise InvalidInputError(f"no scaling lets it be fitted; the last failed: {self._last_error}")

    def choose_each_scaling(self) -> None:
        self._choose_pair([(kind, self._scalings[1]) for kind in self._x_kinds])
        self._choose_pair([(self._scalings[0], kind) for kind in self._z_kinds])

    def choose_parameters(self) -> None:
        for axis in self._method.grid:
            candidates = [{**self._parameters, axis.name: value} for value in axis.values]
            scores = self._evaluate(self._scalings, candidates)
            best = int(np.argmax(scores))
            self._parameters, self._score = candidates[best], scores[best]

    def _choose_pair(self, pairs: list[tuple[str, str]]) -> None:
        for pair in pairs:
            score = self._evaluate(pair, [self._parameters])[0]
            if score > self._score:
                self._score, self._scalings = score, pair

    def _evaluate(self, scalings: tuple[str, str], candidates: list[dict[str, Any]]) -> list[float]:
        """Return the score of each candidate; what was scored before is not fitted again."""
        keys = [repr((scalings, sorted(candidate.items()))) for candidate in candidates]
        new = {key: one for key, one in zip(keys, candidates, strict=True) if key not in self._scores}
        if new:
            rows = [self._evaluate_fold(fold, scalings, list(new.values())) for fold in self._folds]
            self._scores |= zip(new, np.mean(rows, axis=0).tolist(), strict=True)
        return [self._scores[key] for key in keys]

    def _evaluate_fold(
        self, fold: Split, scalings: tuple[str, str], candidates: list[dict[str, Any]]
    ) -> list[float]:
        # A walk fits all candidates together; otherwise each is fitted alone, so a failure affects only one.
        together = [candidates] if self._method.walk else [[candidate] for candidate in candidates]
        scores: list[float] = []
        for group in together:
            group_scores: list[float] = []
            try:
                group_scores.extend(self._scores_of(fold, scalings, group))
            except (InvalidInputError, NumericalError) as error:
                self._last_error = str(error)
            scores += group_scores + [_WORST] * (len(group) - len(group_scores))
        return scores

    def _scores_of(
        self, fold: Split, scalings: tuple[str, str], candidates: list[dict[str, Any]]
    ) -> Iterator[float]:
        splits, sides = self._splits, tuple(zip("xz", scalings, strict=True))
        (X, x_scored), (Z, z_scored) = (splits.features(fold, *side, self._pca) for side in sides)
        labels = splits.data.labels[fold.scoring]
        bases = None
        if self._method.uses_bases:
            bases = splits.basis(fold, *sides[0], self._pca), splits.basis(fold, *sides[1], self._pca)
        for project in self._method.projections(X, Z, splits.supervision(fold), candidates, bases):
            yield bidirectional_map(*project(x_scored, z_scored), labels, labels).mean


_LIBRARIES = ("numpy", "scipy", "scikit-learn")


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """One entry of the table: a method on a set (and its `fingerprint`), with PCA after scaling or without.
    Folds of the cross-validation are drawn by the seed."""

    data: PairedFeatures
    data_key: str
    method: Method
    pca: bool
    n_folds: int
    seed: int

    @property
    def key(self) -> str:
        """Hash of everything that the outcome depends on."""
        inputs = {
            "data": self.data_key,
            "method": self.method.name,
            "grid": repr((self.method.grid, self.method.scalings, sorted(self.method.fixed.items()))),
            "pca": self.pca,
            "n_folds": self.n_folds,
            "seed": self.seed,
            "code": code_version(),
            "own_code": [
                _source(definition)
                for definition in (*self.method.estimator.__mro__, self.method.walk)
                if definition is not None
            ],
        }
        return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class CellOutcome:
    """Result of a cell.

    Parameters
    ----------
    method : str
        Name of the class.
    pca : bool
        With or without.
    params : dict
        Chosen scalings and parameters.
    cv_score : float
        Cross-validated MAP of the choice, inside the training split.
    n_candidates : int
        Candidates that were scored.
    n_features : tuple of int
        Features of both modalities as they reach the method.
    tune_seconds, fit_seconds : float
        On one core: the whole search, without what an earlier method in the same process had prepared, and
        the final fit alone (without scaling and PCA).
    notes : tuple of str
        Warnings of the final fit.
    x_test, z_test : ndarray of shape (n_test, rank)
        The projected test split.
    singular_values : ndarray
        Of M, where the method has one; else empty.
    """

    method: str
    pca: bool
    params: dict[str, Any]
    cv_score: float
    n_candidates: int
    n_features: tuple[int, int]
    tune_seconds: float
    fit_seconds: float
    notes: tuple[str, ...]
    x_test: FloatArray
    z_test: FloatArray
    singular_values: FloatArray


class OutcomeStore(Protocol):
    """Storage of outcomes, so that an interrupted comparison can be resumed."""

    def load(self, key: str) -> CellOutcome | None:
        """Return the outcome stored under a key, or None."""

    def save(self, key: str, outcome: CellOutcome) -> None:
        """Store an outcome under a key."""


@dataclass(slots=True)
class CellRunner:
    """Computes cells one after the other; the next cell of the same set reuses its prepared features."""

    _splits: PreparedSplits | None = None
    _key: tuple[str, int, int] | None = None

    def run(self, cell: Cell) -> CellOutcome:
        """Tune on the training split, fit on all of it, and project the test split once, on one core.
        InvalidInputError if the method cannot be fitted with any scaling."""
        key = cell.data_key, cell.n_folds, cell.seed
        if self._splits is None or key != self._key:
            self._splits, self._key = PreparedSplits(cell.data, cell.n_folds, cell.seed), key
        splits = self._splits
        with single_threaded_blas():
            start = time.perf_counter()
            choice = tune(splits, cell.method, cell.pca)
            tune_seconds = time.perf_counter() - start
            final = splits.final
            X, x_test = splits.features(final, "x", choice.x_scaling, cell.pca)
            Z, z_test = splits.features(final, "z", choice.z_scaling, cell.pca)
            start = time.perf_counter()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                fitted = cell.method.fit(X, Z, splits.supervision(final), choice.parameters)
            fit_seconds = time.perf_counter() - start
            singular_values = getattr(fitted, "singular_values_", ()) if cell.method.has_matrix else ()
            return CellOutcome(
                method=cell.method.name,
                pca=cell.pca,
                params={"x_scaling": choice.x_scaling, "z_scaling": choice.z_scaling, **choice.parameters},
                cv_score=choice.score,
                n_candidates=choice.n_candidates,
                n_features=(X.shape[1], Z.shape[1]),
                tune_seconds=tune_seconds,
                fit_seconds=fit_seconds,
                notes=tuple(dict.fromkeys(str(entry.message) for entry in caught)),
                x_test=fitted.project_x(x_test),
                z_test=fitted.project_z(z_test),
                singular_values=np.asarray(singular_values, np.float64),
            )


def fingerprint(data: PairedFeatures) -> str:
    """Return a hash of a set's features, classes and split."""
    digest = hashlib.sha256()
    for array in (data.X, data.Z, data.labels, data.is_train):
        digest.update(f"{array.shape}{array.dtype.str}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


@functools.cache
def code_version() -> str:
    """Return a hash of the library's source and of the versions it computes with."""
    folder = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode())
        digest.update(path.read_bytes())
    digest.update(repr([(name, version(name)) for name in _LIBRARIES]).encode())
    return digest.hexdigest()


@functools.cache
def _source(definition: Any) -> str:
    """Return the qualified name of a class or function, and its source where that is available."""
    name = f"{definition.__module__}.{definition.__qualname__}"
    try:
        return f"{name}\n{inspect.getsource(definition)}"
    except (OSError, TypeError):  # built in, or typed at a prompt
        return name


def cells(
    data: PairedFeatures, methods: Iterable[Method], pca: Iterable[bool], n_folds: int, seed: int
) -> list[Cell]:
    """Return the cells of one set."""
    key = fingerprint(data)
    return [Cell(data, key, method, with_pca, n_folds, seed) for method in methods for with_pca in pca]
