"""`dask` of the benchmarks: a whole run of it, very small."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.benchmarks.__main__ import benchmarks


def test_a_whole_run_reports_what_was_expected_and_measured(distributed: Any) -> None:
    options = ["--sizes", "300,400", "--workers", "1", "--evaluations", "2", "--json"]
    run = CliRunner().invoke(benchmarks, ["dask", *options])
    assert run.exit_code == 0, run.output
    report = json.loads(run.stdout)
    assert [row.pop("n_samples") for row in report["results"]] == [300, 400]
    for row in report["results"]:
        assert len(row) == 4
        assert all(0.0 < seconds < 60.0 for seconds in row.values())
    assert report["machine"]["seed"] == 0


@pytest.mark.parametrize("sizes", ["5e3", "50", "", "500,"])
def test_sizes_that_are_not_numbers_of_samples_are_refused(sizes: str) -> None:
    run = CliRunner().invoke(benchmarks, ["dask", "--sizes", sizes])
    assert run.exit_code == 2
    assert "--sizes" in run.output
