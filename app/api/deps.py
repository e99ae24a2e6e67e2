"""What routes ask for: the services, and a key of the right scope."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from app.domain.entities import Scope
from app.services.access import AccessService
from app.services.catalogue import CatalogueService
from app.services.imports import ImportService
from app.services.search import SearchService
from app.services.training import TrainingService

_bearer = HTTPBearer(auto_error=False, description="an API key: lrbs keys create --scope admin")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


def _catalogue(request: Request) -> CatalogueService:
    service: CatalogueService = request.app.state.catalogue
    return service


def _imports(request: Request) -> ImportService:
    service: ImportService = request.app.state.imports
    return service


def _search(request: Request) -> SearchService:
    service: SearchService = request.app.state.search
    return service


def _training(request: Request) -> TrainingService:
    service: TrainingService = request.app.state.training
    return service


def _access(request: Request) -> AccessService:
    service: AccessService = request.app.state.access
    return service


Catalogue = Annotated[CatalogueService, Depends(_catalogue)]
Imports = Annotated[ImportService, Depends(_imports)]
Search = Annotated[SearchService, Depends(_search)]
Training = Annotated[TrainingService, Depends(_training)]
Access = Annotated[AccessService, Depends(_access)]


def _require(scope: Scope, access: AccessService, credentials: HTTPAuthorizationCredentials | None) -> None:
    access.require(None if credentials is None else credentials.credentials, scope)


def may_search(request: Request, access: Access, credentials: Credentials) -> None:
    """Let searches and reads pass: with a key, or with none where search is open."""
    if not request.app.state.open_search:
        _require(Scope.SEARCH, access, credentials)


def may_write(access: Access, credentials: Credentials) -> None:
    """Let writes pass."""
    _require(Scope.WRITE, access, credentials)


def may_administer(access: Access, credentials: Credentials) -> None:
    """Let administration pass."""
    _require(Scope.ADMIN, access, credentials)
