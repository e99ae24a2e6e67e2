"""`lrbs compare` from the command line to the report in a browser."""

import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import scipy.io
from PIL import Image
from playwright.sync_api import Page

from tests.app.e2e.conftest import LRBS, ROOT, LrbsInside, environment_of

METHODS = "LowRankBilinear,CCA,MsAlg"
PRODUCTS = ("products", "--methods", METHODS, "--folds", "2", "--json")
SCENES = ("boat", "tree", "house")
ALONE = ("--jobs", "1")
"""Without processes of its own: each imports for longer than it then computes."""
Compare = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run_compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lrbs_inside: LrbsInside) -> Compare:
    """Return a function that compares in this process, in this test's folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LRBS_TEST_DATA", raising=False)
    return partial(lrbs_inside, "compare")


def draw_products(folder: Path) -> None:
    """Write a tiny set in the layout of `products/`: a colour for each kind, and words."""
    rng = np.random.default_rng(0)
    pictures = folder / "products" / "images"
    pictures.mkdir(parents=True)
    with (folder / "products" / "items.csv").open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(["id", "image", "text", "label", "split", "colour"])
        for number in range(54):
            kind = number % 3
            pixels = rng.integers(0, 120, (24, 24, 3), dtype=np.uint8)
            pixels[..., kind] += 60 + rng.integers(0, 70, dtype=np.uint8)
            Image.fromarray(pixels).save(pictures / f"{number}.jpg")
            text = f"{SCENES[kind] if rng.random() < 0.8 else 'thing'} <b>number</b> {number % 7}"
            split = "test" if number % 4 == 0 else "train"
            table.writerow([number, f"images/{number}.jpg", text, SCENES[kind], split, "red"])


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("compare")
    draw_products(folder)
    files = ("--report", "report", "--plots", "plots", "--trec", "trec")
    environment = environment_of(folder / "data") | {"LRBS_TEST_DATA": str(folder), "PYTHONPATH": str(ROOT)}
    command = [*LRBS, "compare", *PRODUCTS, *files, *ALONE]
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder, done


def test_json_is_a_list_of_rows_with_and_without_pca(report: tuple[Path, Any]) -> None:
    rows = json.loads(report[1].stdout)
    assert [(row["method"], row["pca"]) for row in rows] == [
        (name, pca) for pca in (False, True) for name in METHODS.split(",")
    ]
    for row in rows:
        assert row["dataset"] == "products"
        assert 0 <= row["image_query"] <= 1
        assert row["average"] == pytest.approx((row["image_query"] + row["text_query"]) / 2)
        assert row["params"]["x_scaling"]
        assert row["fit_seconds"] > 0
        assert set(row["intervals"]) == {"image_query", "text_query", "average"}
        assert row["quality"]["mean"]["map"] == pytest.approx(row["average"], abs=1e-3)
        assert row["quality"]["x_to_z"]["n_queries"] == 14


def test_standard_error_says_seed_sizes_and_machine(report: tuple[Path, Any]) -> None:
    said = report[1].stderr
    assert "seed 0" in said
    assert f"{os.cpu_count()} cores" in said
    assert "40 rows to train, 14 to test, 3 classes" in said


def test_a_second_run_computes_nothing_again(report: tuple[Path, Any], run_compare: Compare) -> None:
    folder, first = report
    settings = {"LRBS_DATA_DIR": str(folder / "data"), "LRBS_TEST_DATA": str(folder)}
    again = run_compare(*PRODUCTS, **settings)
    assert json.loads(again.stdout) == json.loads(first.stdout)
    assert "from the cache" in again.stderr


def test_the_markdown_table_holds_every_row(report: tuple[Path, Any]) -> None:
    folder, done = report
    text = (folder / "report" / "report.md").read_text(encoding="utf-8")
    for row in json.loads(done.stdout):
        assert f"| {row['method']} | {100 * row['image_query']:.2f} |" in text
    assert text.count("| method |") == 4
    assert "| method | PCA | MAP | nDCG@10 | R@1 | R@10 | rank | label P@10 | lists |" in text
    assert "Candidates of LowRankBilinear" in text
    assert "SemanticBilinear" not in text


def test_trec_files_score_as_the_table_does(report: tuple[Path, Any]) -> None:
    import ir_measures  # here: a run without the developers' tools loses this test only

    folder, done = report
    for row in json.loads(done.stdout):
        name = f"{row['method']}{'-pca' if row['pca'] else ''}"
        for side, key in (("x", "image_query"), ("z", "text_query")):
            judged = ir_measures.read_trec_qrels(str(folder / "trec" / f"products.{side}.qrels"))
            run = ir_measures.read_trec_run(str(folder / "trec" / f"products.{name}.{side}.run"))
            found = ir_measures.calc_aggregate([ir_measures.AP], list(judged), list(run))
            assert found[ir_measures.AP] == pytest.approx(row[key], abs=1e-6)


def test_the_report_has_its_tables_and_curves_as_data(report: tuple[Path, Any]) -> None:
    folder, done = report[0] / "report", json.loads(report[1].stdout)
    with (folder / "results.csv").open(newline="", encoding="utf-8") as stream:
        results = list(csv.DictReader(stream))
    assert [(line["method"], bool(int(line["pca"]))) for line in results] == [
        (row["method"], row["pca"]) for row in done
    ]
    for line, row in zip(results, done, strict=True):
        assert float(line["average"]) == pytest.approx(row["average"], abs=1e-6)
        assert (line["n_seeds"], line["average_sd"]) == ("1", "")
    latex = (folder / "results.tex").read_text(encoding="utf-8")
    best = max(row["average"] for row in done)
    assert f"\\boldmath${100 * best:.2f}$ \\\\" in latex.split("\\midrule\n")[1].split("\n")[0]
    with (folder / "curves.csv").open(newline="", encoding="utf-8") as stream:
        points = list(csv.DictReader(stream))
    assert {(point["query"], point["curve"]) for point in points} == {
        (side, curve) for side in ("image", "text") for curve in ("recall", "scope")
    }
    assert len({(point["method"], point["pca"]) for point in points}) == len(done)
    first = [point for point in points if (point["curve"], point["at"]) == ("scope", "1")]
    of_row = next(
        point for point in first if (point["method"], point["pca"], point["query"]) == ("CCA", "0", "text")
    )
    assert 0 <= float(of_row["precision"]) <= 1


def test_the_plots_are_written_as_svg_and_png(report: tuple[Path, Any]) -> None:
    folder = report[0] / "plots"
    kinds = ("intervals", "precision-recall", "precision-scope", "singular-values")
    assert sorted(path.name for path in folder.iterdir()) == [
        f"products-{kind}.{suffix}" for kind in kinds for suffix in ("png", "svg")
    ]
    for kind in kinds:
        with Image.open(folder / f"products-{kind}.png") as picture:
            assert min(picture.size) > 200
    drawn = ElementTree.parse(folder / "products-precision-recall.svg").getroot()
    texts = {"".join(element.itertext()) for element in drawn.iter("{http://www.w3.org/2000/svg}text")}
    assert {*METHODS.split(","), "chance", "recall", "image query, text gallery"} <= texts


@pytest.mark.browser
def test_the_report_stands_alone_and_shows_every_figure(report: tuple[Path, Any], page: Page) -> None:
    folder, _ = report
    asked, complaints = [], []
    page.set_viewport_size({"width": 1100, "height": 900})
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto((folder / "report" / "report.html").as_uri())
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert [url for url in asked if url.startswith("file:")] == [page.url]
    assert complaints == []
    for kind in ("intervals", "curves", "spectrum"):
        box = page.locator(f"section#products figure.{kind} svg").bounding_box()
        assert box is not None
        assert box["width"] > 300
        assert box["height"] > 100
    curves = page.locator("figure.curves svg").text_content() or ""
    for word in (*METHODS.split(","), "recall", "scope", "image query", "text query"):
        assert word in curves
    assert page.locator("table").count() == 4
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.browser
def test_the_report_shows_pictures_and_texts_of_retrieved_samples(
    report: tuple[Path, Any], page: Page
) -> None:
    page.goto((report[0] / "report" / "report.html").as_uri())
    assert page.locator(".row").count() == 8
    widths = page.locator(".item img").evaluate_all("images => images.map(image => image.naturalWidth)")
    assert len(widths) == 4 + 4 * 6
    assert all(width > 0 for width in widths)
    texts = page.locator(".item.right, .item.wrong").filter(has_not=page.locator("img")).all_inner_texts()
    assert len(texts) == 24
    assert all("<b>number</b>" in text for text in texts)  # shown, not taken for markup
    for item in page.locator(".item.wrong").all_inner_texts():
        assert "✗" in item


def test_a_published_protocol_prints_its_numbers_and_what_differs(
    tmp_path: Path, run_compare: Compare
) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    X = np.eye(3)[labels] + 0.5 * rng.standard_normal((60, 3))
    parts = {"I_tr": X[:40], "I_te": X[40:], "T_tr": X[:40, :2], "T_te": X[40:, :2]}
    (tmp_path / "files").mkdir()
    np.savez(tmp_path / "files" / "voc2007.npz", **parts, y_tr=labels[:40], y_te=labels[40:])
    given = "--protocol", "voc2007", "--data", "files", "--methods", "MsAlg", *ALONE
    done = run_compare(*given)
    assert done.returncode == 0, done.stderr
    assert "LRBS 66.95%, second best 65.97%" in done.stdout
    assert "other features: 3-d pictures, published: 512-d GIST or 4096-d CNN" in done.stdout
    assert "another split: 40 training pairs, published: 2808" in done.stdout


def test_an_archive_of_ones_own_prints_what_users_look_for(tmp_path: Path, run_compare: Compare) -> None:
    rng = np.random.default_rng(0)
    labels, seasons = np.arange(60) % 3, np.arange(60) % 2
    x, z = (np.eye(3)[labels] + 0.5 * rng.standard_normal((60, 3)) for _ in range(2))
    is_test = np.arange(60) % 4 == 0
    np.savez(
        tmp_path / "shop.npz", x=x, z=z, labels=labels, is_test=is_test, facet_season_of_the_year=seasons
    )
    done = run_compare("--npz", "shop.npz", "--methods", "CCA,MsAlg", *ALONE)
    assert done.returncode == 0, done.stderr
    assert "shop: 45 rows to train, 15 to test, 3 classes; x: 3-d; z: 3-d" in done.stderr
    header = next(line for line in done.stdout.splitlines() if "nDCG@10" in line)
    columns = "method PCA MAP nDCG@10 R@1 R@10 rank label P@10 season_of_the_year P@10 lists"
    assert " ".join(header.split()) == columns
    assert len(re.findall(r"of 30\b", done.stdout)) == 2
    assert "Published" not in done.stdout
    done = run_compare("--npz", "shop.npz", "--no-labels", "--methods", "CCA", *ALONE)
    assert done.returncode == 0, done.stderr
    assert "45 rows to train, 15 to test, 60 groups of partners" in done.stderr
    assert "test MAP in %, relevant: partner" in done.stdout
    header = next(line for line in done.stdout.splitlines() if "nDCG@10" in line)
    assert header.split() == ["method", "PCA", "nDCG@10", "R@1", "R@10", "rank", *columns.split()[-3:]]


def test_several_seeds_give_means_and_deviations(tmp_path: Path, run_compare: Compare) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    x, z = (np.eye(3)[labels] + rng.standard_normal((60, 3)) for _ in range(2))
    scipy.io.savemat(tmp_path / "own_set.mat", {"X": x, "Z": z, "Y": labels})
    given = ("--features", "own_set.mat", "--methods", "CCA", "--seeds", "0,3", *ALONE)
    done = run_compare(*given, "--report", "report")
    assert done.returncode == 0, done.stderr
    assert "own_set: test MAP in %, mean ± standard deviation over the seeds 0, 3" in done.stdout
    rows = json.loads(run_compare(*given, "--json").stdout)
    assert [(row["seed"], row["pca"]) for row in rows] == [(0, False), (0, True), (3, False), (3, True)]
    plain = [100 * row["average"] for row in rows if not row["pca"]]
    assert plain[0] != plain[1]  # another split
    shown = f"{np.mean(plain):.2f} ± {np.std(plain, ddof=1):.2f}"
    assert shown in done.stdout
    for name in ("report.md", "report.html"):
        text = (tmp_path / "report" / name).read_text(encoding="utf-8")
        assert shown in text
        assert "Over the seeds" in text
    latex = (tmp_path / "report" / "results.tex").read_text(encoding="utf-8")
    assert f"${shown.replace('±', chr(92) + 'pm')}$" in latex
    curves = (tmp_path / "report" / "curves.csv").read_text(encoding="utf-8")
    assert "\nown_set,3,CCA,1,z,scope,1," in curves


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["wikipedia", "--seeds", "0,x"], "--seeds"),
        (["wikipedia", "--seeds", "1,1"], "--seeds"),
        (["wikipedia", "--seeds", "0"], "--seeds"),
        (["flickr"], "sets"),
        (["wikipedia", "--methods", "CCA,Nearest"], "--methods"),
        (["--protocol", "voc2007"], "--data"),
        ([], "sets"),
        (["wikipedia", "--protocol", "voc2007", "--data", "."], "sets"),
        (["--npz", "missing.npz"], "missing.npz"),
        (["--collection", "shop"], "LRBS_DATA_DIR"),
    ],
)
def test_mistakes_end_with_a_line_that_names_the_field(
    tmp_path: Path, run_compare: Compare, arguments: list[str], named: str
) -> None:
    settings = {name: str(tmp_path) for name in ("LRBS_DATA_DIR", "LRBS_TEST_DATA")}
    done = run_compare(*arguments, **settings)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()[-1:]
    assert re.match(rf"error: .*{re.escape(named)}", line)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("missing", ["jinja2", "matplotlib"])
def test_a_report_without_its_libraries_names_the_extra_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_compare: Compare, missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    done = run_compare("wikipedia", "--report", "report")
    assert done.returncode == 1
    assert f"error: --report needs {missing}, of the extra: pip install 'lrbs[report]'" in done.stderr
    assert not (tmp_path / "report").exists()
