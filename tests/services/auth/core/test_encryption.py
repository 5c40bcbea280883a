import secrets

import pytest

from services.auth.core.encryption import TextCipher, parse_encryption_key
from services.chassis.settings import SettingsError

EMAIL = "ada@example.ca"


def test_what_was_changed_is_unknown() -> None:
    cipher = TextCipher({1: secrets.token_bytes(32)}, {})
    stored = cipher.encrypt(EMAIL)
    assert cipher.decrypt(stored) == EMAIL
    assert cipher.encrypt(EMAIL) == stored
    other_end = "B" if stored.endswith("A") else "A"
    for changed in (
        stored[:-4],
        f"{stored[:-1]}{other_end}",
        stored.replace("k1", "k2"),
        "k1.",
        "k1.é",
        "nonsense",
        "",
    ):
        assert cipher.decrypt(changed) == ""
    assert TextCipher({1: secrets.token_bytes(32)}, {}).decrypt(stored) == ""


def test_a_key_that_is_none_is_refused_without_quoting_it() -> None:
    with pytest.raises(SettingsError) as caught:
        parse_encryption_key("0123456789")
    assert "LEGATO_CREDENTIAL_ENCRYPTION_KEY" in str(caught.value)
    assert "0123456789" not in str(caught.value)
