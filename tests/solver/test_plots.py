"""Plots are judged by what they draw: the data of their lines, and their text."""

import io
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from PIL import Image

from solver import IterationProgress, Reliability, RetrievalCurves
from solver.plots import (
    Interval,
    Plot,
    Theme,
    plot_convergence,
    plot_intervals,
    plot_precision_recall,
    plot_precision_scope,
    plot_reliability,
    plot_retrieval,
    plot_singular_values,
)
from solver.validation import InvalidInputError, InvalidParameterError

NAME = "<b>$a_1$ & co</b>"
HISTORY = [
    IterationProgress(1, 0.7, 0.5, 4, 1.0, 0.1),
    IterationProgress(2, 0.4, None, 3, 1.0, 0.2),
    IterationProgress(3, 0.3, 1e-4, 2, 1.0, 0.3),
]


def curves(precision: float) -> RetrievalCurves:
    return RetrievalCurves(
        np.array([0.0, 1.0]),
        np.array([1.0, precision]),
        np.array([1, 5, 20]),
        np.array([precision, 0.4, 0.25]),
    )


DIRECTIONS = {
    "image to text": {"ours": curves(0.9), NAME: curves(0.5)},
    "text to image": {"ours": curves(0.8)},
}
CHANCE = {"image to text": 0.1, "text to image": 0.2}
RELIABILITY = Reliability(np.array([0.1, 0.9]), np.array([0.05, 1.0]), np.array([1000, 10]))
PLOTS = {
    "singular values": lambda theme: plot_singular_values([2.0, 1.0], theme=theme),
    "spectra": lambda theme: plot_singular_values({NAME: [4.0, 1.0]}, theme=theme),
    "convergence": lambda theme: plot_convergence(HISTORY, theme=theme),
    "recall": lambda theme: plot_precision_recall(DIRECTIONS, CHANCE, theme=theme),
    "scope": lambda theme: plot_precision_scope(DIRECTIONS, CHANCE, theme=theme),
    "both": lambda theme: plot_retrieval(DIRECTIONS, CHANCE, theme=theme),
    "reliability": lambda theme: plot_reliability(RELIABILITY, theme=theme),
    "intervals": lambda theme: plot_intervals({NAME: {"plain": Interval(0.5, 0.4, 0.7)}}, "MAP", theme=theme),
}


def drawn(axes: Any) -> dict[str, tuple[list[float], list[float]]]:
    """Return the points of each line, by its name."""
    return {
        line.get_label(): (np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist())
        for line in axes.get_lines()
    }


def texts(plot: Plot) -> list[str]:
    root = ElementTree.fromstring(plot.svg())
    return ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("name", PLOTS)
def test_an_svg_is_the_same_each_time_whatever_the_style_of_the_process(name: str) -> None:
    plot = PLOTS[name]("light")
    svg = plot.svg()
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.findtext("{http://www.w3.org/2000/svg}title") == plot.title
    assert "metadata" not in svg
    assert "mathdefault" not in svg
    with matplotlib.rc_context({"font.size": 30.0, "axes.edgecolor": "red", "svg.fonttype": "path"}):
        before = dict(matplotlib.rcParams)
        assert PLOTS[name]("light").svg() == svg
        assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize(("theme", "ground"), [("light", (255, 255, 255)), ("dark", (26, 29, 36))])
def test_a_png_has_the_ground_of_its_theme_and_is_the_same_each_time(
    theme: Theme, ground: tuple[int, int, int]
) -> None:
    png = PLOTS["scope"](theme).png()
    assert PLOTS["scope"](theme).png() == png
    with Image.open(io.BytesIO(png)) as picture:
        assert picture.convert("RGB").getpixel((0, 0)) == ground
        assert min(picture.size) > 400


def test_singular_values_are_drawn_in_descending_order_without_zeros() -> None:
    (axes,) = plot_singular_values([1.0, 4.0, 0.0, 2.0]).figure.axes
    assert list(drawn(axes).values()) == [([1, 2, 3], [4.0, 2.0, 1.0])]
    (axes,) = plot_singular_values({"a": [4.0, 1.0], "b": [10.0, 0.0]}).figure.axes
    assert drawn(axes) == {"a: rank 2": ([1, 2], [1.0, 0.25]), "b: rank 1": ([1], [1.0])}


def test_convergence_shows_objective_gap_and_rank_by_iteration() -> None:
    objective, gap, rank = (drawn(axes) for axes in plot_convergence(HISTORY).figure.axes)
    assert list(objective.values()) == [([1, 2, 3], [0.7, 0.4, 0.3])]
    assert list(gap.values()) == [([1, 3], [0.5, 1e-4])]
    assert list(rank.values()) == [([1, 2, 3], [4, 3, 2])]


def test_a_fit_without_gaps_has_an_objective_and_ranks() -> None:
    plot = plot_convergence([HISTORY[1]])
    assert [list(drawn(axes).values()) for axes in plot.figure.axes] == [
        [([2], [0.4])],
        [([], [])],
        [([2], [3])],
    ]
    assert plot.svg()


