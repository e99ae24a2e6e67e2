import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

from solver import InvalidInputError
from solver.linalg import check_samples, to_dense

NUMBERS = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 1.0]])


class Tensor:
    """Offers its numbers as tensors of other libraries do."""

    def __dlpack__(self, **options: Any) -> Any:
        return NUMBERS.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return NUMBERS.__dlpack_device__()


def frame(*dtypes: Any) -> pd.DataFrame:
    columns = zip("abc", NUMBERS.T, dtypes, strict=True)
    return pd.DataFrame({name: pd.Series(values).astype(dtype) for name, values, dtype in columns})


FRAMES: dict[str, Any] = {
    "nullable": frame("boolean", "Int64", "Float64"),
    "of Arrow": frame("double[pyarrow]", "int64[pyarrow]", pd.ArrowDtype(pa.decimal128(5, 2))),
    "categories of numbers": frame("category", "int8", "category"),
    "bool beside float": frame(bool, float, float),
    "objects": frame(object, object, object),
    "sparse": frame(pd.SparseDtype(float, 0.0), pd.SparseDtype(int, 0), float),
    "no words for names": pd.DataFrame(NUMBERS).astype("Float32"),
    "equal names": pd.DataFrame(NUMBERS, columns=["a", "a", "a"], dtype="Int64"),
    "polars": pl.DataFrame(NUMBERS, schema={"a": pl.Int64, "b": pl.Float32, "c": pl.Float64}, strict=False),
    "polars, decimal": pl.DataFrame(NUMBERS).cast({"column_0": pl.Decimal(5, 2)}),
    "a table of Arrow": pa.table({"a": NUMBERS[:, 0], "b": [0, 3], "c": [2.0, 1.0]}),
}
SPARSE = {
    f"{kind} {dtype}": getattr(scipy.sparse, kind)(NUMBERS.astype(dtype))
    for kind in (f"{name}_{suffix}" for name in ("csr", "csc", "coo", "lil", "dok", "dia", "bsr")
                 for suffix in ("array", "matrix"))
    for dtype in ("int8", "float64")
}  # fmt: skip
ARRAYS: dict[str, Any] = {
    "lists": NUMBERS.tolist(),
    "decimal numbers": [[decimal.Decimal(value) for value in row] for row in NUMBERS.tolist()],
    "tensor": Tensor(),
    "masked, nothing hidden": np.ma.masked_greater(NUMBERS, 9.0),
    **{
        dtype: NUMBERS.astype(dtype) for dtype in ("float16", ">f4", ">f8", ">i2", "uint8", "longdouble", "O")
    },
}


@pytest.mark.parametrize("form", [*FRAMES, *SPARSE, *ARRAYS])
def test_numbers_of_any_form_are_taken(form: str) -> None:
    samples = {**FRAMES, **SPARSE, **ARRAYS}[form]
    checked = check_samples(samples, "X")
    assert checked.dtype in (np.float32, np.float64)
    assert checked.dtype.isnative
    np.testing.assert_array_equal(to_dense(checked), NUMBERS)


def test_a_memory_map_is_not_copied(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", NUMBERS)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert np.shares_memory(check_samples(mapped, "X"), mapped)


REFUSED: list[tuple[Any, str]] = [
    (FRAMES["nullable"].assign(b=pd.array([None, 1], "Int64")), "missing.*'b' of dtype Int64 does in row 0"),
    (FRAMES["of Arrow"].assign(a=pd.array([1, None], "double[pyarrow]")), r"missing.*'a' .*row 1"),
    (frame("category", "int8", "int8").assign(a=pd.Categorical([1, None])), "missing.*'a' of dtype category"),
    (frame(float, float, "Float64").replace(0.0, np.nan), r"missing.*'a' .*row 1; so do 1 more, .*'b'"),
    (frame(float, float, float).replace(3.0, -np.inf), "infinity: column 'b' of dtype float64 does in row 1"),
    (frame(float, float, str), "'c' of dtype str holds text in row 0: '2.0'"),
    (frame(float, "datetime64[ns]", float), "'b' of dtype datetime64"),
    (frame("datetime64[ns]", "datetime64[ns]", "datetime64[ns]"), "'a' of dtype datetime64"),
    (frame(float, complex, float), "'b' of dtype complex128"),
    (pd.DataFrame({"a": pd.Categorical(["low", "high"]), "b": [1, 2]}), "'a' of dtype category holds text"),
    (pl.DataFrame({"a": [1.0, 2.0], "b": [None, 2]}), "missing.*'b' of dtype Int64 does in row 0"),
    (pl.DataFrame({"a": [1.0, 2.0], "b": [True, None]}), "missing.*'b' of dtype Boolean does in row 1"),
    (pl.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}), "'b' of dtype String holds text in row 0: 'x'"),
    (pl.DataFrame({"a": [1.0], "b": [1]}).cast({"b": pl.Datetime}), "'b' of dtype Datetime"),
    (pl.DataFrame({"a": [1.0], "b": [[1]]}), r"'b' of dtype List\(Int64\) holds a ndarray"),
    (pl.LazyFrame({"a": [1.0]}), "got LazyFrame"),
    (pa.table({"a": [1.0, 2.0], "b": ["x", None]}), "column 1 holds text in row 0: 'x'"),
    ([[1.0, None], [2.0, 3.0]], "missing.*column 1 does in row 0"),
    ([[1.0, 2.0], [2.0, "much"]], "column 1 holds text in row 1: 'much'"),
    ([[1.0, {}], [2.0, 3.0]], "column 1 holds a dict in row 0"),
    (NUMBERS.astype(str), "column 0 holds text in row 0: '1.0'"),
    (NUMBERS.astype("M8[s]"), "must be numeric, got dtype datetime64"),
    (np.zeros(2, [("a", float)]), "must be numeric, got dtype"),
    (np.ma.masked_equal(NUMBERS, 3.0), "missing.*column 1 does in row 1"),
    (np.array([["1e4000"]], np.longdouble), "infinity: column 0"),
    (scipy.sparse.csc_array([[1.0, 0.0], [0.0, np.nan]]), "missing.*column 1 does in row 1"),
    (scipy.sparse.coo_array(np.ones((2, 2, 2))), "no two-dimensional sparse array"),
    (pd.DataFrame({"a": []}), "non-empty"),
    (pl.DataFrame({"a": []}), "non-empty"),
    ({"a": 1}, "array, got dict"),
    ("text", "array, got str"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_is_no_number_is_named_by_column(number: int) -> None:
    samples, words = REFUSED[number]
    with pytest.raises(InvalidInputError, match=f"^X .*{words}") as refused:
        check_samples(samples, "X")
    assert "dtype object" not in str(refused.value)
