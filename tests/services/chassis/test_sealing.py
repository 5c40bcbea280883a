"""Content that opens nowhere but where it was sealed."""

import pytest

from services.auth.sign_in.rules.totp import CredentialCipher
from services.chassis.sealing import CannotOpen, Sealed, SingleUseKey, VersionedSealer
from services.router.grounding import sealing as grounding_sealing

OLD, NEW = b"o" * 32, b"n" * 32


def test_sealed_content_opens_in_its_place_and_for_its_purpose_alone() -> None:
    sealer = VersionedSealer({1: OLD}, b"a purpose")
    sealed = sealer.seal(b"My cat is called Mitzi.", b"place")
    assert b"Mitzi" not in sealed.data
    assert sealer.open(sealed, b"place") == b"My cat is called Mitzi."
    changed = Sealed(1, sealed.data[:-1] + bytes([sealed.data[-1] ^ 1]))
    for opener, content, place in (
        (sealer, sealed, b"another place"),
        (sealer, changed, b"place"),
        (sealer, Sealed(1, b"short"), b"place"),
        (VersionedSealer({1: OLD}, b"another purpose"), sealed, b"place"),
    ):
        with pytest.raises(CannotOpen):
            opener.open(content, place)


def test_same_content_is_never_sealed_the_same() -> None:
    sealer = VersionedSealer({1: OLD}, b"a purpose")
    assert sealer.seal(b"again", b"").data != sealer.seal(b"again", b"").data


def test_newest_key_seals_and_older_ones_still_open() -> None:
    before, after = VersionedSealer({1: OLD}, b""), VersionedSealer({1: OLD, 2: NEW}, b"")
    sealed = before.seal(b"kept", b"")
    assert after.open(sealed, b"") == b"kept"
    assert after.seal(b"kept", b"").key_version == 2
    with pytest.raises(CannotOpen, match="version 1"):
        VersionedSealer({2: NEW}, b"").open(sealed, b"")


def test_parts_under_a_single_use_key_cannot_be_exchanged() -> None:
    key = SingleUseKey()
    parts = [key.seal(b"part", number) for number in (0, 1)]
    assert [SingleUseKey(key.key).open(part, number) for number, part in enumerate(parts)] == [b"part", b"part"]
    with pytest.raises(CannotOpen):
        key.open(parts[1], 0)


def test_what_earlier_versions_stored_is_still_read() -> None:
    credential = bytes.fromhex(
        "000000070050fe6bbe5f5e8329122dc235013f5104b12aab940818f730597dbd2e2cca6b69b787250d185ce9cc1184da5782155b"
    )
    assert CredentialCipher({1: OLD, 7: NEW}).decrypt(credential, "user_1") == b"a secret of 20 bytes"
    note = bytes.fromhex(
        "eac6758dc69c00a02226f54e1057476a5b4536eb74241017d593622761a2e543fa66a291c351e5c95e7c2a3e7d41ecd90302e9"
    )
    opened = grounding_sealing.Sealer({3: OLD}).open(Sealed(3, note), "acct_1", "note", "note_1")
    assert opened == "My cat is called Mitzi."
    result = bytes.fromhex("93069fdea98f7b544c7b34136c69a9332c6eb7958325b1e94c5e")
    assert SingleUseKey(b"k" * 32).open(result, bound_to=b"/keys/made") == b"shown once"
