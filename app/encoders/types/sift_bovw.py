"""Picture encoder `sift-bovw`: a bag of visual words, as of the Wikipedia set."""
# Dense SIFT descriptors (Lowe, IJCV 2004, at every place of a grid), and codebooks of them.

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from pydantic import Field
from typing_extensions import override

from app.domain.entities import Vector
from app.domain.errors import EncoderUnavailableError
from app.encoders.entry import EncoderType, Resources
from app.encoders.model_files import FileEncoder, ModelFile
from app.encoders.options import FilePath, Sha256, options_of
from app.encoders.pictures import PictureEncoder, gradient_directions

N_NUMBERS = 128
"""Of a descriptor: 4 x 4 cells with 8 directions."""
MAX_WORDS = 10_000
_SIDES = (96, 128)  # pixels: of a picture in two sizes, windows of one size are of two scales
_CELL = 4
_CELLS = 4
_DIRECTIONS = 8
_CLIP = 0.2
_FLAT = 0.1
"""Length of a descriptor before it is normalised, in grey levels up to 1, below which it shows but noise."""
_MOST_OF_PICTURE, _MOST = 100, 200_000
"""Descriptors that a codebook is learned from: 100 MB."""

Floats = npt.NDArray[np.float32]


def dense_descriptors(picture: Image.Image) -> Floats:
    """Return the descriptors of an RGB picture, (n, 128), rows of unit length; none of plain colour."""
    # Windows are flat, as in the fast variant of VLFeat (Vedaldi and Fulkerson, 2008); upright descriptors
    # lie at each fourth pixel, and enter by their square root (Arandjelovic and Zisserman, CVPR 2012).
    gray = picture.convert("L")
    return np.concatenate([_describe(gray.resize((side, side), Image.Resampling.BOX)) for side in _SIDES])


def learn_codebook(pictures: Iterable[Floats], n_words: int) -> Floats:
    """Return the centres, (n_words, 128), of some descriptors, (n, 128) of one picture after the other.
    Raises ValueError if there are fewer descriptors than words."""
    random = np.random.default_rng(0)
    taken = [np.zeros((0, N_NUMBERS), np.float32)]
    for descriptors in pictures:
        taken.append(descriptors[random.permutation(len(descriptors))[:_MOST_OF_PICTURE]])
        if sum(map(len, taken)) >= _MOST:
            break
    sample = np.concatenate(taken)[:_MOST]
    if len(sample) < n_words:
        raise ValueError(f"the pictures have {len(sample)} descriptors, fewer than {n_words} words")
    clustering = importlib.import_module("sklearn.cluster").MiniBatchKMeans
    model = clustering(n_words, n_init=1, batch_size=4096, random_state=0).fit(sample)
    centres: Floats = model.cluster_centers_.astype(np.float32)
    return centres


def load_codebook(path: Path) -> Floats:
    """Return the codebook of an .npy file; raises EncoderUnavailableError if it holds none."""
    try:
        # Which reads this format alone; np.load would unpack archives, too.
        stored = np.lib.format.open_memmap(path, mode="r")
        shape = stored.shape
        if len(shape) != 2 or shape[1] != N_NUMBERS or not 1 <= shape[0] <= MAX_WORDS:
            raise ValueError(f"its shape is {shape}, expected 1 to {MAX_WORDS} rows of {N_NUMBERS}")
        if stored.dtype != np.float32:
            raise ValueError(f"it holds {stored.dtype}, expected float32")
        codebook = np.array(stored)
    except (OSError, ValueError, EOFError) as error:
        reason = str(error).replace(str(path), path.name)
        raise EncoderUnavailableError(f"{path.name} is not a usable codebook: {reason}") from error
    if not np.isfinite(codebook).all():
        raise EncoderUnavailableError(f"{path.name} is not a usable codebook: it is not finite")
    return codebook


def nearest_words(descriptors: Floats, codebook: Floats) -> npt.NDArray[np.intp]:
    """Return the row of the nearest centre of each descriptor."""
    distances = np.sum(codebook**2, axis=1) - 2.0 * (descriptors @ codebook.T)
    words: npt.NDArray[np.intp] = np.argmin(distances, axis=1)
    return words


def _describe(gray: Image.Image) -> Floats:
    cells = _direction_histograms(np.asarray(gray, np.float32) / 255.0)
    windows = np.lib.stride_tricks.sliding_window_view(cells, (_CELLS, _CELLS), axis=(0, 1))
    descriptors = windows.reshape(-1, N_NUMBERS)
    lengths = np.linalg.norm(descriptors, axis=1)
    is_kept = lengths > _FLAT
    clipped = np.minimum(descriptors[is_kept] / lengths[is_kept, None], _CLIP)
    shares = clipped / clipped.sum(axis=1, keepdims=True)
    roots: Floats = np.sqrt(shares).astype(np.float32)
    return roots


def _direction_histograms(gray: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Return the directions of gradients, weighted by their length, in each cell: (rows, columns, 8)."""
    length, lower, share = gradient_directions(gray, 2 * np.pi, _DIRECTIONS)
    n_cells = gray.shape[0] // _CELL
    rows, columns = np.indices(gray.shape) // _CELL
    first = (rows * n_cells + columns) * _DIRECTIONS
    histogram = np.zeros(n_cells * n_cells * _DIRECTIONS)
    for step, weight in ((0, length * (1.0 - share)), (1, length * share)):
        places = first + (lower + step) % _DIRECTIONS
        histogram += np.bincount(places.ravel(), weight.ravel(), len(histogram))
    return histogram.reshape(n_cells, n_cells, _DIRECTIONS)


_OPTIONS = options_of(
    "sift-bovw",
    "pictures: a bag of visual words of a codebook that lrbs codebook made",
    required=("path",),
    path=Annotated[
        FilePath, Field(description="the codebook: an .npy file of float32, 128 numbers for each word")
    ],
    sha256=Annotated[Sha256, Field(description="of the codebook; default: its present one")],
)


class SiftEncoder(FileEncoder, PictureEncoder):
    """Counts the visual words of pictures: the nearest of a codebook for each dense SIFT descriptor.
    Options: ``path`` of the codebook, and its ``sha256`` (any file when absent)."""

    def __init__(self, options: Mapping[str, Any], resources: Resources) -> None:
        super().__init__(resources.pictures)
        self._codebook = ModelFile(resources.files(load_codebook), options)
        self.files = (self._codebook,)

    @override
    def describe(self, picture: Image.Image) -> Vector:
        """Return the square roots of the words' shares; zeros for a picture of one colour."""
        codebook = self._codebook.get()
        words = nearest_words(dense_descriptors(picture), codebook)
        counts = np.bincount(words, minlength=len(codebook))
        return np.sqrt(counts / max(len(words), 1)).astype(np.float32)


ENCODER = EncoderType(_OPTIONS, SiftEncoder, "picture")
