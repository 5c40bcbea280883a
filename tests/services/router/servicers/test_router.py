"""The classes that the router offers."""

from legato_protos.router.v1.router_pb2 import ListModelsRequest
from tests.services.router.harness import Router


async def test_classes_are_listed_and_the_reserved_one_is_not(router: Router) -> None:
    models = (await router.stub.ListModels(ListModelsRequest())).models
    assert [model.model_id for model in models] == ["auto", "mezzo", "forte", "fortissimo"]
    assert {model.owner for model in models} == {"legato"}
    assert all(model.create_time.seconds > 1_700_000_000 for model in models)
    assert not any(model.is_bundled for model in models)
