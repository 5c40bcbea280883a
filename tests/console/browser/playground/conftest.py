"""Opens the playground of an account that has a charge, with an API that answers as it is told."""

import pytest
from playwright.sync_api import Page

from services.rules.usage import Usage
from tests.console.browser.api import Api
from tests.console.browser.conftest import OpenPage
from tests.console.clock import NOW_US
from tests.console.harness import ConsoleHarness
from tests.console.metering import charge_of, settled


@pytest.fixture
def page(console: ConsoleHarness, open_page: OpenPage) -> Page:
    """The playground, of an account that is charged for the first two requests."""
    usages = Usage(prompt_tokens=20, completion_tokens=5), Usage(prompt_tokens=40)
    holds = [
        settled(number, usage, NOW_US, "key_0000000000000001", class_id="forte")
        for number, usage in enumerate(usages, 1)
    ]
    console.metering.write([charge_of(each) for each in holds], holds)
    return open_page("/playground")


@pytest.fixture
def api(page: Page) -> Api:
    return Api(page)
