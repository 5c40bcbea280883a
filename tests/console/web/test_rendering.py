"""Templates, as the environment of the console renders them."""

import pytest

from console.web.assets import Assets
from console.web.rendering import new_environment


@pytest.mark.usefixtures("french")
def test_a_constant_figure_is_written_in_the_language_of_the_visit() -> None:
    template = new_environment(Assets()).from_string("{{ 0 | usd }}, {{ 1234 | number }}")
    assert template.render() == '<data value="0.00">0,00\N{NO-BREAK SPACE}$</data>, 1\N{NO-BREAK SPACE}234'
