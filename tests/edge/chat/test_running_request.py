"""What a settlement is told of the times of a request, by how far that came."""

import pytest

from edge.billing.settlements import ChatDetails
from edge.chat.running_request import RunningRequest


@pytest.mark.parametrize(
    ("arrived_at_s", "first_piece_at_s", "is_streamed", "expected"),
    [
        # It was refused before anything was held for it.
        (None, None, True, (None, None)),
        (10.0, None, True, (None, 2_500)),
        (10.0, 10.25, True, (250, 2_500)),
        # An answer that comes whole has no first token.
        (10.0, 10.25, False, (None, 2_500)),
    ],
)
def test_times_are_known_as_far_as_the_request_came(
    arrived_at_s: float | None, first_piece_at_s: float | None, is_streamed: bool, expected: tuple[int | None, ...]
) -> None:
    request = RunningRequest("key_1", is_streamed)
    request.arrived_at_s, request.first_piece_at_s = arrived_at_s, first_piece_at_s
    details = request.details(12.5)
    assert details == ChatDetails(key_id="key_1", first_token_ms=expected[0], duration_ms=expected[1])
