"""Picture encoder `onnx`: any convolutional network or CLIP image model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from PIL import Image
from pydantic import Field
from typing_extensions import override

from app.domain.entities import Vector
from app.domain.errors import EncoderUnavailableError
from app.encoders.entry import EncoderType, Resources
from app.encoders.model_files import ModelFile, OnnxEncoder, load_session
from app.encoders.options import (
    FilePath,
    Finite,
    Finites,
    NonZero,
    NonZeros,
    OutputName,
    Sha256,
    expect,
    options_of,
)
from app.encoders.pictures import PictureEncoder

_MAX_SIDE = 2048  # largest side of a model's square input, in pixels: that input takes 48 MiB


_OPTIONS = options_of(
    "onnx",
    "pictures: an ONNX image model on the server",
    required=("path",),
    path=Annotated[FilePath, Field(description="the model file")],
    sha256=Annotated[
        Sha256,
        Field(description="of the model file; default: its present one; no other file is used afterwards"),
    ],
    size=Annotated[int, Field(ge=1, le=_MAX_SIDE, description="side of its square input")],
    mean=Annotated[
        Finite | Finites,
        Field(description="subtracted from each pixel; for all channels, or for each"),
        expect("a number or three"),
    ],
    scale=Annotated[
        NonZero | NonZeros,
        Field(description="then divides it; for all channels, or for each"),
        expect("non-zero, or three"),
    ],
    layout=Annotated[
        Literal["nchw", "nhwc"],
        Field(description="whether channels come before (nchw, the default) or after rows and columns"),
    ],
    fit=Annotated[
        Literal["stretch", "crop"],
        Field(description="how a picture becomes a square: stretched (the default), or the middle of it"),
    ],
    output=Annotated[OutputName, Field(description="name of the output; default: the first")],
)


class OnnxPictureEncoder(OnnxEncoder, PictureEncoder):
    """Encodes pictures with an ONNX image model, which is loaded when the first one comes."""

    # Options: ``path`` of the model file, and its ``sha256`` (any file when absent); ``size`` of its square
    # input (224), to which pictures ``fit`` by "stretch" or "crop"; ``mean`` (128) and ``scale`` (128) for
    # (pixel - mean) / scale, numbers or three per channel; ``layout`` "nchw" or "nhwc"; ``output`` name (the
    # model's first). The input is one RGB picture, (1, 3, size, size) as "nchw"; the output flattened.
    #
    # Several pictures run beside each other, each alone, on one core each. That took less time than batches:
    # MobileNetV2 encoded 1.4 times as many pictures a second as in batches of 2, 2.4 times as in batches of
    # 32 (whose intermediate results leave the cache), on two cores.

    def __init__(self, options: Mapping[str, Any], resources: Resources) -> None:
        super().__init__(resources.pictures)
        self._size = int(options.get("size", 224))
        self._mean, self._scale = (np.float32(options.get(name, 128.0)) for name in ("mean", "scale"))
        self._output: str | None = options.get("output")
        self._is_cropped = options.get("fit") == "crop"
        self._has_channels_first = options.get("layout", "nchw") == "nchw"
        self._model = ModelFile(resources.files(load_session), options, called="the model file")
        self.files = (self._model,)

    @override
    def describe(self, picture: Image.Image) -> Vector:
        session = self._model.get()
        side = (self._size, self._size)
        box = _middle_square(picture) if self._is_cropped else None
        square = picture.resize(side, Image.Resampling.BILINEAR, box)
        pixels = np.asarray(square, dtype=np.float32)
        with np.errstate(all="ignore"):  # what overflows here is seen in the features
            pixels = (pixels - self._mean) / self._scale
        batch = np.ascontiguousarray(pixels.transpose(2, 0, 1) if self._has_channels_first else pixels)[None]
        with self._running(f"a picture of {self._size} x {self._size}"):
            output = self._output or session.outputs[0]
            values: Vector = session.runtime.run([output], {session.input_name: batch})[0]
            return values.reshape(-1).astype(np.float32)

    @override
    def _try(self) -> Vector:
        return self.describe(Image.new("RGB", (self._size, self._size), "gray"))

    @override
    def state(self) -> dict[str, Any]:
        try:
            return {**self._model.find_hash()}
        except EncoderUnavailableError:
            return {}


def _middle_square(picture: Image.Image) -> tuple[float, float, float, float]:
    """Return the largest square in the middle of a picture, as its left, upper, right and lower edge."""
    width, height = picture.size
    side = min(width, height)
    left, upper = (width - side) / 2, (height - side) / 2
    return left, upper, left + side, upper + side


ENCODER = EncoderType(_OPTIONS, OnnxPictureEncoder, "picture")
