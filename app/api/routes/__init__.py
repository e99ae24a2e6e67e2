"""The routes, one module for each kind of resource."""

from app.api.routes import (
    collections,
    encoders,
    feedback,
    health,
    imports,
    items,
    jobs,
    keys,
    maps,
    models,
    partners,
    plots,
    searches,
    values,
)

ROUTERS = tuple(
    module.router
    for module in (
        searches,  # most requests are searches
        collections,
        encoders,
        items,
        imports,
        partners,
        values,
        maps,
        feedback,
        jobs,
        models,
        plots,
        keys,
        health,
    )
)
"""In the order in which a request is matched."""
