"""Servers are told in their own ways that the last message is the beginning of their answer."""

from collections import deque
from dataclasses import replace
from pathlib import Path

import pytest

from services.chassis.telemetry.log import Log
from services.router.prompts.answer_prefix import PrefixStyle
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
        first, second = told.calls
        *before, last = second["messages"]
        assert before == first["messages"]
        assert told.text.startswith(last.pop("content"))
        assert last == {"role": "assistant"} | ({FLAGS[style]: True} if style in FLAGS else {})
        is_by_parameters = style is PrefixStyle.CONTINUE_FINAL_MESSAGE
        parameters = {"continue_final_message": True, "add_generation_prompt": False} if is_by_parameters else {}
        assert {name: second[name] for name in second.keys() - first.keys()} == parameters
        assert second["seed"] == 1
