"""Servers are told in their own ways that the last message is the beginning of their answer."""

from collections import deque
from dataclasses import replace
from pathlib import Path

import pytest

from services.chassis.telemetry.log import Log
from services.router.prompts.answer_prefix import PrefixStyle
from services.router.prompts.tokens import count
from tests.services.router.harness import running_router, target
from tests.support.upstreams.continuing import ContinuingUpstream, Cut, Script

FLAGS = {PrefixStyle.PREFIX: "prefix", PrefixStyle.REPEATED_PREFIX: "prefix", PrefixStyle.PARTIAL: "partial"}


@pytest.mark.parametrize("style", PrefixStyle)
async def test_server_is_told_in_its_own_way_that_the_answer_has_begun(
    style: PrefixStyle, socket_folder: Path, log: Log
) -> None:
    # The second is cut where what follows begins like all of it.
    for texts, share in ((["Once", " upon", " a ", "\ntime"], 0.8), (["ha", " ", "ha ", "ha!"], 0.7)):
        told = Script(texts, cuts=deque([Cut("closed", share)]), repeats=style is PrefixStyle.REPEATED_PREFIX)
        async with (
            ContinuingUpstream(told) as upstream,
            running_router(
                socket_folder, log, {target("first"): upstream, replace(target("second"), continues=style): upstream}
            ) as router,
        ):
            answer = await router.ask(parameters_json=b'{"seed":1}', max_tokens=100)
            assert answer.text == told.text
            # Also where the server sends the beginning once more.
            assert answer.finished.usage.completion_tokens == count(told.text)
        first, second = told.calls
        *before, last = second["messages"]
        assert before == first["messages"]
        assert told.text.startswith(last.pop("content"))
        assert last == {"role": "assistant"} | ({FLAGS[style]: True} if style in FLAGS else {})
        is_by_parameters = style is PrefixStyle.CONTINUE_FINAL_MESSAGE
        parameters = {"continue_final_message": True, "add_generation_prompt": False} if is_by_parameters else {}
        assert {name: second[name] for name in second.keys() - first.keys()} == parameters
        assert second["seed"] == 1


async def test_answer_that_has_begun_is_not_thought_about_again(socket_folder: Path, log: Log) -> None:
    for effort, sent in ((b"high", None), (b"none", "none")):
        told = Script(["Once", " upon", " a time"], cuts=deque([Cut("closed", 0.5)]))
        second = replace(target("second"), continues=PrefixStyle.PREFIX)
        async with (
            ContinuingUpstream(told) as upstream,
            running_router(socket_folder, log, {target("first"): upstream, second: upstream}) as router,
        ):
            await router.ask(parameters_json=b'{"reasoning_effort":"%s"}' % effort)
        assert [call.get("reasoning_effort") for call in told.calls] == [effort.decode(), sent]
