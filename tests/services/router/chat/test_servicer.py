"""The classes that the router offers, and the size of prompts."""

import json
from pathlib import Path

import grpc
import pytest

from legato_protos.router.v1.router_pb2 import ChatOpen, CountTokensRequest, ListModelsRequest
from services.chassis.telemetry.log import Log
from services.router.models.recent_speed import LEAST_ANSWERS
from tests.services.router.harness import Router, running_router, target
from tests.support.upstreams.openai import Reply, Upstream


async def test_classes_are_listed_and_the_reserved_one_is_not(router: Router) -> None:
    models = (await router.stub.ListModels(ListModelsRequest())).models
    assert [model.model_id for model in models] == ["auto", "mezzo", "forte", "fortissimo"]
    assert {model.owner for model in models} == {"legato"}
    assert all(model.create_time.seconds > 1_700_000_000 for model in models)
    assert not any(model.is_bundled for model in models)


async def test_a_class_has_the_largest_window_and_answer_of_its_models_and_its_speed(
    log: Log, socket_folder: Path, upstream: Upstream
) -> None:
    targets = {target("small", 8_000, 4_000): upstream, target("large", 200_000, 2_000): upstream}
    async with running_router(socket_folder, log, targets) as router:
        auto, _mezzo, forte, _fortissimo = (await router.stub.ListModels(ListModelsRequest())).models
        assert (auto.context_tokens, auto.HasField("speed")) == (0, False)
        assert (forte.context_tokens, forte.max_output_tokens) == (200_000, 4_000)
        assert not forte.HasField("speed")
        for _ in range(LEAST_ANSWERS):
            await router.ask()
        forte = (await router.stub.ListModels(ListModelsRequest())).models[2]
        assert forte.speed.answers == LEAST_ANSWERS
        assert forte.speed.median_first_token_s > 0


async def test_a_prompt_is_counted_as_its_model_counts_and_not_sent(router: Router, upstream: Upstream) -> None:
    messages_json = json.dumps([{"role": "user", "content": "Will it rain in Paris? " * 100}]).encode()
    request = CountTokensRequest(chat=ChatOpen(account_id="acct_1", model="forte", messages_json=messages_json))
    counted = (await router.stub.CountTokens(request)).tokens
    assert counted > 500
    assert upstream.requests == []
    upstream.replies.append(Reply(usage={"prompt_tokens": 2 * counted, "completion_tokens": 1}))
    await router.ask(messages_json, model="forte")
    assert (await router.stub.CountTokens(request)).tokens == pytest.approx(2 * counted, abs=1)


async def test_a_prompt_of_no_class_or_without_messages_is_refused(router: Router) -> None:
    for chat in (ChatOpen(model="gpt-9", messages_json=b"[]"), ChatOpen(model="forte", messages_json=b"[]")):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await router.stub.CountTokens(CountTokensRequest(chat=chat))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
