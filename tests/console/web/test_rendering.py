"""Templates, as the environment of the console renders them."""

from console.display.language import ENGLISH, speak
from console.web.assets import Assets
from console.web.rendering import new_environment


def test_a_constant_figure_is_written_in_the_language_of_the_visit() -> None:
    # Templates are compiled before there is a visit, in English.
    template = new_environment(Assets()).from_string("{{ 0 | usd }}, {{ 1234 | number }}")
    speak("fr")
    try:
        written = template.render()
    finally:
        speak(ENGLISH)
    assert written == '<data value="0.00">0,00\N{NO-BREAK SPACE}$</data>, 1\N{NO-BREAK SPACE}234'
