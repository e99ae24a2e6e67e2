from app.domain.ports import StoredFiles


def stale(files: StoredFiles, before: float) -> list[str]:
    """Return the names of what was last written or touched before a time."""
    return [name for name, at in files.times() if at < before]
