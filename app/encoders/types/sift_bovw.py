"""Picture encoder `sift-bovw`: a bag of visual words, as of the Wikipedia set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Required, Self

import numpy as np
from PIL import Image
from pydantic import Field, with_config
from typing_extensions import override

from app.domain.entities import Vector
from app.domain.errors import EncoderUnavailableError, InvalidFieldError
from app.encoders.dense_sift import dense_descriptors, load_codebook, nearest_words
from app.encoders.entry import EncoderType, Resources
from app.encoders.options import EncoderOptions, Sha256, StoredText, describe_options, expect
from app.encoders.pictures import PictureEncoder


@with_config(
    describe_options("sift-bovw", "pictures: a bag of visual words of a codebook that lrbs codebook made")
)
class SiftOptions(EncoderOptions, total=False):
    """Options of encoder `sift-bovw`."""

    type: Required[Literal["sift-bovw"]]
    path: Required[
        Annotated[
            StoredText,
            Field(description="the codebook: an .npy file of float32, 128 numbers for each word"),
            expect("a file path"),
        ]
    ]
    sha256: Annotated[Sha256, Field(description="of the codebook; default: its present one")]


class SiftEncoder(PictureEncoder):
    """Counts the visual words of pictures: the nearest of a codebook for each dense SIFT descriptor.
    Options: ``path`` of the codebook, and its ``sha256`` (any file when absent)."""

    def __init__(self, options: Mapping[str, Any], resources: Resources) -> None:
        super().__init__(resources.pictures)
        self._path = Path(str(options.get("path", "")))
        self._sha256: str | None = options.get("sha256")
        self._codebooks = resources.files(load_codebook)

    @override
    def describe(self, picture: Image.Image) -> Vector:
        """Return the square roots of the words' shares; zeros for a picture of one colour."""
        codebook = self._codebooks.get(self._path, self._sha256)
        words = nearest_words(dense_descriptors(picture), codebook)
        counts = np.bincount(words, minlength=len(codebook))
        return np.sqrt(counts / max(len(words), 1)).astype(np.float32)

    @override
    def settled_options(self) -> dict[str, Any]:
        try:
            sha256 = self._codebooks.sha256(self._path)
            self._codebooks.get(self._path, sha256)
        except EncoderUnavailableError as error:
            raise InvalidFieldError("encoder.path", str(error)) from error
        if self._sha256 not in (None, sha256):
            raise InvalidFieldError("encoder.sha256", f"the file has {sha256}")
        return {"sha256": sha256}

    @override
    def state(self) -> dict[str, Any]:
        return {} if self._sha256 is None else {"sha256": self._sha256}

    @override
    def restore(self, state: Mapping[str, Any]) -> Self:
        self._sha256 = state.get("sha256", self._sha256)
        return self

    @override
    def fault(self) -> str | None:
        return self._codebooks.fault(self._path, self._sha256)


ENCODER = EncoderType(SiftOptions, SiftEncoder, "picture")
