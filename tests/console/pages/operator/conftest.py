import pytest

from tests.console.harness import ConsoleHarness


@pytest.fixture
def session(console: ConsoleHarness) -> str:
    """The session of an operator, of a service with accounts, users and busy processes."""
    console.auth.be_operator()
    console.backends.fill_operator()
    return console.auth.sign_in()
