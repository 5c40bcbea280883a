"""Secrets from files and variables."""

from pathlib import Path

import pytest

from services.router.providers.authentication.credentials import CredentialsUnavailable
from services.router.providers.authentication.secret import Secret


def test_file_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("first\n")
    secret = Secret(path)
    assert secret.read() == "first"
    path.write_text("second\n")
    assert secret.read() == "second"


def test_secret_is_in_no_text_of_it() -> None:
    assert "canary" not in repr(Secret(value="canary"))
    assert Secret(value="canary").read() == "canary"


@pytest.mark.parametrize("content", [b"", b"two\nlines", b"caf\xc3\xa9", b"\xff"])
def test_file_without_a_secret_is_named_and_not_quoted(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    with pytest.raises(CredentialsUnavailable, match=str(path)) as refusal:
        Secret(path).read()
    assert "two" not in str(refusal.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CredentialsUnavailable, match="No such file"):
        Secret(tmp_path / "none").read()
