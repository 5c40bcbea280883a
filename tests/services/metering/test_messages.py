import pytest

from services.chassis.errors import LegatoError, Reason
from services.metering.messages import from_token, to_token


def test_a_token_is_decoded_to_its_numbers() -> None:
    assert from_token(to_token(-1, 0, 2**63 - 1), 3) == [-1, 0, 2**63 - 1]


@pytest.mark.parametrize(
    "token", ["", "x", "MSAy!", to_token(1), to_token(1, 2, 3), to_token(2**63, 0), "MSAgMg==", "MDEgMg=="]
)
def test_a_token_of_other_text_or_numbers_is_refused(token: str) -> None:
    with pytest.raises(LegatoError) as refusal:
        from_token(token, 2)
    assert (refusal.value.reason, refusal.value.param) == (Reason.REQUEST_INVALID, "page_token")
