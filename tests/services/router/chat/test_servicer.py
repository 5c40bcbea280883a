"""The classes that the router offers."""

from pathlib import Path

from legato_protos.router.v1.router_pb2 import ListModelsRequest
from services.chassis.telemetry.log import Log
from services.router.models.recent_speed import LEAST_ANSWERS
from tests.services.router.harness import Router, running_router, target
from tests.support.upstreams.openai import Upstream


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
