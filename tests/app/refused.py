import pytest

from app.domain.errors import ServiceError


def refused(code: str, match: str | None = None) -> pytest.RaisesExc[ServiceError]:
    """Expect an error of the service with a code, and with words that a pattern finds in its message."""
    return pytest.raises(ServiceError, match=match, check=lambda error: error.code == code)
