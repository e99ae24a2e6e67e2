"""The routes, one module for each kind of resource."""

from app.api.routes import collections, feedback, health, imports, items, jobs, keys, models, searches, values

ROUTERS = tuple(
    module.router
    for module in (collections, items, imports, values, searches, feedback, jobs, models, keys, health)
)
"""In the order in which a request is matched."""
