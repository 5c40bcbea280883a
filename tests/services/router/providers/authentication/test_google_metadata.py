"""Access tokens of the service account that a machine of Google's runs as."""

import pytest

from services.router.providers.authentication.credentials import CredentialsUnavailable
from services.router.providers.authentication.google_metadata import GoogleMetadata
from tests.support.upstreams.token_server import TokenServer


async def test_metadata_server_tells_a_token(tokens: TokenServer) -> None:
    account = GoogleMetadata(metadata_url=tokens.base_url)
    account.check()
    assert tokens.is_valid((await account.obtain()).value)
    assert tokens.requests == ["GET /computeMetadata/v1/instance/service-accounts/default/token"]
    assert str(account) == "google_metadata default"


def test_metadata_server_elsewhere_needs_tls() -> None:
    with pytest.raises(CredentialsUnavailable):
        GoogleMetadata(metadata_url="http://metadata.vendor.com").check()
