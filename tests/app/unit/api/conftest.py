import pytest


@pytest.fixture
def anyio_backend() -> str:
    """What the service runs on."""
    return "asyncio"
