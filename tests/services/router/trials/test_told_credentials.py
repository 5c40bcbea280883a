"""What operators are told of credentials that cannot be renewed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest

from legato_protos.router.v1.router_pb2 import ListTargetsRequest
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from services.chassis.timing.deadlines import SystemClock
from services.router.metrics import show_keys
from services.router.models.states import ModelStates
from services.router.providers import open_provider
from services.router.providers.authentication.client_credentials import ClientCredentials
from services.router.providers.authentication.secret import Secret
from services.router.providers.base import ProviderRoute, Timeouts
from services.router.routes.key_watch import KeyWatch
from services.router.routes.reload import Reload
from services.router.routes.routes import Routes
from services.router.routes.target import Target
from services.router.trials.canary import Canaries
from services.router.trials.outcomes import OutcomesByClass
from services.router.trials.servicer import RouteAdminServicer
from services.rules.model_classes import CLASSES
from tests.services.router.harness import in_tiers
from tests.support.upstreams.token_server import CLIENT_ID, CLIENT_SECRET, TokenReply, TokenServer


@pytest.fixture
async def tokens() -> AsyncIterator[TokenServer]:
    async with TokenServer() as tokens:
        yield tokens


@pytest.fixture
async def model_states(tokens: TokenServer, log: Log, tmp_path: Path) -> AsyncIterator[ModelStates]:
    tokens.replies.append(TokenReply(500, "canary of an answer"))
    client = ClientCredentials(tokens.entra_url, CLIENT_ID, client_secret=Secret(value=CLIENT_SECRET))
    route = ProviderRoute("cloud", "openai", "http://127.0.0.1:9/v1", credentials=client)
    model = Target("cloud", "chat", 1000, 100)
    classes = dict.fromkeys(CLASSES, in_tiers({model: 1}))
    open_one = partial(open_provider, local_model_socket=tmp_path / "no-model.sock")
    model_states = ModelStates(Routes({"cloud": route}, classes), open_one, SystemClock(), log)
    yield model_states
    await model_states.aclose()


async def test_operator_is_told_why_credentials_are_not_renewed(
    model_states: ModelStates, log: Log, log_text: Callable[[], str], tmp_path: Path
) -> None:
    registry, provider = Registry(), {"gen_ai_provider_name": "cloud"}
    show_keys(model_states, KeyWatch(model_states, log), registry)
    reload = Reload(tmp_path / "routes.toml", Timeouts(), model_states, log)
    servicer = RouteAdminServicer(model_states, reload, OutcomesByClass(), Canaries(log))
    async with asyncio.timeout(60):
        # The log says it last.
        while "has no valid credentials: 127.0.0.1 answered with status 500" not in log_text():
            await asyncio.sleep(0.01)
    listed = await servicer.ListTargets(ListTargetsRequest(), None)  # type: ignore[arg-type]
    assert listed.targets[0].credentials == f"client_credentials {CLIENT_ID} at 127.0.0.1"
    assert listed.targets[0].credentials_failure == "127.0.0.1 answered with status 500"
    assert registry.get_sample_value("legato_provider_key_usable", provider) == 0
    assert "canary" not in log_text() + str(listed)
