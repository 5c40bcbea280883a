"""Each dialect of a chat is one folder of bounded size, which nothing below it knows."""

from tests.contracts.product import ROOT, product_modules

DIALECTS = ("messages", "responses")
# Those that say something: blank lines do not count.
MOST_LINES = 900


def test_a_dialect_is_a_folder_of_few_lines() -> None:
    for dialect in DIALECTS:
        texts = [path.read_text() for path in (ROOT / "edge" / dialect).glob("*.py")]
        lines = sum(bool(line.strip()) for text in texts for line in text.splitlines())
        assert texts
        assert lines <= MOST_LINES, dialect


def test_a_dialect_has_its_code_in_its_folder() -> None:
    """Beside it are only what its endpoint is described by, and what chats of all dialects share."""
    shared = [path for path in product_modules() if path.parts[:2] in (("edge", "wire"), ("edge", "http"))]
    known = {path: (ROOT / path).read_text() for path in product_modules() if path.parts[0] == "edge"}
    for path in shared:
        name = ".".join(path.with_suffix("").parts)
        users = {user.parts[1] for user, text in known.items() if f"{name} import" in text and user != path}
        assert not any(users <= {dialect, "api"} and dialect in users for dialect in DIALECTS), path
