"""SQLAlchemy behind the domain's ports: rows never leave this package."""
