"""SQLAlchemy: the database, its transactions, and one class a family of statements; no row leaves it."""
