"""The routes, one module for each kind of resource."""

from app.api.routes import (
    collections,
    feedback,
    galleries,
    health,
    imports,
    items,
    jobs,
    keys,
    models,
    searches,
)

ROUTERS = tuple(
    module.router
    for module in (
        searches,  # most requests are searches
        collections,
        items,
        imports,
        galleries,
        feedback,
        jobs,
        models,
        keys,
        health,
    )
)
"""In the order in which a request is matched."""
