"""The state of a fitted estimator as JSON values and arrays; no pickle."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse
from safetensors.numpy import save

Arrays = dict[str, npt.NDArray[Any]]
ARRAYS_FILE, HEADER_FILE = "model.safetensors", "model.json"
ESTIMATOR_FORMAT = 4  # beside those of projectors, see `solver.artifacts`


def write_state(estimator: Any, folder: str | Path) -> None:
    """Write an estimator into a folder, which is made if need be."""
    arrays: Arrays = {}
    state = describe(estimator, type(estimator).__name__, arrays)
    text = json.dumps({"format": ESTIMATOR_FORMAT, "estimator": state}, allow_nan=False)
    directory = Path(folder)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / ARRAYS_FILE).write_bytes(save(arrays))
    (directory / HEADER_FILE).write_text(text + "\n", encoding="utf-8")


def describe(value: Any, name: str, arrays: Arrays) -> Any:
    """Return a value as JSON; arrays go to `arrays`, under names that begin with `name`.
    TypeError, which names it, if it is neither a plain value nor an object of this package."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, enum.Enum):
        return {"enum": type(value).__name__, "value": value.value}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, np.ndarray) and value.dtype.kind in "OU":
        return {"words": [str(word) for word in value]}
    if isinstance(value, np.ndarray):
        arrays[name] = np.ascontiguousarray(value)
        return {"array": name}
    if isinstance(value, scipy.sparse.csr_array):
        parts = {part: getattr(value, part) for part in ("data", "indices", "indptr")}
        shape: tuple[int, ...] = value.shape
        return {"sparse": describe(parts, name, arrays), "shape": list(shape)}
    if isinstance(value, Mapping):
        return {"dict": {key: describe(item, f"{name}.{key}", arrays) for key, item in value.items()}}
    if isinstance(value, list | tuple):
        items = [describe(item, f"{name}.{number}", arrays) for number, item in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": items}
    if isinstance(value, type) and issubclass(value, np.generic):
        return {"dtype": np.dtype(value).name}
    if not type(value).__module__.startswith(f"{__package__}."):
        raise TypeError(f"{name} is a {type(value).__name__}, which has no file format")
    return {"object": type(value).__name__, "fields": describe(_fields(value), name, arrays)}


def restore(node: Any, arrays: Mapping[str, npt.NDArray[Any]], classes: Mapping[str, type[Any]]) -> Any:
    """Return the value that `describe` took; objects are of these classes only.
    KeyError, TypeError or ValueError if something is missing or of an unknown kind."""
    if not isinstance(node, dict):
        return node
    kind, content = next(iter(node.items()))
    if kind == "enum":
        return classes[content](node["value"])
    if kind == "float":
        return float(content)
    if kind == "words":
        return np.asarray(content, object)
    if kind == "array":
        return arrays[content]
    if kind == "dtype":
        return np.dtype(content).type
    if kind == "dict":
        return {key: restore(item, arrays, classes) for key, item in content.items()}
    if kind in ("list", "tuple"):
        items = [restore(item, arrays, classes) for item in content]
        return tuple(items) if kind == "tuple" else items
    if kind == "sparse":
        parts = restore(content, arrays, classes)
        triple = parts["data"], parts["indices"], parts["indptr"]
        return scipy.sparse.csr_array(triple, shape=tuple(node["shape"]))
    fields, of_class = restore(node["fields"], arrays, classes), classes[node["object"]]
    if _is_record(of_class):
        return of_class(**fields)  # which checks them
    restored = object.__new__(of_class)
    restored.__dict__.update(fields)
    return restored


def _is_record(kind: type[Any]) -> bool:
    """Say whether its fields are all that such an object has; an estimator has what it learned, too."""
    return dataclasses.is_dataclass(kind) and not hasattr(kind, "get_params")


def _fields(value: Any) -> dict[str, Any]:
    if _is_record(type(value)):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    return dict(vars(value))
