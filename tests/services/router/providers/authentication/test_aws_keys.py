"""Keys of Amazon's that the operator has."""

from pathlib import Path

import pytest

from services.router.providers.authentication.aws_keys import AwsAccessKey, AwsProfile
from services.router.providers.authentication.credentials import CredentialsUnavailable
from services.router.providers.authentication.secret import Secret
from services.router.providers.authentication.sigv4 import AwsKeys, SigningScope

SCOPE = SigningScope("ca-central-1", "bedrock")
PROFILES = """
[default]
aws_access_key_id = AKIADEFAULT
aws_secret_access_key = canary/default%key

[legato]
aws_access_key_id=AKIALEGATO
aws_secret_access_key=canary/legato
aws_session_token=canary-token

[sso]
sso_session = company
"""


async def test_keys_come_from_files_and_variables(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("canary/one\n")
    keys = AwsAccessKey(SCOPE, Secret(value="AKIA"), Secret(path))
    assert (await keys.obtain()).value == AwsKeys("AKIA", "canary/one")
    path.write_text("canary/two\n")
    assert (await keys.obtain()).value.secret_access_key == "canary/two"
    assert str(keys) == "aws_access_key bedrock in ca-central-1"


async def test_keys_come_from_a_profile(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    path.write_text(PROFILES)
    assert (await AwsProfile(SCOPE, path).obtain()).value == AwsKeys("AKIADEFAULT", "canary/default%key")
    named = AwsProfile(SCOPE, path, "legato")
    assert (await named.obtain()).value == AwsKeys("AKIALEGATO", "canary/legato", "canary-token")


@pytest.mark.parametrize(("text", "profile"), [(PROFILES, "sso"), (PROFILES, "none"), ("nonsense", "default")])
def test_profile_without_keys_is_refused_before_any_call(tmp_path: Path, text: str, profile: str) -> None:
    path = tmp_path / "credentials"
    path.write_text(text)
    with pytest.raises(CredentialsUnavailable, match=str(path)) as refusal:
        AwsProfile(SCOPE, path, profile).check()
    assert "canary" not in str(refusal.value)
