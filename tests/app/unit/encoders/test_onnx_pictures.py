import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from app.domain.entities import Content
from app.domain.errors import InvalidFieldError
from app.encoders.registry import ContentLimits, EncoderRegistry
from tests.app.onnx_files import flattening_model

pytestmark = pytest.mark.usefixtures("onnxruntime")

REGISTRY = EncoderRegistry(ContentLimits(10**6, 10**6, 1000))
PIXELS = np.random.default_rng(0).integers(0, 256, (4, 8, 3)).astype(np.uint8)


def content() -> Content:
    stream = io.BytesIO()
    Image.fromarray(PIXELS).save(stream, "PNG")
    return Content(picture=stream.getvalue())


def test_channels_come_first_or_last_and_each_has_its_mean_and_scale(tmp_path: Path) -> None:
    shown = np.asarray(Image.fromarray(PIXELS).resize((4, 4), Image.Resampling.BILINEAR), np.float32)
    expected = (shown - np.float32([1, 2, 3])) / np.float32([4, 5, 6])
    for layout, pixels in (("nchw", expected.transpose(2, 0, 1)), ("nhwc", expected)):
        path = tmp_path / f"{layout}.onnx"
        path.write_bytes(flattening_model(4, channels_last=layout == "nhwc"))
        options = {"type": "onnx", "path": str(path), "size": 4, "layout": layout}
        settled = REGISTRY.settle({**options, "mean": [1, 2, 3], "scale": [4, 5, 6]})
        features = REGISTRY.make(settled).encode([content()])
        np.testing.assert_array_equal(features, pixels.reshape(1, -1))


def test_a_cropped_picture_is_its_middle(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(flattening_model(4))
    options = {"type": "onnx", "path": str(path), "size": 4, "mean": 0, "scale": 1, "fit": "crop"}
    features = REGISTRY.make(options).encode([content()])
    np.testing.assert_array_equal(features, PIXELS[:, 2:6].transpose(2, 0, 1).reshape(1, -1))


def test_a_model_of_the_other_layout_is_refused_when_the_collection_is_made(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(flattening_model(8, channels_last=True))
    with pytest.raises(InvalidFieldError, match=r"encoder: m\.onnx does not take a picture of 8 x 8"):
        REGISTRY.settle({"type": "onnx", "path": str(path), "size": 8})
