"""Keys of a role of Amazon's for the service account of a pod."""

from pathlib import Path

import pytest

from services.router.providers.authentication.aws_web_identity import AwsWebIdentity
from services.router.providers.authentication.credentials import CredentialsUnavailable
from services.router.providers.authentication.sigv4 import SigningScope
from tests.support.upstreams.token_server import ROLE, SUBJECT_TOKEN, TokenReply, TokenServer


@pytest.fixture
def identity(tokens: TokenServer, tmp_path: Path) -> AwsWebIdentity:
    path = tmp_path / "token"
    path.write_text(SUBJECT_TOKEN)
    return AwsWebIdentity(SigningScope("ca-central-1", "bedrock"), ROLE, path, f"{tokens.base_url}/")


async def test_token_of_a_pod_brings_keys(identity: AwsWebIdentity, tokens: TokenServer) -> None:
    identity.check()
    keys, lifetime_s, _ = await identity.obtain()
    assert tokens.keys[keys.access_key_id] == (keys.secret_access_key, keys.session_token)
    assert 3590 < lifetime_s <= 3600
    assert str(identity) == f"aws_web_identity {ROLE}"


@pytest.mark.parametrize("body", ["<html/>", "<AccessKeyId>A</AccessKeyId>", "{}", "<AccessKeyId>&x;</AccessKeyId>"])
async def test_answer_without_keys_is_none(identity: AwsWebIdentity, tokens: TokenServer, body: str) -> None:
    tokens.replies.append(TokenReply(body=body))
    with pytest.raises(CredentialsUnavailable, match="no keys were handed out"):
        await identity.obtain()


async def test_role_of_others_is_refused(identity: AwsWebIdentity, tokens: TokenServer) -> None:
    identity.token_file.write_text("another")
    with pytest.raises(CredentialsUnavailable, match="status 403"):
        await identity.obtain()
