"""Galleries in PostgreSQL with pgvector."""
# Each gallery is a table of its own with an index of its own (HNSW; Malkov and Yashunin, 2018), since an
# index over several galleries would have to filter. What is indexed are rows that were centred and balanced
# (`Balance`), which changes no ranking and makes neighbours of what scores alike; the candidates
# are ranked again by their own inner products. Few rows, and those of narrow filters, are compared one by
# one.

from app.engines.postgresql.engine import PostgresEngine

__all__ = ["PostgresEngine"]
