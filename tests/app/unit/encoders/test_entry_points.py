import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from app.domain.entities import Content
from app.encoders.content import PixelBudget
from app.encoders.entry import Resources
from app.encoders.pictures import PictureLimits
from app.encoders.registry import find_types

LENGTHS = """
from typing import Literal, Required

import numpy as np
from pydantic import with_config
from typing_extensions import TypedDict

from app.encoders.entry import EncoderType
from app.encoders.options import describe_options
from app.encoders.texts import TextEncoder


@with_config(describe_options("{name}", "texts: how long they are"))
class LengthOptions(TypedDict, total=False):
    type: Required[Literal["{name}"]]


class LengthEncoder(TextEncoder):
    def encode(self, raw):
        return np.asarray([[len(content.text)] for content in raw], np.float32)


ENCODER = EncoderType(
    LengthOptions, lambda options, resources: LengthEncoder(resources.max_text_chars), "text"
)
"""

Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """A function that installs a package of one module, with an entry point for its ENCODER."""
    modules = []

    def put(module: str, source: str) -> None:
        modules.append(module)
        (tmp_path / f"{module}.py").write_text(source)
        facts = tmp_path / f"{module}-1.0.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (facts / "entry_points.txt").write_text(f"[lrbs.encoders]\n{module} = {module}:ENCODER\n")

    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield put
    for module in modules:
        sys.modules.pop(module, None)


def test_a_type_of_another_package_is_found_by_its_entry_point(install: Install) -> None:
    before = set(find_types())
    install("length_encoder", LENGTHS.format(name="length"))
    types = find_types()
    assert set(types) - before == {"length"}
    resources = Resources(PictureLimits(1, 1, PixelBudget(1)), 100, lambda options: pytest.fail("no parts"))
    encoder = types["length"].make({"type": "length"}, resources)
    np.testing.assert_array_equal(encoder.encode([Content(text="abc")]), [[3.0]])


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import a_module_that_is_not_there", "No module named 'a_module_that_is_not_there'"),
        ("ENCODER = 3", "expected an EncoderType, got 3"),
        (LENGTHS.format(name="tfidf"), "the encoder type 'tfidf' of bad_encoder:ENCODER is left out"),
    ],
)
def test_a_type_that_cannot_be_used_is_logged_and_the_others_serve(
    install: Install, caplog: pytest.LogCaptureFixture, source: str, reason: str
) -> None:
    before = find_types()
    install("bad_encoder", source)
    install("length_encoder", LENGTHS.format(name="length"))
    types = find_types()
    assert set(types) == {*before, "length"}
    assert types["tfidf"] is before["tfidf"]
    assert reason in caplog.text
