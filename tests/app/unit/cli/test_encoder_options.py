from pathlib import Path
from typing import Any

import pytest

from app.cli.encoder_options import read_encoder
from app.domain.errors import InvalidFieldError

HERE = str(Path.cwd())


@pytest.mark.parametrize(
    ("description", "options"),
    [
        ("hog-color", {"type": "hog-color"}),
        ("tfidf:characters=0,max_features=500", {"type": "tfidf", "characters": 0, "max_features": 500}),
        (
            "hog-color+onnx:path=a.onnx,size=96,output=features",
            {
                "type": "combine",
                "parts": [
                    {"type": "hog-color"},
                    {"type": "onnx", "path": f"{HERE}/a.onnx", "size": 96, "output": "features"},
                ],
            },
        ),
        (
            "onnx:mean=[124,117,104],path=b.onnx,scale=[58,57,57.5]",
            {
                "type": "onnx",
                "mean": [124, 117, 104],
                "path": f"{HERE}/b.onnx",
                "scale": [58, 57, 57.5],
            },
        ),
        ("tfidf:steps=[sqrt,pca:0.9, l2]", {"type": "tfidf", "steps": ["sqrt", "pca:0.9", "l2"]}),
        ('{"type": "onnx", "path": "/a,b+c.onnx"}', {"type": "onnx", "path": "/a,b+c.onnx"}),
    ],
)
def test_an_encoder_is_named_with_its_options(description: str, options: dict[str, Any]) -> None:
    assert read_encoder("--image-encoder", description) == options


def test_what_begins_like_json_must_be_json() -> None:
    with pytest.raises(InvalidFieldError, match="--image-encoder: is no JSON object"):
        read_encoder("--image-encoder", "{type: onnx}")
