"""What a request takes from the rate limits of its key, and what its client is told of them."""

from edge.billing.rate_limits import Admission, LastRates
from legato_protos.metering.v1 import metering_pb2 as pb
from tests.support.fakes import FakeClock


def admission(corrections: list[pb.CorrectRequest], *, limit_tokens: int) -> Admission:
    asked = pb.AdmitRequest(key_id="key_a", account_id="acct_a", requests_per_minute=60, tokens=100)
    rate = pb.AdmitResponse(limit_requests=60, remaining_requests=3, reset_requests_ms=1_000, limit_tokens=limit_tokens)
    return admitted(asked, rate, corrections)


def admitted(asked: pb.AdmitRequest, rate: pb.AdmitResponse, corrections: list[pb.CorrectRequest]) -> Admission:
    admission = Admission(asked, corrections.append)
    admission.confirm(rate)
    return admission


def test_without_a_limit_of_tokens_nothing_is_corrected() -> None:
    corrections: list[pb.CorrectRequest] = []
    admission(corrections, limit_tokens=0).use(5_000)
    assert corrections == []


def test_guess_that_was_right_is_not_corrected() -> None:
    corrections: list[pb.CorrectRequest] = []
    admission(corrections, limit_tokens=1_000).use(100)
    assert corrections == []


def test_refused_request_is_given_back_with_the_limits_it_was_taken_by() -> None:
    corrections: list[pb.CorrectRequest] = []
    refused = admission(corrections, limit_tokens=0)
    refused.give_back()
    [correction] = corrections
    assert correction == pb.CorrectRequest(
        key_id="key_a", account_id="acct_a", requests_per_minute=60, refused=True, tokens=-100
    )
    assert dict(refused.headers)[b"x-ratelimit-remaining-requests"] == b"4"
    assert dict(refused.headers)[b"x-ratelimit-reset-requests"] == b"0ms"


def test_chat_of_which_nothing_came_is_told_that_its_tokens_came_back() -> None:
    corrections: list[pb.CorrectRequest] = []
    asked = pb.AdmitRequest(key_id="key_a", account_id="acct_a", tokens=807)
    rate = pb.AdmitResponse(
        limit_requests=3000, remaining_requests=199, reset_requests_ms=20,
        limit_tokens=1_000, remaining_tokens=193, reset_tokens_ms=48_420,
    )  # fmt: skip
    refused = admitted(asked, rate, corrections)
    refused.use(0)
    assert [correction.tokens for correction in corrections] == [-807]
    headers = dict(refused.headers)
    assert headers[b"x-ratelimit-remaining-tokens"] == b"1000"
    assert headers[b"x-ratelimit-reset-tokens"] == b"0ms"
    # The request itself was taken.
    assert headers[b"x-ratelimit-remaining-requests"] == b"199"


def test_tokens_that_come_back_pay_off_a_debt_before_there_are_any_left() -> None:
    # Five thousand were taken of a limit of one thousand, which a whole bucket allows.
    asked = pb.AdmitRequest(key_id="key_a", account_id="acct_a", tokens=5_000)
    rate = pb.AdmitResponse(
        limit_requests=3000, remaining_requests=199, reset_requests_ms=20,
        limit_tokens=1_000, remaining_tokens=0, reset_tokens_ms=300_000,
    )  # fmt: skip
    corrections: list[pb.CorrectRequest] = []
    long = admitted(asked, rate, corrections)
    long.use(4_500)
    headers = dict(long.headers)
    assert headers[b"x-ratelimit-remaining-tokens"] == b"0"
    assert headers[b"x-ratelimit-reset-tokens"] == b"4m30s"


def test_last_rates_are_told_with_what_has_come_back_since() -> None:
    clock = FakeClock()
    rates = LastRates(clock)
    told = pb.AdmitResponse(
        limit_requests=60, remaining_requests=2, reset_requests_ms=2_000,
        limit_tokens=6_000, remaining_tokens=0, reset_tokens_ms=61_000,
    )  # fmt: skip
    rates.record("key_a", told)
    assert rates.recall("key_a") == told
    clock.advance(1.5)
    assert rates.recall("key_a") == pb.AdmitResponse(
        limit_requests=60, remaining_requests=3, reset_requests_ms=500,
        limit_tokens=6_000, remaining_tokens=50, reset_tokens_ms=59_500,
    )  # fmt: skip
    clock.advance(100)
    assert rates.recall("key_a") == pb.AdmitResponse(
        limit_requests=60, remaining_requests=4, limit_tokens=6_000, remaining_tokens=6_000
    )


def test_only_so_many_last_rates_are_kept() -> None:
    rates = LastRates(FakeClock(), most=2)
    for key_id in ("key_a", "key_b", "key_c"):
        rates.record(key_id, pb.AdmitResponse(limit_requests=60))
    assert [rates.recall(key_id) is None for key_id in ("key_a", "key_b", "key_c")] == [True, False, False]
