"""Draw the pictures and sentences of the sample set."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.random import Generator
from PIL import Image

from app.sample.kind import KINDS, Kind, read_kind

__all__ = ["KINDS", "Sample", "draw_sample", "sources_of"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One drawn picture with its texts."""

    id: str  # kind and number, for example ``"sailing-boats-007"``
    kind: str  # one of ``KINDS``
    image: Image.Image  # RGB, 256 by 256 pixels
    sentences: tuple[str, ...]  # two or three, in English


def draw_sample(kind: str, index: int, seed: int = 0) -> Sample:
    """Draw one picture of one of ``KINDS`` (else ValueError); the same arguments always give the same picture
    and sentences. `index` counts the pictures of a kind from 0, `seed` is that of the whole set."""
    drawn, (choosing, drawing, wording) = sources_of(kind, index, seed)
    facets = drawn.choose(choosing)
    image = drawn.draw(facets, drawing)
    return Sample(f"{kind.replace(' ', '-')}-{index:03d}", kind, image, drawn.describe(facets, wording))


def sources_of(kind: str, index: int, seed: int) -> tuple[Kind, tuple[Generator, ...]]:
    """Return the kind, and one source of randomness each for its facets, drawing and wording."""
    if kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r}; the kinds are: {', '.join(KINDS)}")
    # The label's checksum, unlike its position, stays the same when kinds are added.
    source = np.random.SeedSequence([seed, crc32(kind.encode()), index])
    return read_kind(kind), tuple(np.random.default_rng(child) for child in source.spawn(3))
