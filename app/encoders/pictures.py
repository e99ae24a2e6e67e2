"""Picture encoders: `hog-color`, and `onnx` for any convolutional network or CLIP image model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, Literal, Required

import numpy as np
from PIL import Image
from pydantic import Field, with_config
from typing_extensions import TypedDict

from app.domain.entities import Content, Matrix, Vector
from app.domain.errors import (
    ContentTooLargeError,
    EncoderUnavailableError,
    InvalidFieldError,
    WrongContentError,
)
from app.domain.names import join_words
from app.encoders.content import PixelBudget, opened_picture
from app.encoders.onnx_models import OnnxModels, without_folder
from app.encoders.options import Finite, Finites, NonZero, NonZeros, StoredText, describe_options, expect

_DEFAULTS = {"path": "", "sha256": None, "size": 224, "mean": 128.0, "scale": 128.0, "output": None}


class PictureEncoder:
    """Encodes pictures with a describing function, several at a time where there are several.

    Parameters
    ----------
    describe_picture : callable
        RGB picture to a float32 vector.
    max_bytes : int
        Largest picture file.
    max_pixels : int
        Largest picture that is decoded.
    budget : PixelBudget
        Of all pictures that are decoded at once in this process.
    """

    is_fitted_with_model = False

    def __init__(
        self,
        describe_picture: Callable[[Image.Image], Vector],
        max_bytes: int,
        max_pixels: int,
        budget: PixelBudget,
    ) -> None:
        self._describe = describe_picture
        self._budget = budget
        self._max_bytes = max_bytes
        self._max_pixels = max_pixels

    def check(self, field: str, raw: Content) -> None:
        """Refuse anything but a readable picture."""
        if raw.picture is None:
            raise WrongContentError(field, "picture")
        if len(raw.picture) > self._max_bytes:
            raise ContentTooLargeError(field, f"{len(raw.picture)} bytes, at most {self._max_bytes} allowed")
        with opened_picture(field, raw.picture, self._max_pixels, self._budget):
            pass

    def encode(self, raw: Sequence[Content]) -> Matrix:
        """Return the (n, dim) features."""
        if len(raw) == 1:
            return self._encode_one(raw[0])[None]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return np.stack(list(pool.map(self._encode_one, raw)))

    def file_options(self) -> dict[str, Any]:
        """Return the options that are found in a model file; raises InvalidFieldError if it does not work."""
        return self._describe.file_options() if isinstance(self._describe, OnnxDescriber) else {}

    def state(self) -> dict[str, Any]:
        """Return the options that identify the model file."""
        return self._describe.state() if isinstance(self._describe, OnnxDescriber) else {}

    def fault(self) -> str | None:
        """Return why pictures cannot be encoded, or not for long, as far as is known at once."""
        return self._describe.fault() if isinstance(self._describe, OnnxDescriber) else None

    def _encode_one(self, content: Content) -> Vector:
        with opened_picture("picture", content.picture or b"", self._max_pixels, self._budget) as picture:
            return self._describe(picture)


_MAX_SIDE = 2048
"""Largest side of a model's square input, in pixels: that input takes 48 MiB."""


@with_config(describe_options("onnx", "pictures: an ONNX image model on the server"))
class OnnxOptions(TypedDict, total=False):
    """Options of encoder `onnx`."""

    type: Required[Literal["onnx"]]
    path: Required[Annotated[StoredText, Field(description="the model file"), expect("a file path")]]
    sha256: Annotated[
        str,
        Field(
            pattern="^[0-9a-f]{64}$",
            description="of the model file, taken from it when absent; no other is used afterwards",
        ),
        expect("64 hexadecimal digits"),
    ]
    size: Annotated[
        int,
        Field(ge=1, le=_MAX_SIDE, description="side of its square input"),
        expect(f"an integer from 1 to {_MAX_SIDE}"),
    ]
    mean: Annotated[
        Finite | Finites,
        Field(description="subtracted from each pixel; for all channels, or for each"),
        expect("a number or three"),
    ]
    scale: Annotated[
        NonZero | NonZeros,
        Field(description="then divides it; for all channels, or for each"),
        expect("non-zero, or three"),
    ]
    output: Annotated[
        StoredText,
        Field(description="name of the output; the first when absent"),
        expect("the name of an output"),
    ]


