"""Routes of administration: retrains, jobs, model versions, keys."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response, status

from app.api.bodies import parsed
from app.api.deps import Access, Training, may_administer
from app.api.openapi import json_body
from app.api.problems import OF_BODIES, responses
from app.api.schemas.admin import JobOut, KeyIn, KeyList, KeyOut, ModelList, ModelOut, RetrainIn
from app.domain.entities import Scope
from app.services.training import TrainingParameters

router = APIRouter(prefix="/v1/admin", tags=["admin"], dependencies=[Depends(may_administer)])
Version = Annotated[int, Path(ge=1, le=2**31 - 1)]


@router.post(
    "/collections/{collection}/retrain",
    status_code=status.HTTP_202_ACCEPTED,
    responses=responses(401, 403, 404, 409, *OF_BODIES),
    openapi_extra=json_body(RetrainIn, required=False),
)
def retrain(
    collection: str,
    training: Training,
    response: Response,
    body: Annotated[RetrainIn, parsed(RetrainIn, default=RetrainIn())],
) -> JobOut:
    """Queue a retrain; the new version serves as soon as it is published."""
    job = training.request(collection, TrainingParameters(**body.model_dump()))
    response.headers["Location"] = f"/v1/admin/jobs/{job.id}"
    return JobOut.of(job)


@router.get("/jobs/{job_id}", responses=responses(401, 403, 404, 422))
def get_job(job_id: str, training: Training) -> JobOut:
    """Return a job with its progress."""
    return JobOut.of(training.job(job_id))


@router.post(
    "/jobs/{job_id}/cancel", status_code=status.HTTP_202_ACCEPTED, responses=responses(401, 403, 404, 422)
)
def cancel_job(job_id: str, training: Training) -> JobOut:
    """Ask a job to stop; it does at its next iteration."""
    return JobOut.of(training.cancel(job_id))


@router.get("/collections/{collection}/models", responses=responses(401, 403, 404, 422))
def list_models(collection: str, training: Training) -> ModelList:
    """List model versions, newest first."""
    return ModelList(models=[ModelOut.of(model) for model in training.models(collection)])


@router.get("/collections/{collection}/models/{version}", responses=responses(401, 403, 404, 422))
def get_model(collection: str, version: Version, training: Training) -> ModelOut:
    """Return one model version."""
    return ModelOut.of(training.model(collection, version))


@router.post("/collections/{collection}/models/{version}/activate", responses=responses(401, 403, 404, 422))
def activate_model(collection: str, version: Version, training: Training) -> ModelOut:
    """Let a version serve: promote it, or roll back to it."""
    return ModelOut.of(training.activate(collection, version))


@router.post(
    "/keys",
    status_code=status.HTTP_201_CREATED,
    responses=responses(401, 403, 404, *OF_BODIES),
    openapi_extra=json_body(KeyIn),
)
def create_key(body: Annotated[KeyIn, parsed(KeyIn)], access: Access) -> KeyOut:
    """Create a key; its secret is in this answer only."""
    return KeyOut.of(*access.create(Scope(body.scope), body.name, bounds=body.to_bounds()))


@router.get("/keys", responses=responses(401, 403))
def list_keys(access: Access) -> KeyList:
    """List keys, without their secrets."""
    return KeyList(keys=[KeyOut.of(key) for key in access.list_keys()])


@router.delete(
    "/keys/{key_id}", status_code=status.HTTP_204_NO_CONTENT, responses=responses(401, 403, 404, 422)
)
def revoke_key(key_id: str, access: Access) -> None:
    """Revoke a key."""
    access.revoke(key_id)
