"""A provider's words about an error, in whatever form."""

import msgspec
import pytest

from services.router.providers.errors.error_body import read_error_body

# A client's word that must never be taken for a code.
QUOTED = "Invalid schema for function 'Insufficient_Quota'"


@pytest.mark.parametrize(
    ("said", "codes", "message"),
    [
        ('{"error":{"message":"No.","type":"A","code":"B","param":"C"}}', {"a", "b"}, "no."),
        ('{"error":{"message":"No.","type":null,"code":400}}', set(), "no."),
        ('[{"error":{"message":"No.","status":"A","details":[{"reason":"B"},{"x":"C"}]}}]', {"a", "b"}, "no."),
        ('{"type":"error","error":{"type":"A","message":"No.","details":{"error_code":"B"}}}', {"a", "b"}, "no."),
        ('{"error":{"message":"No.","code":400,"metadata":{"error_type":"A","raw":"B"}}}', {"a"}, "no."),
        ('{"error":{"message":"No.","code":"A","innererror":{"code":"B"}}}', {"a", "b"}, "no."),
        ('{"object":"error","message":"No.","type":"A","code":400}', {"a"}, "no."),
        ('{"error":"No.","error_type":"validation"}', set(), "no."),
        ('{"type":"A","message":"No."}', {"a"}, "no."),
        ('{"error":{"message":["No."],"details":7}}', set(), ""),
        ('{"detail":[{"msg":"No."}]}', set(), ""),
        ("[]", set(), ""),
        ("7", set(), ""),
        ("No.", set(), "no."),
        ('"No."', set(), "no."),
        ("", set(), ""),
    ],
)
def test_codes_and_message_are_found_where_providers_have_them(said: str, codes: set[str], message: str) -> None:
    error_body = read_error_body(said.encode())
    assert (set(error_body.codes), error_body.message) == (codes, message)


def test_what_is_cut_off_or_no_text_is_read_as_far_as_it_goes() -> None:
    assert read_error_body(b'{"error":{"message":"Too').message == '{"error":{"message":"too'
    assert read_error_body(b"N\xff").message == "n\ufffd"
    assert read_error_body(b"[" * 100_000).codes == set()


def test_words_of_a_message_are_no_codes() -> None:
    said = msgspec.json.encode({"error": {"message": QUOTED, "type": "invalid_request_error", "param": QUOTED}})
    assert read_error_body(said).codes == {"invalid_request_error"}


@pytest.mark.parametrize(
    ("details", "seconds"),
    [
        ('[{"@type":"x"},{"retryDelay":"13s"}]', 13),
        ('[{"retryDelay":"0.5s"}]', 0.5),
        ('[{"retryDelay":"21599.960323804s"}]', 21599.960323804),
        ('[{"retryDelay":"soon"}]', None),
        ('[{"retryDelay":13}]', None),
        ('[{"retryDelay":"9999999s"}]', None),
        ("[]", None),
        ("7", None),
    ],
)
def test_time_to_come_back_is_among_the_details(details: str, seconds: float | None) -> None:
    assert read_error_body(b'{"error":{"details":%b}}' % details.encode()).retry_after_s == seconds


def test_complaint_never_prints_itself() -> None:
    assert "canary" not in repr(read_error_body(b'{"error":{"message":"canary","code":"canary"}}'))
