import io
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from app.domain.entities import Content
from app.domain.errors import ContentTooLargeError, InvalidFieldError, ServiceError
from app.encoders.registry import ContentLimits, EncoderRegistry
from tests.conftest import import_extra
from tests.fuzz.images import damaged_file

REGISTRY = EncoderRegistry(ContentLimits(10**6, 10**6, 1000))


@pytest.fixture(scope="module")
def soundfile() -> Any:
    return import_extra("soundfile")


def stored(
    soundfile: Any, samples: npt.NDArray[Any], rate: int = 16_000, kind: str = "WAV", **more: Any
) -> bytes:
    stream = io.BytesIO()
    soundfile.write(stream, samples, rate, format=kind, **more)
    return stream.getvalue()


def vowel(pitch: float, formants: tuple[float, float], rate: int = 16_000) -> npt.NDArray[np.float64]:
    """Harmonics of a pitch, louder near two formants, for a third of a second."""
    time = np.arange(rate // 3) / rate
    harmonics = pitch * np.arange(1, int(7000 / pitch))
    loudness = sum(np.exp(-(((harmonics - formant) / 200) ** 2)) for formant in formants) + 0.01
    return 0.1 * np.sum(loudness[:, None] * np.sin(2 * np.pi * harmonics[:, None] * time), axis=0)


def features(*contents: bytes) -> Any:
    return REGISTRY.make({"type": "mfcc"}).encode([Content(sound=content) for content in contents])


def test_the_same_vowel_is_nearest_whatever_the_pitch(soundfile: Any) -> None:
    vowels = {"a": (800.0, 1200.0), "i": (300.0, 2500.0), "u": (320.0, 800.0)}
    names = [name for name in vowels for _ in range(3)]
    pitches = [100.0, 115.0, 130.0] * 3
    rows = features(
        *(stored(soundfile, vowel(pitch, vowels[name])) for name, pitch in zip(names, pitches, strict=True))
    )
    assert rows.shape == (9, 80)
    distances = np.linalg.norm(rows[:, None] - rows[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    assert [names[nearest] for nearest in np.argmin(distances, axis=1)] == names


def test_a_format_without_loss_a_second_channel_and_another_rate_change_little(soundfile: Any) -> None:
    fast = vowel(110, (800, 1200), 44_100)
    sound = (vowel(110, (800, 1200)) * 32_767).astype(np.int16)
    plain, flac, stereo, other_rate, other = features(
        stored(soundfile, sound),
        stored(soundfile, sound, kind="FLAC"),
        stored(soundfile, np.stack([sound, sound], axis=1)),
        stored(soundfile, fast, 44_100),
        stored(soundfile, vowel(110, (300, 2500))),
    )
    np.testing.assert_array_equal(flac, plain)
    np.testing.assert_allclose(stereo, plain, atol=1e-4)
    assert np.linalg.norm(other_rate - plain) < np.linalg.norm(other - plain) / 2


def test_silence_and_a_single_window_have_finite_features(soundfile: Any) -> None:
    rows = features(stored(soundfile, np.zeros(8000)), stored(soundfile, np.full(400, 0.5)))
    assert np.isfinite(rows).all()


def test_sounds_that_are_too_long_or_short_or_of_another_kind_are_refused(soundfile: Any) -> None:
    encoder = REGISTRY.make({"type": "mfcc"})
    noise = np.random.default_rng(0).normal(size=2000) / 10
    whole = stored(soundfile, noise)
    claims_more = bytearray(stored(soundfile, noise, kind="FLAC"))
    claims_more[22:26] = (2000 + (1 << 20)).to_bytes(4, "big")
    cases: list[tuple[bytes, type[Exception], str]] = [
        (stored(soundfile, noise[:300]), InvalidFieldError, "shorter than 25 milliseconds"),
        (stored(soundfile, noise, kind="OGG"), InvalidFieldError, "is a OGG file, expected WAV or FLAC"),
        (stored(soundfile, noise, 2000), InvalidFieldError, "has 2000 samples a second, expected 4000"),
        (bytes(claims_more), InvalidFieldError, "is cut off|the sound is damaged"),
        (whole[:30], InvalidFieldError, "is no readable sound"),
        (b"", InvalidFieldError, "is no readable sound"),
        (
            stored(soundfile, np.float32([0.1] * 500 + [np.inf]), subtype="FLOAT"),
            InvalidFieldError,
            "has samples that are not finite",
        ),
        (
            stored(soundfile, np.zeros(10_000_001, np.int16), kind="FLAC"),
            ContentTooLargeError,
            "10000001 samples, at most 10000000 allowed",
        ),
    ]
    for content, kind, message in cases:
        with pytest.raises(kind, match=rf"^items\.3\.sound_base64: .*({message})"):
            encoder.check("items.3.sound_base64", Content(sound=content))


def test_each_kind_of_file_is_taken_and_its_damage_is_a_refusal(soundfile: Any) -> None:
    encoder, random = REGISTRY.make({"type": "mfcc"}), Random(3)
    kinds = [
        (form, kind)
        for form in ("WAV", "WAVEX", "FLAC")
        for kind in soundfile.available_subtypes(form)
        if kind != "MPEG_LAYER_III"
    ]
    assert len(kinds) > 20
    n_taken = 0
    for form, kind in kinds:
        rate = 8000 if kind.startswith(("G72", "GSM", "NMS")) else 16_000
        sound = stored(soundfile, vowel(110, (800, 1200), rate)[:1600], rate, form, subtype=kind)
        assert np.isfinite(encoder.encode([Content(sound=sound)])).all(), (form, kind)
        for _ in range(8):
            damaged = damaged_file(random, sound)
            try:
                encoder.check("sound", Content(sound=damaged))
            except ServiceError:
                continue
            assert np.isfinite(encoder.encode([Content(sound=damaged)])).all()
            n_taken += 1
    assert 0 < n_taken < 8 * len(kinds)
