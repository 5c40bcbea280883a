"""OpenAI's Responses API: alone, or for what a model refuses over chat completions."""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from services.router.providers.abilities import Abilities
from services.router.providers.answer import ProviderAnswer
from services.router.providers.base import Failure, Piece, ProviderCall, ProviderError, ProviderRoute, Timeouts
from services.router.providers.errors.error_body import ErrorBody
from services.router.providers.errors.lessons import ONE_API, OPENAI, RESPONSES, learn
from services.router.providers.openai.known_hosts import host_of
from services.router.providers.openai.parameters import adapt
from services.router.providers.openai.provider import OpenAIProvider
from services.router.providers.responses.answer import REFUSED_ITEMS, ItemsRefused, ResponseAnswer
from services.router.providers.responses.request import write_request
from services.router.reasoning.restoring import NOTHING, TakenBack
from services.router.schema.parameters import Parameters
from services.router.schema.thoughts import ResponsesReasoning

_NOT_FOUND: Final = 404
# Where Azure has one deployment, whose Responses are where it has those of all.
_DEPLOYMENT: Final = re.compile(r"/openai/deployments/(?P<name>[^/]+)")
_AZURE_PATH: Final = "/openai/v1/responses"
_VERSION_PARAMETER: Final = "api-version="
# Azure's word for items without ids.
_IDS_MISSING: Final = "invalid_payload"


class ResponsesProvider(OpenAIProvider):
    """Asks a model over Responses, and over chat completions if the route has both and the model takes the request
    there: tools beside reasoning it may take over Responses alone."""

    kind = "responses"
    answer_type = ResponseAnswer
    lessons = (*ONE_API, *RESPONSES, *OPENAI)
    # One for the other API, and those of each.
    most_lessons = 5
    flags = ("prompt_cache_key", "always_max_tokens", "allowed_tools", "custom_tools", "reasoning_back")

    def __init__(self, route: ProviderRoute, timeouts: Timeouts) -> None:
        super().__init__(route, timeouts)
        # Other servers may not know them.
        self._has_phases = host_of(route.base_url).api == "auto"
        deployment = _DEPLOYMENT.fullmatch(self._base_path)
        self._deployment = deployment["name"] if deployment is not None else ""
        self._responses_path = _AZURE_PATH if self._deployment else f"{self._base_path}/responses"

    def _is_over_responses(self, call: ProviderCall) -> bool:
        if self._route.api != "auto":
            return True
        if call.takes.api:
            return call.takes.api == "responses"
        return call.takes.tools_without_reasoning and bool(call.tools.json)

    def takes_back(self, model_name: str) -> TakenBack:
        taken = super().takes_back(model_name)
        if taken is NOTHING:
            return taken
        if self._route.api != "auto":
            return replace(taken, kinds=(ResponsesReasoning,), clients_kinds=())
        return replace(taken, kinds=(*taken.kinds, ResponsesReasoning))

    def _answer_type(self, call: ProviderCall) -> type[ProviderAnswer]:
        return ResponseAnswer if self._is_over_responses(call) else super()._answer_type(call)

    def _path(self, call: ProviderCall) -> str:
        return self._responses_path if self._is_over_responses(call) else super()._path(call)

    def _with_query(self, path: str) -> str:
        if not self._deployment or path != _AZURE_PATH:
            return super()._with_query(path)
        # The version is that of the deployment's address.
        others = "&".join(pair for pair in self._query.split("&") if not pair.startswith(_VERSION_PARAMETER))
        return f"{path}?{others}" if others else path

    def _adapted(self, call: ProviderCall, parameters: Parameters) -> Parameters:
        if not self._is_over_responses(call):
            return super()._adapted(call, parameters)
        return adapt(call, parameters, takes_reasoning=False, reasons_beside_tools=True)

    def _write_body(self, call: ProviderCall) -> bytes:
        if not self._is_over_responses(call):
            return super()._write_body(call)
        tools = call.tools if self._route.allowed_tools else call.tools.without_others()
        if not self._takes_custom_tools(call):
            tools = tools.as_functions()
        written = replace(call, tools=tools, model_name=self._deployment or call.model_name)
        return write_request(
            written,
            self._extra,
            self._cache_key(call),
            has_phases=self._has_phases,
            takes_back=self._route.reasoning_back,
        )

    def _learn(self, call: ProviderCall, refusal: ErrorBody, error: ProviderError) -> Abilities | None:
        is_missing = error.http_status == _NOT_FOUND
        if error.failure is not Failure.REFUSED and not is_missing:
            return None
        takes = call.takes
        if self._is_over_responses(call):
            may_have_chat = self._route.api == "auto" and takes.api != "responses"
            if is_missing and may_have_chat and not REFUSED_ITEMS.is_in(refusal):
                # Older addresses of Azure have chat completions alone.
                return replace(takes, api="chat")
            is_without_ids = call.messages.thoughts and takes.past_reasoning == "all"
            if is_without_ids and _IDS_MISSING in refusal.codes:
                return replace(takes, past_reasoning="with_ids")
        return learn(takes, refusal, self.lessons)

    def _leaves_out(self, call: ProviderCall, refusal: ErrorBody, error: ProviderError) -> bool:
        is_about_items = REFUSED_ITEMS.is_in(refusal) or _IDS_MISSING in refusal.codes
        is_refused = error.failure is Failure.REFUSED or error.http_status == _NOT_FOUND
        if not (call.messages.thoughts and is_refused and is_about_items):
            return False
        call.messages = replace(call.messages, thoughts={})
        return True

    def answer(self, call: ProviderCall) -> AsyncGenerator[Piece, None]:
        return self._answer_with_thoughts(call) if call.messages.thoughts else super().answer(call)

    async def _answer_with_thoughts(self, call: ProviderCall) -> AsyncGenerator[Piece, None]:
        """Yields the answer to a call with reasoning of earlier turns, or to one without if that is refused in place of
        an answer. A client sends the same in every later turn, which would be refused as well."""
        without: ProviderCall | None = replace(call, messages=replace(call.messages, thoughts={}))
        answer = super().answer(call)
        # Both refer to the prompt, which is not needed once the answer has begun.
        del call
        try:
            async with aclosing(answer) as pieces:
                async for piece in pieces:
                    without = None
                    yield piece
            return
        except ItemsRefused:
            if without is None:
                raise
        answer = super().answer(without)
        del without
        async with aclosing(answer) as pieces:
            async for piece in pieces:
                yield piece
