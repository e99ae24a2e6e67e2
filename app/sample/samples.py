"""Draw the pictures and sentences of the sample set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from numpy.random import Generator
from PIL import Image

from app.sample.canvas import Canvas
from app.sample.kinds import SCENES, Scene
from app.sample.wording import compose

__all__ = ["KINDS", "Sample", "draw_parameters", "draw_sample", "draw_samples", "draw_sentences"]

KINDS: tuple[str, ...] = tuple(scene.kind for scene in SCENES)

_SCENE_OF = {scene.kind: scene for scene in SCENES}


@dataclass(frozen=True, slots=True)
class Sample:
    """One drawn picture with its texts.

    Parameters
    ----------
    id
        Kind and number, for example ``"sailing-boats-007"``.
    kind
        One of ``KINDS``.
    image
        RGB picture of 256 by 256 pixels.
    sentences
        Two or three English sentences about the picture.
    """

    id: str
    kind: str
    image: Image.Image
    sentences: tuple[str, ...]


def draw_sample(kind: str, index: int, seed: int = 0) -> Sample:
    """Draw one picture; the same arguments always give the same picture and sentences.

    Parameters
    ----------
    kind
        One of ``KINDS``.
    index
        Number of the picture within its kind, from 0.
    seed
        Seed of the whole sample set.

    Raises
    ------
    ValueError
        If there is no such kind.
    """
    scene, (choosing, drawing, wording) = _sources(kind, index, seed)
    parameters = scene.choose(choosing)
    canvas = Canvas()
    scene.draw(canvas, parameters, drawing)
    sentences = compose(scene.describe(parameters), wording)
    return Sample(f"{kind.replace(' ', '-')}-{index:03d}", kind, canvas.finish(drawing), sentences)


def draw_parameters(kind: str, index: int, seed: int = 0) -> Any:
    """Return the parameters of one picture without drawing it."""
    scene, (choosing, _, _) = _sources(kind, index, seed)
    return scene.choose(choosing)


def draw_sentences(kind: str, index: int, seed: int = 0) -> tuple[str, ...]:
    """Return the sentences of one picture without drawing it."""
    scene, (choosing, _, wording) = _sources(kind, index, seed)
    return compose(scene.describe(scene.choose(choosing)), wording)


def _sources(kind: str, index: int, seed: int) -> tuple[Scene[Any], tuple[Generator, Generator, Generator]]:
    """Return the kind's scene and chance for the parameters, the drawing and the wording."""
    if kind not in _SCENE_OF:
        raise ValueError(f"unknown kind {kind!r}; the kinds are: {', '.join(KINDS)}")
    # The label's checksum, unlike its position, stays the same when kinds are added.
    source = np.random.SeedSequence([seed, crc32(kind.encode()), index])
    choosing, drawing, wording = (np.random.default_rng(child) for child in source.spawn(3))
    return _SCENE_OF[kind], (choosing, drawing, wording)


def draw_samples(per_kind: int = 60, seed: int = 0) -> Iterator[Sample]:
    """Draw the sample set, kind after kind.

    Parameters
    ----------
    per_kind
        Number of pictures of each kind.
    seed
        Seed of the whole sample set.

    Yields
    ------
    Sample
        The pictures in the order of ``KINDS``.
    """
    for kind in KINDS:
        for index in range(per_kind):
            yield draw_sample(kind, index, seed)
