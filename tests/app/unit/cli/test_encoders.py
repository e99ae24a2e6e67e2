from pathlib import Path
from typing import Any

import pytest

from app.cli.encoders import read_encoder, read_encoders
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


def test_encoders_are_named_by_modality() -> None:
    named = read_encoders("--encoder", ["image=hog-color", "text=lda:topics=7,steps=[l2]"])
    assert named == {"image": {"type": "hog-color"}, "text": {"type": "lda", "topics": 7, "steps": ["l2"]}}


@pytest.mark.parametrize("texts", [["hog-color"], ["=hog-color"], ["text=lda", "text=tfidf"]])
def test_a_modality_is_named_once(texts: list[str]) -> None:
    with pytest.raises(InvalidFieldError, match="--encoder: expected MODALITY=ENCODER, each modality once"):
        read_encoders("--encoder", texts)


def test_an_unknown_encoder_names_the_option() -> None:
    with pytest.raises(InvalidFieldError, match="--encoder"):
        read_encoders("--encoder", ["image=sift"])
