import pytest

from tests.console.harness import ConsoleHarness


@pytest.fixture
def session(console: ConsoleHarness) -> str:
    """The session of an operator, of a service with accounts, users and busy processes."""
    console.fakes.is_operator = True
    console.fakes.operator.fill()
    return console.fakes.sign_in()
