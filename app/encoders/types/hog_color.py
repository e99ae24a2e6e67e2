"""Pictures without any download: histograms of oriented gradients and of colours."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from PIL import Image
from typing_extensions import override

from app.domain.entities import Vector
from app.encoders.entry import EncoderType
from app.encoders.options import options_of
from app.encoders.pictures import PictureEncoder, gradient_directions

_SIDE = 96
_CELL = 12
_ORIENTATIONS = 9
_COLOUR_GRID = 4
_HUES, _SATURATIONS, _VALUES = 8, 3, 3
_CLIP = 0.2


_OPTIONS = options_of("hog-color", "pictures: oriented gradients and colours")


class HogColorEncoder(PictureEncoder):
    """Encodes pictures by `describe`."""

    @override
    def describe(self, picture: Image.Image) -> Vector:
        return describe(picture)


def describe(picture: Image.Image) -> Vector:
    """Return shape and colour features of an RGB picture, float32."""
    # Gradient orientations (unsigned, weighted by magnitude) are counted in 8 x 8 cells and normalised over 2
    # x 2 blocks as in Dalal and Triggs (CVPR 2005); colours are counted per region of a 4 x 4 grid in HSV.
    # Both parts have unit weight, and histograms enter by their square root.
    small = picture.resize((_SIDE, _SIDE), Image.Resampling.BOX)
    gray = np.asarray(small.convert("L"), dtype=np.float32) / 255.0
    shape = np.sqrt(_oriented_gradients(gray))
    colour = np.sqrt(_colours(np.asarray(small.convert("HSV"))))
    return np.concatenate([_unit(shape), _unit(colour)]).astype(np.float32)


def _oriented_gradients(gray: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    magnitude, lower, share = gradient_directions(gray, np.pi, _ORIENTATIONS)
    cells = _SIDE // _CELL
    rows, columns = np.indices(gray.shape) // _CELL
    cell = rows * cells + columns
    histogram = np.zeros((cells * cells, _ORIENTATIONS))
    np.add.at(histogram, (cell, lower % _ORIENTATIONS), magnitude * (1.0 - share))
    np.add.at(histogram, (cell, (lower + 1) % _ORIENTATIONS), magnitude * share)
    grid = histogram.reshape(cells, cells, _ORIENTATIONS)
    blocks = np.concatenate([grid[:-1, :-1], grid[:-1, 1:], grid[1:, :-1], grid[1:, 1:]], axis=2)
    blocks = blocks / np.sqrt(np.sum(blocks**2, axis=2, keepdims=True) + 1e-6)
    clipped: npt.NDArray[np.float64] = np.minimum(blocks, _CLIP).ravel()
    return clipped


def _colours(hsv: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    hue, saturation, value = (hsv[..., channel].astype(np.intp) for channel in range(3))
    code = (
        hue * _HUES // 256 * _SATURATIONS + saturation * _SATURATIONS // 256
    ) * _VALUES + value * _VALUES // 256
    rows, columns = np.indices(code.shape) * _COLOUR_GRID // _SIDE
    n_codes = _HUES * _SATURATIONS * _VALUES
    region = rows * _COLOUR_GRID + columns
    return np.bincount((region * n_codes + code).ravel(), minlength=_COLOUR_GRID**2 * n_codes).astype(
        np.float64
    )


def _unit(histogram: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    norm = float(np.linalg.norm(histogram))
    return histogram / norm if norm > 0 else histogram


ENCODER = EncoderType(_OPTIONS, lambda options, resources: HogColorEncoder(resources.pictures), "picture")
