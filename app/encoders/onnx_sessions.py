"""Loading of ONNX models, which take pictures or texts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.domain.errors import EncoderUnavailableError
from app.encoders.extras import import_extra


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    """A loaded model; its `runtime`, an onnxruntime.InferenceSession, may be shared by threads."""

    runtime: Any
    input_name: str  # of its first input
    outputs: tuple[str, ...]


def load_session(path: Path) -> Session:
    """Return the model of a file; raises EncoderUnavailableError if it holds none."""
    onnxruntime = import_extra("onnxruntime", "onnx")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # The runtime's threads spin while they wait: on cores that others use too, a picture took 2.6 times
    # the processor time. Several pictures, or several requests, fill the cores better.
    options.intra_op_num_threads = 1
    try:
        runtime = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        outputs = tuple(output.name for output in runtime.get_outputs())
        return Session(runtime, runtime.get_inputs()[0].name, outputs)
    except Exception as error:  # onnxruntime's own errors share no public base class
        raise EncoderUnavailableError(
            f"{path.name} is not a usable ONNX model: {without_folder(error, path)}"
        ) from error


def without_folder(error: Exception, path: Path) -> str:
    """Return the first line of an error, with no path of this machine in it."""
    return str(error).replace(str(path), path.name).strip().partition("\n")[0][:300]
