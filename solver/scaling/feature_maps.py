"""Explicit feature maps of kernels, which let linear classifiers separate classes that no hyperplane does."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse

from solver.linalg import Centered, FloatArray, Samples, check_array, check_samples, is_sparse, to_dense
from solver.scaling.scaler import Scaler
from solver.threads import row_blocks
from solver.validation import InvalidInputError, InvalidParameterError, OutOfRangeError, one_of

KERNELS = ("linear", "rbf", "laplacian")
_MAX_BLOCK_ROWS = 4096
"""Rows mapped in one block: with 400 landmarks their kernel values take 13 MB in float64."""
_MAX_BLOCK_ENTRIES = 2**23  # entries of a block of sparse rows that is made dense: 32 MiB in float32
_MAX_DENSE_FEATURES = 8192
"""Sparse landmarks with more features stay sparse: 400 dense ones would take over 13 MB in float32."""
MIN_RELATIVE_EIGENVALUE = 1e-6
"""Smaller eigenvalues of the landmarks' kernel matrix are dropped: whitening by them amplifies rounding."""
_MAX_LAPLACIAN_FEATURES = 256
"""L1 distances are no matrix product: their time grows with samples x landmarks x features."""


def check_features(samples: npt.ArrayLike, name: str, n_features: int | None = None) -> Samples:
    """Return checked samples; sparse ones stay sparse if they have more than 256 features.
    Those with fewer are made dense, which admits every kernel. InvalidInputError as `check_samples`."""
    array = check_samples(samples, name, n_features=n_features)
    return array.toarray() if is_sparse(array) and array.shape[1] <= _MAX_LAPLACIAN_FEATURES else array


@dataclass(frozen=True, slots=True)
class FeatureMapConfig:
    """Kind of a feature map; the fields are as in `FeatureMap.fit`."""

    scaling: str
    kernel: str
    width: float

    def suits(self, samples: Samples) -> bool:
        """Return whether samples may be mapped: "sqrt" needs features >= 0, "laplacian" at most 256."""
        if self.kernel == "laplacian" and samples.shape[1] > _MAX_LAPLACIAN_FEATURES:
            return False
        return self.scaling != "sqrt" or bool(samples.min() >= 0)

    def fit(self, samples: Samples, n_landmarks: int, seed: int) -> FeatureMap:
        return FeatureMap.fit(samples, self.scaling, self.kernel, self.width, n_landmarks, seed)


