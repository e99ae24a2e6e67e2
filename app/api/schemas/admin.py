"""Wire models of collections and their encoders, and of administration: retrains, activations, keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainValidator,
    StringConstraints,
    TypeAdapter,
    WithJsonSchema,
    field_validator,
)
from pydantic.json_schema import JsonSchemaValue

from app.answers import RetrainingPolicy
from app.api.schemas.base import NAME, Integer, Strict, one_of, whole
from app.domain.entities import KeyBounds, Modality
from app.domain.names import LARGEST_VERSION, MAX_KEY_COLLECTIONS, MAX_NAME, STORABLE_PATTERN, Scope
from app.domain.reports import Objective, Supervision, TrainingParameters
from app.encoders.registry import OPTIONS
from app.services.training import requests
from solver import SCALINGS


class EncoderIn(BaseModel):
    """An encoder: its type and its own options, which the encoders themselves check."""

    model_config = ConfigDict(extra="allow")

    type: str

    def options(self) -> dict[str, Any]:
        """Return type and options, whole numbers as integers."""
        return _with_integers(self.model_dump())

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Describe every type with its options."""
        schema = handler(core_schema)
        resolved = handler.resolve_ref_schema(schema)
        for keyword in ("properties", "required", "additionalProperties"):
            resolved.pop(keyword, None)
        types = OPTIONS.schemas()
        parts = [options for kind, options in types.items() if kind not in ("combine", "vector")]
        types["combine"]["properties"]["parts"]["items"] = {"oneOf": parts}
        resolved["oneOf"] = list(types.values())
        return schema


def _with_integers(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: [_with_integers(part) if isinstance(part, dict) else part for part in value]
        if name == "parts" and isinstance(value, list)
        else whole(value)
        for name, value in options.items()
    }


class ModalityIn(Strict):
    """One side of a collection."""

    encoder: EncoderIn


class CollectionIn(Strict):
    """A new collection: two modalities, the first is X."""

    name: Annotated[str, WithJsonSchema(NAME)]
    modalities: dict[str, ModalityIn] = Field(
        json_schema_extra={"minProperties": 2, "maxProperties": 2, "propertyNames": NAME}
    )

    def to_modalities(self) -> list[Modality]:
        """Return the domain's modalities, in the order given."""
        return [Modality(name, entry.encoder.options()) for name, entry in self.modalities.items()]


_FacetKey = Annotated[
    str,
    StringConstraints(min_length=1, max_length=requests.LONGEST_FACET),
    WithJsonSchema(
        {"type": "string", "minLength": 1, "maxLength": requests.LONGEST_FACET, "pattern": STORABLE_PATTERN}
    ),
]
_FacetKeys = Annotated[
    list[_FacetKey], Field(max_length=requests.MOST_FACETS, json_schema_extra={"uniqueItems": True})
]

_Scaling = Annotated[
    str,
    StringConstraints(pattern=one_of(SCALINGS)),
    WithJsonSchema({"type": "string", "enum": list(SCALINGS)}),
]

_FACET_KEYS: TypeAdapter[list[str]] = TypeAdapter(_FacetKeys, config=ConfigDict(strict=True))
_AUTO: TypeAdapter[Literal["auto"]] = TypeAdapter(Literal["auto"])


def _read_facets(value: Any) -> list[str] | Literal["auto"]:
    # By form, so that errors name fields of what was sent; those of a union name its members.
    return _AUTO.validate_python(value) if isinstance(value, str) else _FACET_KEYS.validate_python(value)


_Facets = Annotated[
    list[str] | Literal["auto"],
    PlainValidator(_read_facets, json_schema_input_type=_FacetKeys | Literal["auto"]),
]


class SupervisionIn(Strict):
    """What of that which items carry is learned from."""

    labels: bool = Field(True, description="all labels of an item; the first of them by other methods")
    facets: _Facets = Field(
        "auto",
        description="metadata keys whose values are learned like labels, or `auto` for those that look "
        "categorical: short texts, small whole numbers, true or false, with two values or more on items of "
        "both modalities, and on average two items or more of each modality to a value",
    )
    pairs: bool = Field(True, description="items with equal `pair_id` belong together")
    feedback: bool = Field(True, description="stored feedback")

    def to_supervision(self) -> Supervision:
        """Return the service's form."""
        facets: Any = self.facets if self.facets == "auto" else tuple(self.facets)
        return Supervision(self.labels, facets, self.pairs, self.feedback)


_Share = Annotated[float, Field(gt=0, le=1)]


class FloorsIn(Strict):
    """Shares that held-out items keep of what they have with the active version's weights, or else by the
    cosine of the features, where both modalities have as many, or else by the usual objective."""

    ndcg: _Share | None = None
    map: _Share | None = None
    recall_1: _Share | None = None
    recall_10: _Share | None = None


