"""Keys of the role that a machine, a container or a pod of Amazon's runs as."""

from pathlib import Path

import pytest

from services.router.providers.authentication.aws_metadata import AwsContainer, AwsInstance
from services.router.providers.authentication.credentials import CredentialsUnavailable
from services.router.providers.authentication.secret import Secret
from services.router.providers.authentication.sigv4 import SigningScope
from tests.support.upstreams.token_server import SUBJECT_TOKEN, TokenReply, TokenServer

SCOPE = SigningScope("ca-central-1", "bedrock")


async def test_machine_has_the_keys_of_its_role(tokens: TokenServer) -> None:
    instance = AwsInstance(SCOPE, tokens.base_url)
    instance.check()
    keys = (await instance.obtain()).value
    assert keys.access_key_id in tokens.keys
    roles = "/latest/meta-data/iam/security-credentials/"
    assert tokens.requests == ["PUT /latest/api/token", f"GET {roles}", f"GET {roles}legato-role"]


@pytest.mark.parametrize("session", ["two words", "", "caf\u00e9", "<html> x"])
async def test_session_that_is_none_is_not_sent_on(tokens: TokenServer, session: str) -> None:
    tokens.replies.append(TokenReply(body=session or "\n"))
    with pytest.raises(CredentialsUnavailable):
        await AwsInstance(SCOPE, tokens.base_url).obtain()
    assert len(tokens.requests) == 1


async def test_pod_has_the_keys_of_its_role(tokens: TokenServer, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(SUBJECT_TOKEN)
    container = AwsContainer(SCOPE, f"{tokens.base_url}/v1/credentials", Secret(path))
    container.check()
    assert (await container.obtain()).value.access_key_id in tokens.keys


async def test_container_without_its_token_is_refused(tokens: TokenServer) -> None:
    with pytest.raises(CredentialsUnavailable, match="status 401"):
        await AwsContainer(SCOPE, f"{tokens.base_url}/v1/credentials").obtain()