@dataclass(frozen=True, slots=True, eq=False)
class FeatureMap:
    """Scales samples and maps them to the features of a kernel."""

    # "linear" keeps the scaled features. "rbf", exp(-gamma ||x - y||^2), and "laplacian", exp(-gamma ||x -
    # y||_1), use the Nystroem approximation: kernel values with a few landmarks, whitened, so that inner
    # products of mapped samples approximate the kernel and are exact between landmarks (Williams and Seeger,
    # "Using the Nystroem Method to Speed Up Kernel Machines", NIPS 2000).

    scaler: Scaler
    kernel: str
    gamma: float  # inverse width of the kernel; 0 for "linear"
    landmarks: Samples  # scaled; none for "linear"; sparse ones keep their mean, as distances allow
    whitening: FloatArray  # (n_landmarks, n_mapped), from kernel values to features
    serves: bool = False  # maps queries one by one: what each needs of the landmarks is computed once
    _columns: tuple[Samples, FloatArray] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        one_of(*KERNELS).check("kernel", self.kernel)
        if self.kernel == "laplacian":
            _absolute_metrics(self.landmarks)  # so that the first query does not wait for the import
        if self.landmarks.ndim != 2 or self.landmarks.shape[1] != self.n_features:
            raise InvalidInputError(
                f"landmarks {self.landmarks.shape} do not have {self.n_features} features"
            )
        if self.whitening.ndim != 2 or len(self.whitening) != self.landmarks.shape[0]:
            raise InvalidInputError(
                f"whitening {self.whitening.shape} does not match {self.landmarks.shape[0]} landmarks"
            )
        if self.serves:
            object.__setattr__(self, "_columns", _exact_columns(self.landmarks))

    @classmethod
    def fit(
        cls, samples: Samples, scaling: str, kernel: str, width: float, n_landmarks: int, seed: int
    ) -> Self:
        """Learn scaling and at most `n_landmarks`, drawn from the samples, without their labels.
        `width` is the exponent of the kernel at the median distance of landmarks; "linear" has none."""
        scaler = Scaler(scaling).fit(samples)
        n_features = len(scaler.mean_)
        if kernel == "linear":
            return cls(scaler, kernel, 0.0, np.zeros((0, n_features)), np.zeros((0, n_features)))
        landmarks = draw_landmarks(samples, scaler, n_landmarks, seed)[0]
        distances = kernel_distances(kernel, landmarks, landmarks)
        gamma = gamma_of(distances, width)
        values, vectors = scipy.linalg.eigh(np.exp(-gamma * distances), check_finite=False)
        is_large = values > MIN_RELATIVE_EIGENVALUE * values[-1]
        whitening = np.ascontiguousarray(vectors[:, is_large] / np.sqrt(values[is_large]), np.float32)
        return cls(scaler, kernel, gamma, landmarks, whitening)

    @property
    def n_features(self) -> int:
        return len(self.scaler.mean_)

    @property
    def n_mapped(self) -> int:
        return self.n_features if self.kernel == "linear" else int(self.whitening.shape[1])

    def kernel_matrix(self, samples: Samples) -> tuple[Samples, FloatArray]:
        """Return scaled samples, which can be landmarks, and the kernel between all of them, in float64.
        Sparse samples stay sparse."""
        landmarks = self.scaler.transform(samples)
        if isinstance(landmarks, Centered):
            landmarks = landmarks.sparse
        distances = kernel_distances(self.kernel, landmarks, landmarks)
        return landmarks, np.exp(-self.gamma * distances.astype(np.float64))

    def transform(self, samples: Samples) -> Samples:
        """Return the mapped samples, of shape (n_samples, n_mapped), in float32.
        OutOfRangeError if a scaled feature exceeds float32; it says in which samples."""
        # Under "linear" they are what `Scaler.transform` returns, otherwise dense.
        if self.kernel == "linear":
            return self.scaler.transform(samples)
        return self.weigh(samples, self.whitening)

    def weigh(self, samples: Samples, weights: FloatArray, nearest: FloatArray | None = None) -> FloatArray:
        """Return the (n_samples, n_sums) sums of kernel values, by (n_landmarks, n_sums) weights, in float32;
        raises as `transform`. The largest value of each sample is put into `nearest`."""
        # Sparse samples are made dense a block of rows at a time, each of up to 32 MiB in float32, beside a
        # copy in float64.
        n_samples, n_features = samples.shape
        block_rows = _MAX_BLOCK_ROWS
        if is_sparse(samples) and not is_sparse(self.landmarks):
            block_rows = min(max(_MAX_BLOCK_ENTRIES // n_features, 1), _MAX_BLOCK_ROWS)
        sums = np.empty((n_samples, weights.shape[1]), np.float32)
        for rows in row_blocks(n_samples, block_rows):
            try:
                values = self._kernel_values(samples[rows])
            except OutOfRangeError as error:
                is_outside = np.zeros(n_samples, np.bool)
                is_outside[rows] = error.is_outside
                raise OutOfRangeError(str(error), is_outside) from None
            sums[rows] = values @ weights
            if nearest is not None:
                nearest[rows] = values.max(axis=1)
        return sums

    def _kernel_values(self, samples: Samples) -> FloatArray:
        if is_sparse(self.landmarks):
            scaled = self.scaler.transform(scipy.sparse.csr_array(samples))
            scaled = scaled.sparse if isinstance(scaled, Centered) else scaled
        else:
            scaled = self.scaler.transform(to_dense(samples))
        columns, norms = self._columns or _exact_columns(self.landmarks)
        if self.kernel == "rbf":
            distances = _squared_distances_to(scaled, columns, norms, self.landmarks.dtype)
        else:
            landmarks = self.landmarks if is_sparse(self.landmarks) else columns.T
            distances = kernel_distances(self.kernel, scaled, landmarks)
        values: FloatArray = np.exp(-self.gamma * distances)
        return values.astype(np.float32)


def landmark_rows(n_samples: int, n_landmarks: int, seed: int) -> npt.NDArray[np.intp]:
    """Return the rows of samples that are drawn as landmarks, in ascending order."""
    return np.sort(np.random.default_rng(seed).permutation(n_samples)[:n_landmarks])


def draw_landmarks(
    samples: Samples, scaler: Scaler, n_landmarks: int, seed: int
) -> tuple[Samples, npt.NDArray[np.intp]]:
    """Return scaled samples drawn at random, as `FeatureMap.landmarks`, and their rows in ascending order."""
    rows = landmark_rows(samples.shape[0], n_landmarks, seed)
    raw = samples[rows]
    if is_sparse(raw) and raw.shape[1] <= _MAX_DENSE_FEATURES:
        raw = raw.toarray()
    landmarks = scaler.transform(raw)
    return landmarks.sparse if isinstance(landmarks, Centered) else landmarks, rows


def gamma_of(distances: FloatArray, width: float) -> float:
    """Return the gamma with which a kernel has this exponent at the median distance; 0 if all are 0."""
    positive = distances[distances > 0]
    return width / float(np.median(positive)) if len(positive) else 0.0


def kernel_distances(kernel: str, left: Samples, right: Samples) -> FloatArray:
    """Return squared Euclidean distances for "rbf", L1 distances for "laplacian", in float64.
    Between other samples than the same, squared ones have the precision of the samples."""
    if kernel == "rbf" and left is right:
        return _squared_distances(left)
    if kernel == "rbf":
        return _squared_distances_to(left, *_exact_columns(right), right.dtype)
    metrics = _absolute_metrics(right)
    distances: FloatArray = (
        metrics.manhattan_distances(left, right)
        if is_sparse(right)
        else metrics.cdist(left, right, "cityblock")
    )
    return distances


def _squared_distances(samples: Samples) -> FloatArray:
    """Return those between samples: one product of all, where scikit-learn makes many small ones."""
    exact = samples.astype(np.float64)
    products: FloatArray = (exact @ exact.T).toarray() if is_sparse(exact) else exact @ exact.T
    norms = np.diag(products)
    distances: FloatArray = norms[:, None] + norms - 2.0 * products
    np.maximum(distances, 0.0, out=distances)
    np.fill_diagonal(distances, 0.0)
    return distances


def _exact_columns(samples: Samples) -> tuple[Samples, FloatArray]:
    """Return samples in float64, each a column, and their squared norms."""
    exact = samples.astype(np.float64, copy=False)
    columns = scipy.sparse.csr_array(exact.T) if is_sparse(exact) else exact.T
    return columns, _squared_norms(exact)


def _squared_distances_to(
    samples: Samples, columns: Samples, norms: FloatArray, dtype: np.dtype[Any]
) -> FloatArray:
    """Return those to the samples of `_exact_columns`, computed in float64, in the samples' own precision."""
    exact = samples.astype(np.float64, copy=False)
    products = exact @ columns
    distances: FloatArray = products.toarray() if is_sparse(products) else products
    distances *= -2.0
    distances += _squared_norms(exact)[:, None]
    distances += norms
    np.maximum(distances, 0.0, out=distances)
    return distances.astype(np.result_type(samples.dtype, dtype), copy=False)


def _squared_norms(samples: Samples) -> FloatArray:
    norms: FloatArray = (
        samples.power(2).sum(axis=1) if is_sparse(samples) else np.einsum("ij,ij->i", samples, samples)
    )
    return norms


def _absolute_metrics(samples: Samples) -> ModuleType:
    """Return what has L1 distances: only of sparse samples scikit-learn, whose import takes a while."""
    return importlib.import_module(
        "sklearn.metrics.pairwise" if is_sparse(samples) else "scipy.spatial.distance"
    )


MAX_MAGNITUDE = 1e15
"""Largest landmark, whitening, coefficient or factor: sums of its squares are finite, even in float32."""
HAS_SPARSE_LANDMARKS = "has_sparse_landmarks"  # field of the JSON object, where the landmarks are sparse
_SCALER_ARRAYS = ("mean", "scale")
_DENSE_LANDMARKS = ("landmarks",)
_SPARSE_LANDMARKS = ("landmarks", "landmark_columns", "landmark_ends")
"""Entries that are not zero, the column of each, and the end of each row among them."""

Description = Mapping[str, Any]  # the JSON object
DESCRIBED = {"scaling": str, "kernel": str, "gamma": float}  # its fields, and their types


def feature_map_parts(feature_map: FeatureMap) -> dict[str, FloatArray]:
    """Return the arrays of a feature map by the end of their names."""
    return {
        "mean": feature_map.scaler.mean_,
        "scale": feature_map.scaler.scale_,
        "whitening": feature_map.whitening,
        **_landmark_arrays(feature_map.landmarks),
    }


def describe_feature_map(feature_map: FeatureMap) -> dict[str, Any]:
    """Return everything of a feature map that is not an array, as JSON values."""
    description: dict[str, Any] = {
        "scaling": feature_map.scaler.kind_,
        "kernel": feature_map.kernel,
        "gamma": feature_map.gamma,
    }
    if is_sparse(feature_map.landmarks):
        description[HAS_SPARSE_LANDMARKS] = True
    return description


def feature_map_arrays(description: Description) -> tuple[str, ...]:
    """Return the ends of the names of the arrays that a feature map with this description has."""
    landmarks = _SPARSE_LANDMARKS if description.get(HAS_SPARSE_LANDMARKS) else _DENSE_LANDMARKS
    return (*_SCALER_ARRAYS, "whitening", *landmarks)


def check_fields(name: str, description: Any, kinds: Mapping[str, type]) -> None:
    """Raise InvalidInputError unless this is a JSON object with fields of these types."""
    for field_name, kind in kinds.items():
        if not isinstance(description, dict) or type(description.get(field_name)) is not kind:
            raise InvalidInputError(f"{name}.{field_name} must be of type {kind.__name__}")


def check_magnitude(name: str, array: FloatArray) -> None:
    """Raise InvalidInputError if an array has entries whose sums would overflow."""
    if np.abs(array).max(initial=0.0) > MAX_MAGNITUDE:
        raise InvalidInputError(f"{name} must not exceed {MAX_MAGNITUDE:g}: sums of it would overflow")


def read_feature_map(name: str, description: Description, arrays: Mapping[str, FloatArray]) -> FeatureMap:
    """Rebuild a feature map whose arrays begin with this name; raises InvalidInputError."""
    parts = {part: arrays[f"{name}_{part}"] for part in feature_map_arrays(description)}
    for part in ("landmarks", "whitening"):
        check_magnitude(f"{name}_{part}", parts[part])
    n_features = parts["mean"].shape[0] if parts["mean"].ndim else 0
    check_array(f"{name}_mean", parts["mean"], (n_features,))
    check_array(f"{name}_scale", parts["scale"], (n_features,))
    landmarks: Samples = parts["landmarks"]
    if description.get(HAS_SPARSE_LANDMARKS):
        landmarks = _read_sparse_landmarks(name, parts, n_features)
    else:
        check_array(f"{name}_landmarks", landmarks, (None, n_features))
    check_array(f"{name}_whitening", parts["whitening"], (landmarks.shape[0], None))
    gamma = description["gamma"]
    if not 0.0 <= gamma < np.inf:
        raise InvalidInputError(f"{name}: gamma must be finite and >= 0, got {gamma}")
    try:
        scaler = Scaler.restore(description["scaling"], parts["mean"], parts["scale"])
        return FeatureMap(scaler, description["kernel"], gamma, landmarks, parts["whitening"], serves=True)
    except InvalidParameterError as error:
        raise InvalidInputError(f"{name}: {error}") from error


def _landmark_arrays(landmarks: Samples) -> dict[str, FloatArray]:
    if not is_sparse(landmarks):
        return {"landmarks": landmarks}
    columns, ends = landmarks.indices.astype(np.int64), landmarks.indptr[1:].astype(np.int64)
    return dict(zip(_SPARSE_LANDMARKS, (landmarks.data, columns, ends), strict=True))


def _read_sparse_landmarks(name: str, parts: Mapping[str, FloatArray], n_features: int) -> Samples:
    entries, columns, ends = (parts[part] for part in _SPARSE_LANDMARKS)
    check_array(f"{name}_landmarks", entries, (None,))
    for part, numbers, largest in (("columns", columns, n_features - 1), ("ends", ends, len(entries))):
        is_valid = numbers.dtype == np.int64 and numbers.ndim == 1
        if not (is_valid and ((numbers >= 0) & (numbers <= largest)).all()):
            raise InvalidInputError(f"{name}_landmark_{part} must hold integers from 0 to {largest}")
    row_ends = np.concatenate([[0], ends])
    if len(columns) != len(entries) or row_ends[-1] != len(entries) or (np.diff(row_ends) < 0).any():
        raise InvalidInputError(f"{name}_landmarks do not match their columns and ends")
    return scipy.sparse.csr_array((entries, columns, row_ends), shape=(len(ends), n_features))
