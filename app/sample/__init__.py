"""The sample set that the project draws itself: pictures with sentences about them."""

from __future__ import annotations

from app.sample.kind import KINDS, Sample, draw_sample

__all__ = ["KINDS", "Sample", "draw_sample"]
