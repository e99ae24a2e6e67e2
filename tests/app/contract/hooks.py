"""What schemathesis must know of this service that no OpenAPI document can say."""

import base64
import itertools
import json
import os
import re
from unittest import mock

import schemathesis
from hypothesis import strategies
from hypothesis.internal import lambda_sources
from hypothesis.internal.conjecture import engine
from schemathesis.core.failures import AcceptedNegativeData, Failure
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation.hypothesis import examples
from schemathesis.generation.meta import CoveragePhaseData
from schemathesis.openapi.checks import RejectedPositiveData
from schemathesis.transport.serialization import Binary

from tests.app.contract.material import GALLERIES, PRODUCTS, SPARES, VECTORS, picture

_KEPT = {*GALLERIES, *os.environ.get("LRBS_CONTRACT_KEY_IDS", "").split(",")}
_BY_FILTER = ("items:delete", "items:update")
"""How addresses end whose calls would take the galleries of the run away."""
_spares = itertools.cycle(SPARES)
_STREAM_SECONDS = 2
"""How long events are read: the stream of a job that waits for a worker does not end by itself."""
_PICTURES = [
    Binary(picture(label, number, form))
    for number, label, form in ((0, "shoes", "PNG"), (1, "wallets", "JPEG"))
]

DEPENDS = {
    "unknown-modality": "the modalities are the collection's own",
    "unknown-label": "the labels are those its items carry",
    r"invalid-field: modalities\..*\.encoder\.(path|output): ": "model files are the server's",
    r"invalid-field: .*has \d+ numbers, expected": "the dimension is the collection's",
    r"invalid-field: .*expected a (text|vector|picture|sound)": "what is content is the encoder's to say",
    r"invalid-field: .*is of modality": "the item stands in the collection",
    r"invalid-field: .*there is no item .* to change": "so does one that a line without content changes",
    r"invalid-field: .*lies too far outside": "far from what was trained on is the model's to say",
    r"invalid-field: (k|offset): \d+ queries with": "a document cannot multiply",
    r"invalid-field: modalities: (a name may not|expected two)": "a document cannot compare names",
    r"invalid-field: id: is .* in the path": "a document cannot compare a body with a path",
    r"invalid-field: .*(is not a picture|picture is damaged)": "a document cannot tell what is a picture",
    r"invalid-field: .*is no readable sound": "nor what is a sound",
    r"invalid-field: sound: comes beside picture": "a generator fills in both, whatever oneOf says",
    r"invalid-field: name: .*printable": "which characters are printable is Unicode's table",
    r"invalid-field: (supervision|objective)": "what can be learned from is in the items",
    r"invalid-field: expires_at: (is in the past|expected a time before)": "a document has no clock",
    r"invalid-field: queries\.\d+\..*: (has to be named|neither modality takes)": "so is who takes it",
    r"invalid-request: filter: \d+ labels and values": "nor can it add",
    r"invalid-request: filter\..*: expected a word at least": "what a word is is Unicode's to say",
    r"invalid-request: filter: (Invalid JSON|Input should be)": "JSON in an address is a text to a document",
    r"invalid-field: (where\.\d+: expected a condition|filter: \d+ conditions)": "nor is it a grammar",
    r"invalid-field: filter: lets every item through": "a document cannot tell which filters are empty",
    r"invalid-field: emphasis\.": "the parts of a score are the model's own",
    r"invalid-field: min_probability: there are no": "whether there are probabilities is the model's to say",
    r"invalid-(request|field): .*contains NUL": "inside of metadata, where any JSON may stand",
}
"""Refusals of what the document allows, each with the reason why no document can forbid it."""


_SHARED = {"filter": ("all", "any", "not"), "encoders": ("parts",)}
"""Fields that are the same in several operations, each with those inside of it that are the same again."""
_STEP = re.compile(r"Object with valid '(\w+)' value: |Single-item array: |Object with additional property: ")
_PLACE = re.compile(r".*?/properties/(filter|encoder)s?(?:/additionalProperties/0)?(?=/)")
_AGAIN = re.compile(
    r"/properties/(?:all|any|not)(?:/anyOf/0)?(?:/items)?(?=/properties)"
    r"|/oneOf/\d+(?=/properties/(?:parts|steps)/)|(?<=/parts/items)/oneOf/\d+"
)
"""Filters in a filter, encoders in one of several parts, and steps, which every encoder has: what each may
have is covered once."""
_FORM = re.compile(r"/(?:oneOf|anyOf)/\d+")
"""What may be sent in several forms, such as an item."""
_sent: dict[tuple[object, ...], object] = {}


@schemathesis.hook
def filter_case(context: schemathesis.HookContext, case: schemathesis.Case) -> bool:
    """Have a field's values covered once, not with each form of content and in each filter of a filter."""
    phase = case.meta.phase.data if case.meta is not None else None
    if not isinstance(phase, CoveragePhaseData) or phase.parameter_location != ParameterLocation.BODY:
        return True
    if case.meta.generation.mode.is_positive:
        chain, value, rest = [], case.body, phase.description
        while step := _STEP.match(rest):
            name, rest = step[1], rest[step.end() :]
            value = value[name] if name else value[0] if isinstance(value, list) else list(value.values())[-1]
            if name and not (chain and name in _SHARED.get(chain[-1], ())):
                chain.append(name)
        if not chain:
            return True
        place = "" if chain[0] in _SHARED else case.operation.label
        key, sender = (place, *chain, rest, json.dumps(value, default=str, sort_keys=True)), case
    elif location := phase.location:
        shared = _PLACE.match(location)
        owner, within = (
            (shared[1], _AGAIN.sub("", location[shared.end() :]))
            if shared
            else (case.operation.label, _FORM.sub("", location))
        )
        key = owner, within, phase.description.rpartition(": ")[2]
        sender = case.operation.label, location
    else:
        return True
    return _sent.setdefault(key, sender) == sender


