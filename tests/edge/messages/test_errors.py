"""Which requests are answered in Anthropic's shape, and what is told in it."""

import json
from typing import Any

import pytest

from edge.messages.errors import is_for_messages, render_error
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from tests.edge.api_harness import ApiHarness

VERSION = [(b"anthropic-version", b"2023-06-01")]


@pytest.mark.parametrize(
    ("path", "headers", "expected"),
    [
        ("/v1/messages", [], True),
        ("/v1/messages/count_tokens", [], True),
        ("/v1/messages/batches/7", [], True),
        ("/v1/messagesof", [], False),
        ("/v1/models", [], False),
        ("/v1/models", VERSION, True),
        ("/v1/models/mezzo", VERSION, True),
        ("/v1/chat/completions", VERSION, False),
        ("/nowhere", VERSION, False),
    ],
)
def test_requests_for_anthropics_shape(path: str, headers: Any, expected: bool) -> None:
    assert is_for_messages({"path": path, "headers": headers}) == expected


def told(reason: Reason, message: str = "No.") -> Any:
    body, headers = render_error(LegatoError(reason, Sentence.verbatim(message), param="model"), "7")
    assert (b"request-id", b"7") in headers
    error = json.loads(body)["error"]
    assert (error["param"], error["code"]) == ("model", reason.wire.code)
    return error


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (Reason.REQUEST_INVALID, "invalid_request_error"),
        (Reason.KEY_INVALID, "authentication_error"),
        (Reason.CREDITS_EXHAUSTED, "billing_error"),
        (Reason.SPEND_LIMIT_SPENT, "billing_error"),
        (Reason.SCOPE_MISSING, "permission_error"),
        (Reason.MODEL_NOT_FOUND, "not_found_error"),
        (Reason.BODY_TOO_LARGE, "request_too_large"),
        (Reason.RATE_LIMITED, "rate_limit_error"),
        (Reason.SATURATED, "rate_limit_error"),
        (Reason.UPSTREAM_FAILED, "api_error"),
        (Reason.UNAVAILABLE, "api_error"),
    ],
)
def test_types_are_anthropics(reason: Reason, kind: str) -> None:
    assert told(reason)["type"] == kind


def test_a_prompt_that_is_too_long_says_so_in_the_words_that_clients_look_for() -> None:
    assert told(Reason.CONTEXT_EXCEEDED, "It has 9 tokens.")["message"] == "prompt is too long: It has 9 tokens."


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        (Sentence("prompt_leaves_no_room", count=300, most=100), "300 tokens > 100 maximum"),
        # The model has counted more than we did, or has only said that it is too long.
        (Sentence("prompt_leaves_no_room", count=90, most=100), "101 tokens > 100 maximum"),
        (Sentence("prompt_too_long", most=100), "101 tokens > 100 maximum"),
    ],
)
def test_prompt_that_is_too_long_is_told_in_the_words_that_clients_parse(sentence: Sentence, words: str) -> None:
    body, _ = render_error(LegatoError(Reason.CONTEXT_EXCEEDED, sentence), "7")
    assert json.loads(body)["error"]["message"] == f"prompt is too long: {words}"


def test_a_wrong_key_is_not_to_be_tried_again() -> None:
    retry = (b"x-should-retry", b"false")
    assert retry in render_error(LegatoError(Reason.KEY_INVALID, Sentence.verbatim("No.")), "7")[1]
    assert retry not in render_error(LegatoError(Reason.RATE_LIMITED, Sentence.verbatim("No.")), "7")[1]


@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/messages/batches"), ("GET", "/v1/messages")])
async def test_paths_and_methods_that_do_not_exist_are_refused_in_it(method: str, path: str) -> None:
    edge = ApiHarness()
    response = await edge.ask(method, path)
    [line] = edge.lines
    assert response.body["request_id"] == line["request_id"]
    assert response.body["type"] == "error"
    assert (b"request-id", line["request_id"].encode()) in response.headers
