"""The routes, in modules of resources that belong together."""

from app.api.routes import admin, catalogue, imports, models, searches

ROUTERS = (
    searches.router,  # most requests are searches
    catalogue.collections,
    catalogue.items_of,
    imports.router,
    catalogue.galleries,
    catalogue.feedback_on,
    models.jobs,
    models.models,
    admin.keys,
    admin.health,
)
"""In the order in which a request is matched."""
