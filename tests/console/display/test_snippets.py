"""Programs for a first request."""

from console.display.snippets import snippets


def test_examples_have_the_address_and_the_key() -> None:
    for snippet in snippets("https://api.example.ca/v1", "sk-legato-1"):
        assert "https://api.example.ca/v1" in snippet.text
        assert "sk-legato-1" in snippet.text
    compile(snippets("https://api.example.ca/v1")[1].text, "snippet", "exec")