class OnnxDescriber:
    """Describes pictures with an ONNX image model, which is loaded when the first one comes.

    Parameters
    ----------
    options : mapping
        ``path`` of the model file, and its ``sha256`` (any file when absent); ``size`` of its square input
        (224), ``mean`` (128) and ``scale`` (128) for (pixel - mean) / scale, numbers or three per channel;
        ``output`` name (the model's first). The input is (1, 3, size, size) RGB, the output flattened.
    models : OnnxModels
        Loads the model.
    """

    def __init__(self, options: Mapping[str, Any], models: OnnxModels) -> None:
        merged = {**_DEFAULTS, **options}
        self._path = Path(str(merged["path"]))
        self._sha256: str | None = merged["sha256"]
        self._size = int(merged["size"])
        self._mean, self._scale = np.float32(merged["mean"]), np.float32(merged["scale"])
        self._output: str | None = merged["output"]
        self._models = models

    def __call__(self, picture: Image.Image) -> Vector:
        """Return the features of an RGB picture, float32.

        Raises
        ------
        EncoderUnavailableError
            If the model cannot be loaded or run.
        """
        session = self._models.session(self._path, self._sha256)
        side = (self._size, self._size)
        pixels = np.asarray(picture.resize(side, Image.Resampling.BILINEAR), dtype=np.float32)
        with np.errstate(all="ignore"):  # what overflows here is seen in the features
            batch = np.ascontiguousarray(((pixels - self._mean) / self._scale).transpose(2, 0, 1)[None])
        output = self._output or session.outputs[0]
        try:
            values = session.runtime.run([output], {session.input_name: batch})[0]
            features: Vector = values.reshape(-1).astype(np.float32)
        except Exception as error:  # onnxruntime's have no base class; the output may be no array of numbers
            reason = without_folder(error, self._path)
            raise EncoderUnavailableError(
                f"{self._path.name} does not take a picture of {self._size} x {self._size}: {reason}"
            ) from error
        return features

    def file_options(self) -> dict[str, Any]:
        """Return the options that are found in the model file, after trying it on one picture.

        Raises
        ------
        InvalidFieldError
            If it does not work; names the option.
        """
        try:
            sha256 = self._models.sha256(self._path)
            session = self._models.session(self._path, sha256)
        except EncoderUnavailableError as error:
            raise InvalidFieldError("encoder.path", str(error)) from error
        if self._sha256 not in (None, sha256):
            raise InvalidFieldError("encoder.sha256", f"the model file has {sha256}")
        if self._output is not None and self._output not in session.outputs:
            outputs = join_words(map(repr, session.outputs), "and")
            raise InvalidFieldError("encoder.output", f"the model has {outputs}, not {self._output!r}")
        try:
            features = self(Image.new("RGB", (self._size, self._size), "gray"))
        except EncoderUnavailableError as error:
            raise InvalidFieldError("encoder", str(error)) from error
        if features.size == 0 or not np.isfinite(features).all():
            raise InvalidFieldError("encoder", f"{self._path.name} gives no finite features")
        return {"sha256": sha256}

    def state(self) -> dict[str, Any]:
        """Return the hash of the model, as far as it is known."""
        if self._sha256 is not None:
            return {"sha256": self._sha256}
        try:
            return {"sha256": self._models.sha256(self._path)}
        except EncoderUnavailableError:
            return {}

    def fault(self) -> str | None:
        """Return what was last found wrong with the model file, at once, and have it looked at again."""
        return self._models.fault(self._path, self._sha256)
