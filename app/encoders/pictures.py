"""Picture encoders: `hog-color`, and `onnx` for any convolutional network or CLIP image model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from app.domain.entities import Content, Matrix, Vector
from app.domain.errors import ContentTooLargeError, EncoderUnavailableError, InvalidFieldError
from app.encoders.content import PixelBudget, opened_picture
from app.encoders.hog_color import describe

try:
    import onnxruntime
except ImportError:  # the extra "onnx" is optional; `onnx_describer` says so when it is needed
    onnxruntime = None

_DEFAULTS = {"size": 224, "mean": 128.0, "scale": 128.0, "output": None}


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
            raise InvalidFieldError(field, "expected a picture (image_base64 or a multipart file)")
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

    def _encode_one(self, content: Content) -> Vector:
        with opened_picture("picture", content.picture or b"", self._max_pixels, self._budget) as picture:
            return self._describe(picture)


def hog_color_encoder(max_bytes: int, max_pixels: int, budget: PixelBudget) -> PictureEncoder:
    """Return the default picture encoder; it has no options."""
    return PictureEncoder(describe, max_bytes, max_pixels, budget)


def onnx_encoder(
    options: Mapping[str, Any], max_bytes: int, max_pixels: int, budget: PixelBudget
) -> PictureEncoder:
    """Return an encoder that runs an ONNX image model.

    Parameters
    ----------
    options : mapping
        ``path`` of the model file; ``size`` of its square input (224), ``mean`` (128) and ``scale`` (128)
        for (pixel - mean) / scale, numbers or three per channel; ``output`` name (the model's first).
        The input is (1, 3, size, size) RGB, the output flattened.
    max_bytes : int
        Largest picture file.
    max_pixels : int
        Largest picture that is decoded.
    budget : PixelBudget
        Of all pictures that are decoded at once in this process.

    Raises
    ------
    EncoderUnavailableError
        If onnxruntime is not installed or the model cannot be loaded.
    """
    if onnxruntime is None:
        raise EncoderUnavailableError("the onnx encoder needs the extra: pip install 'lrbs[onnx]'")
    merged = {**_DEFAULTS, **options}
    path = Path(str(options.get("path", "")))
    if not path.is_file():
        raise EncoderUnavailableError(f"encoder.path: there is no model file {path.name!r}")
    session_options = onnxruntime.SessionOptions()
    session_options.log_severity_level = 3
    # The runtime's threads spin while they wait: on cores that others use too, a picture took 2.6 times
    # the processor time. Several pictures, or several requests, fill the cores better.
    session_options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(str(path), session_options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own errors share no public base class
        raise EncoderUnavailableError(
            f"encoder.path: {path.name} is not a usable ONNX model: {_without_folder(error, path)}"
        ) from error
    input_name = session.get_inputs()[0].name
    outputs = [output.name for output in session.get_outputs()]
    output = merged["output"] or outputs[0]
    if output not in outputs:
        raise EncoderUnavailableError(f"encoder.output: the model has {outputs}, not {output!r}")
    size = int(merged["size"])
    mean, scale = np.float32(merged["mean"]), np.float32(merged["scale"])

    def run(picture: Image.Image) -> Vector:
        pixels = np.asarray(picture.resize((size, size), Image.Resampling.BILINEAR), dtype=np.float32)
        with np.errstate(all="ignore"):  # what overflows here is seen in the features
            batch = np.ascontiguousarray(((pixels - mean) / scale).transpose(2, 0, 1)[None])
        try:
            features: Vector = session.run([output], {input_name: batch})[0].reshape(-1).astype(np.float32)
        except Exception as error:  # as above; an output that is no array of numbers ends here as well
            reason = _without_folder(error, path)
            raise EncoderUnavailableError(
                f"encoder: {path.name} does not take a picture of {size} x {size}: {reason}"
            ) from error
        if features.size == 0 or not np.isfinite(features).all():
            raise EncoderUnavailableError(f"encoder: {path.name} gives no finite features")
        return features

    # One picture now, so that a model that cannot work is refused with the collection, not with its items.
    run(Image.new("RGB", (size, size), "gray"))
    return PictureEncoder(run, max_bytes, max_pixels, budget)


def _without_folder(error: Exception, path: Path) -> str:
    """Return the first line of an error, with no path of this machine in it."""
    return str(error).replace(str(path), path.name).strip().partition("\n")[0][:300]