def test_each_direction_has_a_panel_with_its_methods_and_chance() -> None:
    first, second = plot_precision_recall(DIRECTIONS, CHANCE).figure.axes
    assert (first.get_title(), second.get_title()) == ("image to text", "text to image")
    lines = drawn(first)
    assert list(lines) == ["ours", NAME, "chance"]
    assert lines["ours"] == ([0.0, 1.0], [1.0, 0.9])
    assert lines[NAME] == ([0.0, 1.0], [1.0, 0.5])
    assert lines["chance"][1] == [0.1, 0.1]
    assert drawn(second)["chance"][1] == [0.2, 0.2]
    assert first.get_ylim()[0] == 0.0
    first, second = plot_precision_scope(DIRECTIONS).figure.axes
    assert drawn(first)["ours"] == ([1, 5, 20], [0.9, 0.4, 0.25])
    assert list(drawn(second)) == ["ours"]
    both = plot_retrieval(DIRECTIONS, CHANCE).figure.axes
    assert [next(iter(drawn(axes))) for axes in both] == ["ours"] * 4
    assert [axes.get_title() for axes in both] == ["image to text", "text to image", "", ""]


def test_reliability_is_drawn_against_the_diagonal_with_the_number_of_pairs() -> None:
    above, below = plot_reliability(RELIABILITY).figure.axes
    assert drawn(above) == {
        "reliable": ([0, 1], [0, 1]),
        "this model": ([0.1, 0.9], [0.05, 1.0]),
    }
    assert list(drawn(below).values()) == [([0.1, 0.9], [1000, 10])]
    above, _ = plot_reliability({"a": RELIABILITY, "b": RELIABILITY}).figure.axes
    assert list(drawn(above)) == ["reliable", "a", "b"]


def test_intervals_are_in_percent_with_the_best_group_at_the_top() -> None:
    groups = {
        "good": {"plain": Interval(0.5, 0.4, 0.7), "PCA": Interval(0.3, 0.2, 0.35)},
        "poor": {"PCA": Interval(0.4, 0.3, 0.5)},
    }
    (axes,) = plot_intervals(groups, "MAP").figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["poor", "good"]
    lines = drawn(axes)
    assert lines["plain"] == ([50.0], pytest.approx([1.14]))
    assert lines["PCA"] == ([40.0, 30.0], pytest.approx([-0.14, 0.86]))
    (segment,) = axes.collections[0].get_segments()
    assert np.asarray(segment).ravel().tolist() == pytest.approx([40.0, 1.14, 70.0, 1.14])


@pytest.mark.parametrize("name", ["spectra", "recall", "intervals"])
def test_names_are_shown_as_they_are(name: str) -> None:
    plot = PLOTS[name]("light")
    assert any(text.startswith(NAME) for text in texts(plot))
    assert "<b>" not in plot.svg()


def test_files_are_written_by_their_ending(tmp_path: Path) -> None:
    plot = plot_singular_values([1.0])
    for suffix in ("svg", "png"):
        plot.save(tmp_path / f"plot.{suffix}")
    assert (tmp_path / "plot.svg").read_text() == plot.svg() == plot._repr_svg_()
    assert (tmp_path / "plot.png").read_bytes() == plot.png()
    with pytest.raises(InvalidParameterError, match=r"path must be a file that ends in \.svg or \.png"):
        plot.save(tmp_path / "plot.pdf")


def test_what_cannot_be_drawn_is_refused_by_name() -> None:
    for nothing in ([], {}, [0.0], {"a": []}):
        with pytest.raises(InvalidInputError, match="no positive singular values"):
            plot_singular_values(nothing)
    with pytest.raises(InvalidInputError, match="singular values of 'a' must be finite"):
        plot_singular_values({"a": [1.0, float("nan")]})
    with pytest.raises(InvalidInputError, match="steps"):
        plot_convergence([])
    for empty in ({}, {"image to text": {}}):
        with pytest.raises(InvalidInputError, match="curves"):
            plot_retrieval(empty)
    with pytest.raises(InvalidInputError, match="no pairs"):
        plot_reliability(Reliability(np.zeros(0), np.zeros(0), np.zeros(0, np.intp)))
    with pytest.raises(InvalidInputError, match="value"):
        plot_intervals({}, "MAP")
    with pytest.raises(InvalidParameterError, match="theme"):
        plot_singular_values([1.0], theme="sepia")  # type: ignore[arg-type]


@dataclass
class Step:
    """A step of one's own."""

    iteration: int
    objective: float
    gap: float | None
    rank: int


def test_steps_may_be_of_any_class() -> None:
    (line,) = drawn(plot_convergence([Step(1, 2.0, None, 3)]).figure.axes[0]).values()
    assert line == ([1], [2.0])


def test_without_matplotlib_the_extra_is_named_and_pyplot_is_never_imported() -> None:
    program = (
        "import sys, solver, solver.plots as plots\n"
        "assert 'matplotlib' not in sys.modules\n"
        "plots.plot_singular_values([1.0]).png()\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "for name in [name for name in sys.modules if name.startswith('matplotlib')]: del sys.modules[name]\n"
        "sys.modules['matplotlib'] = None\n"
        "try: plots.plot_singular_values([1.0])\n"
        "except ImportError as error: print(error)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'lrbs[plots]'" in ended.stdout
