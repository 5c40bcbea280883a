"""The headers of an answer, streamed or whole."""

import pytest

from protos.router.v1.router_pb2 import ChatResponse, Started
from tests.edge.chat_harness import ChatHarness, end, piece, saying


@pytest.mark.parametrize("stream", [True, False])
async def test_model_that_answers_says_what_is_ignored(chat_harness: ChatHarness, stream: bool) -> None:
    """The one before it, which did not answer, took less."""
    started = ChatResponse(started=Started(class_id="forte", max_tokens=5, attempt=2, ignored=["logit_bias"]))
    await chat_harness.add_routers(saying(ChatResponse(ignored=["seed"]), started, piece("Hello", 1), end(1)))
    await chat_harness.chat(stream=stream).run()
    assert chat_harness.headers[b"x-legato-ignored"] == b"logit_bias"
