"""The short form of the campaign of one account against the others."""

import pytest

from services.chassis.load.prompt_memory import LEAST_PROMPT_BYTES
from tests.campaigns.overload.shares import running_campaign


@pytest.mark.long
async def test_account_that_wants_everything_leaves_memory_and_connections_to_others() -> None:
    """Runs with the manifests' limit on the memory of edge and router."""
    async with running_campaign({"LEGATO_PROMPT_BYTES": str(LEAST_PROMPT_BYTES)}) as campaign:
        await campaign.send_prompts(prompts=24, prompt_bytes=2_500_000)
        await campaign.take_places()
        assert campaign.violations == []