class ObjectiveWeightsIn(Strict):
    """Weights of measures; what the held-out items have nothing to measure with is left out of the mean."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    ndcg: float = Field(0.0, ge=0, le=requests.LARGEST_WEIGHT)
    map: float = Field(0.0, ge=0, le=requests.LARGEST_WEIGHT)
    recall: float = Field(0.0, ge=0, le=requests.LARGEST_WEIGHT)
    at_least: FloorsIn | None = Field(None, description="measures that may not fall lower")


_Measure = Literal["ndcg", "map", "recall"]
_MEASURE: TypeAdapter[_Measure] = TypeAdapter(_Measure)


def _read_objective(value: Any) -> Objective:
    # By form, as facets are.
    if isinstance(value, dict):
        return ObjectiveWeightsIn.model_validate(value).model_dump(exclude_unset=True, exclude_none=True)
    return _MEASURE.validate_python(value)


_Objective = Annotated[
    Objective, PlainValidator(_read_objective, json_schema_input_type=_Measure | ObjectiveWeightsIn)
]


class RetrainIn(Strict):
    """Options of a retrain; everything has a default."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"method": {"enum": ["semantic", "composite"]}}, "required": ["method"]},
            "then": {"properties": {"alpha": {"type": "null"}, "scaling": {"type": "null"}}},
        }
    )

    method: requests.Method = Field(
        "auto",
        description="the similarity of features (the paper's), that of class posteriors, or the better on "
        "held-out items; `squared` is `lrbs` with the squared loss, cheap for any number of labels and "
        "items, which `auto` tries in the place of what would take too long or too much memory; "
        "`composite` learns from all that items carry, and `auto` tries it where that is more than one label "
        "each. `alpha` and `scaling` are of `lrbs` and `squared`; `alpha` chooses `lrbs`",
    )
    alpha: float | None = Field(
        None,
        ge=requests.SMALLEST_ALPHA,
        le=requests.LARGEST_ALPHA,
        description="penalty weight; default: chosen on held-out items",
    )
    scaling: _Scaling | None = None
    tol: float = Field(1e-3, gt=0, lt=1)
    max_iter: Integer = Field(200, ge=1, le=requests.MOST_ITERATIONS)
    seed: Integer = Field(0, ge=0, le=requests.LARGEST_SEED)
    supervision: SupervisionIn = Field(default_factory=SupervisionIn)
    reason: str | None = Field(
        None, min_length=1, max_length=500, description="why, in words that the version keeps"
    )
    objective: _Objective | None = Field(
        None,
        description="what held-out quality is, which `composite` chooses its weights by, too: graded nDCG@10 "
        "over facets and pairs, mean average precision by label, how often the partner is among the first "
        "ten, or a weighted mean of these; default: two parts of nDCG and one of MAP where there is "
        "more than one facet or pairs, and `map` otherwise",
    )
    encoders: dict[str, EncoderIn] = Field(
        default_factory=dict,
        description="other encoders, by modality: all stored originals are encoded by them beside the "
        "features that serve, and they take over with the new version",
        json_schema_extra={"maxProperties": 2, "propertyNames": NAME},
    )

    def to_encoders(self) -> dict[str, dict[str, Any]]:
        """Return the options of the encoders to change to, by modality."""
        return {name: encoder.options() for name, encoder in self.encoders.items()}

    def to_parameters(self) -> TrainingParameters:
        """Return the service's form."""
        values = self.model_dump(exclude={"supervision", "encoders"})
        return TrainingParameters(**values, supervision=self.supervision.to_supervision())


_Count = Annotated[int, Field(ge=1, le=1_000_000_000), BeforeValidator(whole)]
_Hour = Annotated[int, Field(ge=0, le=23), BeforeValidator(whole)]


class RetrainingPolicyIn(Strict):
    """When a collection is trained by itself; never where no limit is given."""

    changed_items: _Count | None = Field(None, description="items written or deleted")
    judgements: _Count | None = Field(None, description="feedback stored")
    hours: Annotated[float, Field(gt=0, le=1e6)] | None = Field(None, description="if anything has changed")
    quiet_hours: tuple[_Hour, _Hour] | None = Field(
        None, description="from and to which hour of the day, UTC, trainings may begin; two different ones"
    )

    @field_validator("quiet_hours")
    @classmethod
    def _check_quiet_hours(cls, hours: tuple[int, int] | None) -> tuple[int, int] | None:
        if hours is not None and hours[0] == hours[1]:
            raise ValueError("expected two different hours")
        return hours

    def to_policy(self) -> RetrainingPolicy:
        """Return the service's form."""
        return RetrainingPolicy(**self.model_dump())


class KeyIn(Strict):
    """A new key."""

    scope: str = Field(pattern=one_of(Scope))
    name: str | None = Field(None, min_length=1, max_length=MAX_NAME, description="a name for people")
    collections: list[str] | None = Field(
        None,
        min_length=1,
        max_length=MAX_KEY_COLLECTIONS,
        description="the only collections it can see; default: all",
    )
    expires_at: AwareDatetime | None = Field(None, description="when it stops working")
    requests_per_minute: Annotated[int, Field(ge=1, le=100_000), BeforeValidator(whole)] | None = Field(
        None, description="its own rate limit; default: the service's"
    )

    def to_bounds(self) -> KeyBounds:
        """Return the service's form."""
        collections = None if self.collections is None else tuple(dict.fromkeys(self.collections))
        return KeyBounds(collections, self.expires_at, self.requests_per_minute)


class ActivateIn(Strict):
    """Options of an activation or a rollback; all may be left out."""

    expected_version: Annotated[int, Field(ge=0, le=LARGEST_VERSION), BeforeValidator(whole)] | None = Field(
        None, description="the version that must be active now, 0 for none; 409 otherwise"
    )
    reason: str | None = Field(None, min_length=1, max_length=500, description="kept in the history")
