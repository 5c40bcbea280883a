import asyncio

import pytest

from services.auth.sign_in.rules.passwords import WAITING_MOST, PasswordHashes, checked_password
from services.chassis.errors import LegatoError, Reason
from tests.services.auth.console import EMAIL
from tests.services.auth.sign_in.rules.test_password_sign_in import PASSWORD


@pytest.mark.parametrize(
    "password",
    [
        "too short",
        "aaaaaaaaaaaaaaaaaaaa",
        "passwordpassword1234",
        "123456789012345678901234",
        "ada@example.ca ada@example.ca",
        "Qwertyuiop1234567890",
    ],
)
def test_passwords_that_are_guessed_first_are_refused(password: str) -> None:
    with pytest.raises(LegatoError):
        checked_password(password, "Ada", EMAIL)


@pytest.mark.parametrize("password", [PASSWORD, "mère café tréma ça", "kV9#qLz2&pWx8!mN", "ada likes green turtles"])
def test_long_passwords_of_any_letters_are_taken(password: str) -> None:
    assert checked_password(password, "Ada", EMAIL)


async def test_more_than_a_few_waiting_hashes_are_refused_at_once() -> None:
    hashes = PasswordHashes()
    outcomes = await asyncio.gather(*(hashes.verify("", PASSWORD) for _ in range(20)), return_exceptions=True)
    refused = [outcome for outcome in outcomes if isinstance(outcome, LegatoError)]
    assert len(refused) == 20 - WAITING_MOST - 1
    assert {error.reason for error in refused} == {Reason.TOO_MANY_SIGN_INS}
    # The turn of those who come later comes.
    assert await hashes.verify("", PASSWORD) is False
