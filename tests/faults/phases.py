"""What a campaign of noisy neighbours measured, phase by phase."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tests.faults.prober import OWN, PROBES, SEARCH, WRITE
from tests.faults.tally import Tally

QUIET, REPLAY, SWAP, BUSY_SWAP = "quiet", "replay", "swap", "busy swap"
JUDGED = (REPLAY, SWAP, BUSY_SWAP)


@dataclass
class Report:
    """What was measured."""

    tally: Tally
    phases: dict[str, tuple[float, float]] = field(default_factory=dict)
    samples: list[tuple[str, float, float, int]] = field(default_factory=list)
    """What, when, seconds, status."""

    @property
    def violations(self) -> list[str]:
        """What must not have happened."""
        return self.tally.violations

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Give a name to what is measured meanwhile."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.phases[name] = (begin, time.monotonic())

    def seconds(self, kind: str, phase: str) -> list[float]:
        """Return how long the answers of a kind took that were under way in a phase, in order of length."""
        begin, end = self.phases[phase]
        return sorted(
            took for what, at, took, _ in self.samples if what == kind and begin <= at + took and at <= end
        )

    def ratio(self, phase: str) -> float:
        """Return the p99 of the small collection's searches in a phase over that of the quiet one."""
        return _quantile(self.seconds(SEARCH, phase), 0.99) / _quantile(self.seconds(SEARCH, QUIET), 0.99)

    def lines(self) -> list[str]:
        """Return the figures as a table, in milliseconds."""
        found = [
            f"{'phase':10} {'seconds':>8} {'asked':8} {'count':>6} {'p50':>8} {'p99':>8} {'max':>8}  of quiet"
        ]
        for name, (begin, end) in self.phases.items():
            for kind in (SEARCH, OWN, *PROBES):
                took = self.seconds(kind, name)
                if not took:
                    found.append(f"{name:10} {end - begin:8.1f} {kind:8} {0:6}")
                    continue
                figures = " ".join(f"{1000 * value:8.1f}" for value in (*_middle_and_tail(took), took[-1]))
                ratio = f"{self.ratio(name):9.2f}" if kind == SEARCH else ""
                found.append(f"{name:10} {end - begin:8.1f} {kind:8} {len(took):6} {figures}  {ratio}")
        return [*found, *self.tally.lines()]

    def judge(self, most_probe_seconds: float, most_ratio: float | None) -> None:
        """Note what must not have happened; ratios only where there is a bound for them."""
        for what, at, took, status in self.samples:
            if status != (201 if what == WRITE else 200):
                self.tally.violation(f"{what} was answered with {status} in {self._phase_at(at)}")
            if what not in (SEARCH, WRITE) and took > most_probe_seconds:
                self.tally.violation(f"{what} took {took:.2f} s in {self._phase_at(at)}")
        for name in JUDGED:
            if most_ratio is not None and self.ratio(name) > most_ratio:
                self.tally.violation(
                    f"p99 of searches was {self.ratio(name):.1f} times the quiet one in {name}"
                )

    def _phase_at(self, at: float) -> str:
        names = [name for name, (begin, end) in self.phases.items() if begin <= at <= end]
        return names[0] if names else "between phases"


def _quantile(values: list[float], share: float) -> float:
    return float(np.quantile(values, share)) if values else float("nan")


def _middle_and_tail(values: list[float]) -> tuple[float, float]:
    return _quantile(values, 0.5), _quantile(values, 0.99)