_generate_one = examples.generate_one
_IMPATIENT = mock.patch.multiple(engine, INVALID_THRESHOLD_BASE=43, INVALID_PER_VALID=10)
"""Attempts until nothing is looked for any more: enough, with 99 %, where every tenth succeeds."""


def _generate_one_or_give_up(strategy: strategies.SearchStrategy[object], *options: object) -> object:
    """Draw a value that is the whole of a case: of the document's 249, 24 have none, and 225 come at once."""
    with _IMPATIENT:
        return _generate_one(strategy, *options)


examples.generate_one = _generate_one_or_give_up
# The text of each lambda is looked up for messages that nobody reads.
lambda_sources.lambda_description = lambda function: function.__qualname__


def _as_sent(pictures: strategies.SearchStrategy[Binary]) -> strategies.SearchStrategy[str]:
    return pictures.map(lambda content: base64.b64encode(content.data).decode())


schemathesis.openapi.format("byte", _as_sent(strategies.sampled_from(_PICTURES)))
schemathesis.openapi.format("binary", strategies.sampled_from(_PICTURES))


@schemathesis.serializer("application/x-ndjson")
def as_lines(context: schemathesis.SerializationContext, value: object) -> bytes:
    """Return an item as the only line; an example is lines already."""
    return value.encode() if isinstance(value, str) else json.dumps(value).encode() + b"\n"


@schemathesis.hook
def before_add_examples(context: schemathesis.HookContext, examples: list[schemathesis.Case]) -> None:
    """Put a picture where an example says ``(the file)``."""
    for case in examples:
        if isinstance(case.body, dict) and case.body.get("picture") == "(the file)":
            case.body = {**case.body, "picture": _PICTURES[0]}


@schemathesis.hook
def before_call(
    context: schemathesis.HookContext, case: schemathesis.Case, kwargs: dict[str, object]
) -> None:
    """Keep the galleries and the keys of the run itself, and let valid data meet what it is valid for."""
    if case.meta is not None and case.meta.generation.mode.is_positive:
        _steer(case)
    if case.operation.path.endswith("/events"):
        kwargs["timeout"] = _STREAM_SECONDS
    last = re.findall(r"\{(\w+)\}$", case.operation.path)
    if case.operation.path.endswith(_BY_FILTER) and case.path_parameters.get("collection") in GALLERIES:
        case.path_parameters["collection"] = next(_spares)
    if case.method == "DELETE" and last and str(case.path_parameters.get(last[0])) in _KEPT:
        case.path_parameters[last[0]] = next(_spares)


def _steer(case: schemathesis.Case) -> None:
    """Send pictures and texts to the gallery of pictures and texts, and own features to the other."""
    if not isinstance(case.body, dict) or case.path_parameters.get("collection") not in GALLERIES:
        return
    if any("%" in str(value) for value in case.path_parameters.values()):
        return  # quoted already, and taken for invalid once any of them is edited
    body = dict(case.body)
    several = "queries" if "queries" in body else "items"
    items = body.get(several)
    if isinstance(items, list) and items and all(isinstance(item, dict) for item in items):
        body[several] = items = [dict(item) for item in items]
    else:
        items = [body]
    for item in reversed(items):  # the first of several decides on the gallery
        is_vector = item.get("vector") is not None
        is_picture = "picture" in item or item.get("image_base64") is not None
        own, other = ("image", "text") if is_picture else ("text", "image")
        if is_vector or is_picture or item.get("text") is not None:
            case.path_parameters["collection"] = VECTORS if is_vector else PRODUCTS
            if {case.path_parameters.get(name) for name in ("source", "target")} <= {"image", "text"}:
                case.path_parameters |= {"source": own, "target": other}
            if item.get("modality", "none") in ("image", "text", None):
                item["modality"] = own
    if isinstance(body.get("filter"), dict) and case.operation.path.endswith(_BY_FILTER):
        body["filter"] = {**body["filter"], "pair_id": "p1"}  # an empty one is refused
    if case.method == "PUT" and body.get("id") is not None:
        body["id"] = case.path_parameters["item_id"]
    if not body.keys() & {"picture", "sound"}:
        # Schemathesis takes an edited body with a file in it for an invalid one.
        case.body = body


@schemathesis.hook
def filter_failure(
    context: schemathesis.HookContext,
    failure: Failure,
    case: schemathesis.Case,
    response: schemathesis.Response,
) -> bool:
    """Let pass what is not sent, and a refusal of valid data that depends on more than the request."""
    if isinstance(failure, AcceptedNegativeData):
        return not _is_about_what_is_not_sent(failure, case)
    if not isinstance(failure, RejectedPositiveData) or response.status_code != 422:
        return True
    problem = response.json()
    said = f"{problem['type'].removeprefix('/problems/')}: {problem['detail']}"
    return not any(re.match(pattern, said, re.DOTALL) for pattern in DEPENDS)


def _is_about_what_is_not_sent(failure: Failure, case: schemathesis.Case) -> bool:
    """Return whether what is wrong is an empty list in a form, of which no byte of the request tells."""
    is_form = case.media_type == "multipart/form-data" and isinstance(case.body, dict)
    return is_form and any(
        value == [] and f"/properties/{name} (" in failure.message for name, value in case.body.items()
    )
