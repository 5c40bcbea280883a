"""A token in a file that something else replaces."""

from pathlib import Path

import pytest

from services.chassis.http_client.origin import Origin
from services.router.providers.authentication.credentials import CredentialsUnavailable
from services.router.providers.authentication.token_file import READ_EVERY_S, TokenFile


async def test_token_is_read_again_when_it_is_refused_and_kept_while_the_file_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    authentication = TokenFile(path).open(Origin("host", 80))
    await authentication.ready()
    assert authentication.headers("/", b"") == {"Authorization": "Bearer first"}
    path.write_text("second\n")
    assert await authentication.renew(authentication.generation, 401, [])
    assert authentication.headers("/", b"") == {"Authorization": "Bearer second"}
    path.unlink()
    await authentication.ready()
    assert authentication.headers("/", b"") == {"Authorization": "Bearer second"}


async def test_token_of_a_file_does_not_end_and_is_read_again_soon(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first")
    obtained = await TokenFile(path).obtain()
    assert obtained.renewed_after_s == READ_EVERY_S
    assert obtained.lifetime_s > 1e9


def test_file_without_a_token_is_refused_before_any_call(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("two words")
    with pytest.raises(CredentialsUnavailable):
        TokenFile(path).check()
    assert TokenFile(path).identity == str(path)
