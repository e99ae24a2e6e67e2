from typing import Any

import pytest
import typer
from pydantic import ValidationError
from typer.testing import CliRunner

from app.cli.train import read_objective, train
from app.settings import Settings


def test_an_objective_is_a_name_or_weights() -> None:
    assert read_objective("recall") == "recall"
    assert read_objective("ndcg=2, recall=0.5") == {"ndcg": 2.0, "recall": 0.5}
    with_floor = {"map": 1.0, "at_least": {"recall_1": 0.97}}
    assert read_objective("map=1,at_least.recall_1=0.97") == with_floor


@pytest.mark.parametrize(
    "text",
    [
        *("", "precision", "ndcg=", "ndcg=-1", "ndcg=inf", "ndcg=nan", "ndcg,recall", "ndcg=1,ndcg=2"),
        *("map=1,at_least.recall=0.9", "map=1,recall_1=0.9", "map=1,at_least.map=0.9,at_least.map=0.9"),
    ],
)
def test_what_is_no_objective_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="ndcg, map or recall, or weights such as ndcg=2,recall=1"):
        read_objective(text)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--engine", "ray"], "expected local or dask, got 'ray'"),
        (["--engine", "dask", "--scheduler", "host:8786"], "expected an address such as tcp://host:8786"),
        (["--scheduler", "tcp://host:8786"], "needs --engine dask"),
    ],
)
def test_an_engine_that_cannot_be_is_refused_before_anything_is_read(
    options: list[str], reason: str, distributed: Any
) -> None:
    app = typer.Typer()
    app.command()(train)
    refused = CliRunner().invoke(app, ["shop", *options], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert refused.exit_code == 2
    assert reason in refused.output


def test_settings_refuse_an_address_that_is_none() -> None:
    with pytest.raises(ValidationError, match="dask_scheduler"):
        Settings(dask_scheduler="host:8786")
