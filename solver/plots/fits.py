"""Plots of a fit: its singular values, and how it converged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from solver.plots.canvas import Palette, Plot, Theme, make_plot, prepare_axes, use_integers, use_logarithm
from solver.validation.errors import InvalidInputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_MARKED = 60  # points of a line that are marked; more of them would touch


class ConvergenceStep(Protocol):
    """One iteration of a fit; `solver.IterationProgress` is one."""

    @property
    def iteration(self) -> int:
        """Its number."""

    @property
    def objective(self) -> float:
        """Objective after it."""

    @property
    def gap(self) -> float | None:
        """Relative duality gap; None where it was not computed."""

    @property
    def rank(self) -> int:
        """Rank of M."""


def plot_singular_values(
    values: npt.ArrayLike | Mapping[str, npt.ArrayLike], *, theme: Theme = "light"
) -> Plot:
    """Plot the singular values of M in descending order.

    Parameters
    ----------
    values : array-like, or mapping of str to array-like
        Singular values of one M, or of several by name. Those of several are drawn as shares of the largest,
        since the matrices are of different features; each name says its rank.
    theme : {"light", "dark"}
        The ground to draw on.
    """
    named = isinstance(values, Mapping)
    spectra = values if isinstance(values, Mapping) else {"": values}
    lines = {name: _spectrum(name, entry) for name, entry in spectra.items()}
    if not lines or not any(map(len, lines.values())):
        raise InvalidInputError("there are no positive singular values")

    def draw(figure: Figure, palette: Palette) -> None:
        axes = figure.subplots()
        for number, (name, line) in enumerate(lines.items()):
            shown = line / line[0] if named and len(line) else line
            marker = "o" if len(shown) <= _MOST_MARKED else None
            axes.plot(
                np.arange(1, len(shown) + 1),
                shown,
                marker=marker,
                markersize=4,
                label=f"{name}: rank {len(line)}",
                **palette.line(number),
            )
        y_label = "share of the largest" if named else "singular value"
        prepare_axes(axes, palette, "", "number of the singular value", y_label)
        axes.set_ylim(bottom=0.0)
        use_integers(axes.xaxis)
        if named:
            axes.legend(frameon=False, fontsize=9)

    return make_plot("Singular values of M", (7.0, 3.2) if named else (5.0, 3.2), theme, draw)


def plot_convergence(steps: Sequence[ConvergenceStep], *, theme: Theme = "light") -> Plot:
    """Plot objective, relative duality gap and rank of M by iteration.

    Parameters
    ----------
    steps : sequence of ConvergenceStep
        Such as the `history_` of a fit; iterations in ascending order.
    theme : {"light", "dark"}
        The ground to draw on.
    """
    if not len(steps):
        raise InvalidInputError("steps must not be empty")
    with_gap = [step for step in steps if step.gap is not None and step.gap > 0.0]

    def draw(figure: Figure, palette: Palette) -> None:
        axes = figure.subplots(3, 1, sharex=True)
        numbers = [step.iteration for step in steps]
        _draw_steps(axes[0], numbers, [step.objective for step in steps], palette, 0)
        _draw_steps(
            axes[1], [step.iteration for step in with_gap], [step.gap for step in with_gap], palette, 1
        )
        axes[2].step(numbers, [step.rank for step in steps], where="post", **palette.line(2))
        for panel, name in zip(axes, ("objective", "duality gap", "rank"), strict=True):
            prepare_axes(panel, palette, "", "", name)
        if with_gap:
            use_logarithm(axes[1])
        axes[2].set_ylim(bottom=0.0)
        use_integers(axes[2].yaxis)
        use_integers(axes[2].xaxis)
        axes[2].set_xlabel("iteration")
        figure.align_ylabels(axes)

    return make_plot("Objective, duality gap and rank by iteration", (5.0, 5.4), theme, draw)


def _draw_steps(
    axes: Any, numbers: Sequence[int], values: Sequence[Any], palette: Palette, line: int
) -> None:
    marker = "o" if len(numbers) <= _MOST_MARKED else None
    axes.plot(numbers, values, marker=marker, markersize=3, **palette.line(line))


def _spectrum(name: str, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    array = np.sort(np.asarray(values, np.float64).ravel())[::-1]
    if not (np.isfinite(array).all() and (array >= 0.0).all()):
        where = f" of {name!r}" if name else ""
        raise InvalidInputError(f"singular values{where} must be finite and not negative")
    positive: npt.NDArray[np.float64] = array[array > 0.0]
    return positive
