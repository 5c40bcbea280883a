"""The number of files that whoever follows a chat through the code has to read."""

from tests.e2e.chats import CHAT
from tests.e2e.harness import ServiceHarness
from tests.e2e.raw_http import post_chat
from tests.support.traced_files import traced_files

PROCESSES = ("edge-1", "router")
MOST_FILES = 55
# The HTTP server, which is the same for every request.
SERVER = "services/chassis/http/"
# Those that only timers reach are not in every one of them.
CHATS = 3


def test_a_streamed_chat_runs_through_few_files_of_the_edge_and_the_router(harness: ServiceHarness) -> None:
    service = harness.service
    api_key = service.new_key(service.new_account())
    process_ids = [service.process_id(process) for process in PROCESSES]
    # What happens at the first chat alone is no part of a chat.
    post_chat(service, api_key, CHAT)
    followed: list[set[str]] = []
    for _ in range(CHATS):
        with traced_files(harness.traces, process_ids) as files:
            assert b"[DONE]" in post_chat(service, api_key, CHAT).body
        ours = {file for file in files if file.startswith(("edge/", "services/"))}
        followed.append({file for file in ours if not file.startswith(SERVER)})
    always = set.intersection(*followed)
    assert {"edge/chat/chat.py", "services/router/answers/relay.py"} <= always
    assert len(always) <= MOST_FILES, "\n".join(sorted(always))
