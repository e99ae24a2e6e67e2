import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from app.cli.compare.own_data import LIMITS, FileCache, SetEncoder, TableColumns, load_table
from app.cli.compare.report import quality_values
from app.domain.reports import Supervision
from app.encoders.registry import EncoderRegistry
from solver.comparison import compare
from tests.benchmarks.__main__ import benchmarks

COLOURS = {"red": (200, 40, 40), "green": (40, 180, 40), "blue": (40, 40, 200)}


def write_table(folder: Path) -> Path:
    """Write a table of noisy pictures whose text says their colour, half of them to learn from."""
    random = np.random.default_rng(0)
    lines = ["id,image,text,label,split"]
    for number in range(48):
        name = list(COLOURS)[number % 3]
        noise = random.integers(-40, 40, (16, 16, 3))
        Image.fromarray((np.array(COLOURS[name]) + noise).clip(0, 255).astype(np.uint8)).save(
            folder / f"{number}.png"
        )
        text = f"a {name} {'bag' if number % 2 else 'shoe'}"
        lines.append(f"{number},{number}.png,{text},{name},{'train' if number < 30 else 'test'}")
    file = folder / "items.csv"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def measured(file: Path, *options: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(benchmarks, ["encoders", str(file), *options, "--method", "CCA", "--json"])
    assert done.exit_code == 0, done.output
    rows: list[dict[str, Any]] = json.loads(done.stdout)["results"]
    return rows


@pytest.mark.filterwarnings("ignore::solver.ConvergenceWarning")
def test_each_encoder_is_measured_beside_the_first_of_the_other_side(tmp_path: Path) -> None:
    file = write_table(tmp_path)
    pictures, texts = ("hog-color", "hog-color:steps=[pca:0.9]"), ("tfidf", "lda:topics=2")
    rows = measured(
        file,
        *(part for name in pictures for part in ("--image-encoder", name)),
        *(part for name in texts for part in ("--text-encoder", name)),
    )
    assert [(row["side"], row["encoder"]) for row in rows] == [
        *(("image", name) for name in pictures),
        *(("text", name) for name in texts),
    ]
    assert all(row["contents_per_second"] > 0 for row in rows)
    assert [row["fit_seconds"] > 0 for row in rows] == [False, False, True, True]
    assert rows[1]["dim"] < rows[0]["dim"]
    assert rows[3]["dim"] == 2
    assert rows[0]["quality"] == rows[2]["quality"]
    columns = TableColumns(
        "id", "image", "text", None, None, None, {"type": "hog-color"}, {"type": "lda", "topics": 2}
    )
    encoder = SetEncoder(EncoderRegistry(LIMITS), FileCache(tmp_path / "cache"))
    loaded = load_table(file, columns, Supervision(), encoder, 0)
    compared = compare(loaded.data, annotations=loaded.annotations, methods=["CCA"], pca=[False])
    assert json.loads(json.dumps(quality_values(compared.qualities[0]))) == rows[3]["quality"]
    assert rows[2]["quality"]["mean"]["map"] > compared.chance


def test_an_encoder_of_other_contents_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        benchmarks, ["encoders", str(write_table(tmp_path)), "--image-encoder", "tfidf", "--json"]
    )
    assert "--image-encoder: content: expected a text" in str(done.exception)
