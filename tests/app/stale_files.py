from app.storage.pictures_and_bundles import Blobs, Bundles


def stale(files: Blobs | Bundles, before: float) -> list[str]:
    """Return the names of what was last written or touched before a time."""
    return [name for name, at in files.times() if at < before]
