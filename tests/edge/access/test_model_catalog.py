"""The models that exist for a key: those that it may use."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

import pytest

from edge.access.model_catalog import ModelCatalog
from legato_protos.router.v1 import router_pb2 as router
from services.chassis.errors import LegatoError, Reason
from tests.edge.metering_harness import ANN


class OneRouter:
    """A router, as far as its list of models goes."""

    def least_loaded(self) -> "OneRouter":
        return self

    @property
    def stub(self) -> "OneRouter":
        return self

    async def ListModels(self, request: Any, timeout: float) -> router.ListModelsResponse:
        return router.ListModelsResponse(
            models=[router.Model(model_id=model_id) for model_id in ("auto", "mezzo", "forte", "fortissimo")]
        )


@pytest.fixture
async def models() -> AsyncIterator[ModelCatalog]:
    models = ModelCatalog(cast(Any, OneRouter()))
    refreshing = asyncio.create_task(models.keep_fresh())
    await models.known()
    yield models
    refreshing.cancel()


def listed(models: ModelCatalog, *allowed: str) -> list[str]:
    principal = replace(ANN, allowed_classes=frozenset(allowed))
    return [*models.usable(principal)]


async def test_a_key_sees_the_classes_that_it_may_use_and_auto(models: ModelCatalog) -> None:
    assert [*models.usable(ANN)] == ["auto", "mezzo", "forte", "fortissimo"]
    assert listed(models, "fortissimo", "mezzo") == ["auto", "mezzo", "fortissimo"]
    assert listed(models, "forte") == ["auto", "forte"]
    assert listed(models) == []


@pytest.mark.parametrize("allowed", [["mezzo"], []])
async def test_other_classes_are_refused_in_the_words_for_unknown_ones(
    models: ModelCatalog, allowed: list[str]
) -> None:
    principal = replace(ANN, allowed_classes=frozenset(allowed), preferred_class="mezzo")
    refusals = []
    for model_id in ("forte", "gpt-4"):
        with pytest.raises(LegatoError) as looked_up:
            models.find(model_id, principal)
        with pytest.raises(LegatoError) as asked:
            models.class_for(model_id, principal)
        refusals.append([(each.value.reason, each.value.message, each.value.param) for each in (looked_up, asked)])
    assert refusals[0] == refusals[1]
    assert [reason for reason, *_ in refusals[0]] == [Reason.MODEL_NOT_FOUND, Reason.MODEL_UNKNOWN]
    assert "forte" not in str(refusals)


async def test_auto_is_what_auth_says_and_refused_where_nothing_is_allowed(models: ModelCatalog) -> None:
    narrowed = replace(ANN, allowed_classes=frozenset({"mezzo"}), preferred_class="mezzo")
    assert models.class_for("auto", narrowed) == "mezzo"
    assert models.find("auto", narrowed).model_id == "auto"
    nothing = replace(ANN, allowed_classes=frozenset(), preferred_class="forte")
    with pytest.raises(LegatoError) as refused:
        models.class_for("auto", nothing)
    assert refused.value.reason is Reason.MODEL_UNKNOWN
