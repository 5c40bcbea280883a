"""Asks a model one short question, always the same, to see whether it answers: for no account, and outside the states
of the models that serve. What it answers is counted and thrown away."""

from dataclasses import dataclass
from typing import Final

from services.chassis.timing.deadlines import Clock, TimeLimit
from services.router.providers.base import ProviderCall, ProviderError, ProviderTimedOut
from services.router.routing.model_states import OpenProvider
from services.router.routing.routes import Routes
from services.router.schema.messages import read_messages
from services.router.schema.parameters import NO_PARAMETERS
from services.router.schema.tools import NO_TOOLS

QUESTION: Final = b'[{"role": "user", "content": "Answer with the word yes."}]'
# Some think before the word.
MOST_TOKENS: Final = 256
TRIAL_WITHIN_S: Final = 20.0


@dataclass(slots=True)
class Trial:
    # Why there was no answer, in our own words.
    failure: str = ""
    http_status: int | None = None
    first_token_s: float = 0.0
    duration_s: float = 0.0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


async def try_model(routes: Routes, model: str, open_provider: OpenProvider, clock: Clock) -> Trial:
    """Asks a model of these routes, which need not be in use."""
    target = routes.models[model]
    provider = open_provider(routes.described_providers[target.provider], target.timeouts)
    messages, trial, began_s = await read_messages(QUESTION), Trial(), clock.elapsed_s()
    most_tokens = min(MOST_TOKENS, target.max_output_tokens)
    call = ProviderCall(target.model_name, messages, NO_TOOLS, NO_PARAMETERS, most_tokens, stream=True)
    pieces = provider.answer(call)
    try:
        with TimeLimit(TRIAL_WITHIN_S, ProviderTimedOut()):
            async for piece in pieces:
                trial.first_token_s = trial.first_token_s or clock.elapsed_s() - began_s
                if piece.usage is not None:
                    trial.prompt_tokens = piece.usage.prompt_tokens
                    trial.completion_tokens = piece.usage.completion_tokens
    except ProviderError as error:
        trial.failure, trial.http_status = error.what, error.http_status
    finally:
        await pieces.aclose()
        await provider.aclose()
    trial.duration_s = clock.elapsed_s() - began_s
    return trial
