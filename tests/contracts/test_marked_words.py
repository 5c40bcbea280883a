"""Every word that a page of the console shows is marked for translation, and every figure is written by a filter."""

import ast
import re
from html.parser import HTMLParser

from console.web.assets import Assets
from console.web.rendering import FOLDER as TEMPLATES
from console.web.rendering import new_environment
from tests.console.messages import MARKS
from tests.contracts.product import ROOT

ENVIRONMENT = new_environment(Assets())
PAGES = sorted(TEMPLATES.glob("*.html"))
# Metrics, and programs for users to copy, speak English.
ENGLISH = {
    "console/display/snippets.py",
    "console/web/capacity.py",
    "console/web/metrics.py",
    "console/web/request_limit.py",
}
MODULES = [
    path
    for name in ("account", "display", "pages", "web")
    for path in sorted((ROOT / "console" / name).rglob("*.py"))
    if str(path.relative_to(ROOT)) not in ENGLISH
]
# Functions and macros whose texts are marked, or are for programs.
UNSHOWN = {
    *MARKS, "Counter", "OutcomeSum", "TypeVar", "ValueError", "cli", "command", "compile", "live", "open_stream",
    "unavailable",
}  # fmt: skip
# Proper names, keys of figures, and an example for a model.
NAMES = {
    "Android", "Chrome", "ChromeOS", "Edge", "English", "Firefox", "Linux", "Mac OS X", "Node", "Opera", "Python",
    "Safari", "Windows", "failed pages", " failed pages", "The weather of a city, now.",
}  # fmt: skip
# In place of what a template computes.
COMPUTED = "\0"
# Names and units that are the same in both languages, and the brand.
NO_WORDS = re.compile(
    r"\b(?:Legato|Stripe|GitHub|UTC|API|CSV|JSON|SVG|ID|p\d\d|ms|HMAC|HTTP|URL|PDF|g|s|auto|JavaScript|Ada|Acme)\b"
)
WORD = re.compile(r"[^\W\d_]")
SHOWN_ATTRIBUTES = {"alt", "aria-label", "aria-description", "placeholder", "title"}
# Their texts are commands, names of keys and addresses.
LITERAL_TAGS = {"code", "kbd", "pre", "samp", "script", "style"}
VOID_TAGS = {"br", "hr", "img", "input", "link", "meta", "path", "circle", "line", "rect"}
# A text for people begins with a capital letter and goes on in small ones, or has several words.
FOR_PEOPLE = re.compile(r"[A-Z][a-z]+(?: .*|[.:]?)|.*[^\W\d_]{2,},? [^\W\d_]{2,}.*", re.DOTALL)
FIGURE = re.compile(r"""\{:[^}]*[,f][^}]*\}|%\.\d+f|\$\{\{|"\$" ~""")


class TextNodes(HTMLParser):
    """Gathers what a template shows without computing it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        shown = SHOWN_ATTRIBUTES | (
            {"value"} if tag == "input" and given.get("type") in ("submit", "button") else set()
        )
        shown |= {name for name in given if name.startswith("data-") and " " in (given[name] or "")}
        self.found += [value for name, value in given.items() if name in shown and value]
        if tag not in VOID_TAGS:
            self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        # Branches of a template may open a tag twice, or close it twice.
        if tag in self._inside:
            while self._inside.pop() != tag:
                pass

    def handle_data(self, text: str) -> None:
        if not LITERAL_TAGS & set(self._inside):
            self.found.append(text)


def unmarked_in_template(source: str) -> list[str]:
    nodes = TextNodes()
    page, literals = _parts(source)
    nodes.feed(page)
    texts = [text for node in nodes.found for text in node.split(COMPUTED)]
    return [text.strip() for text in texts if _has_words(text)] + literals


def _parts(source: str) -> tuple[str, list[str]]:
    """Returns a template without what it computes, and texts for people among the literals of what it does."""
    page, literals = [], []
    code: list[str] = []
    is_translated = False
    for _line, kind, value in ENVIRONMENT.lex(source):
        if kind == "data":
            page += [] if is_translated else [value]
        elif kind in ("variable_begin", "block_begin"):
            code = []
        elif kind in ("variable_end", "block_end"):
            words = [value for value in code if value.strip()]
            is_translated = words[:1] == ["trans"] or (is_translated and words[:1] != ["endtrans"])
            page.append(COMPUTED)
            literals += (
                [] if words[:1] in (["extends"], ["import"], ["include"], ["from"]) else _unmarked_literals(words)
            )
        elif kind not in ("comment_begin", "comment", "comment_end"):
            code.append(value)
    return "".join(page), literals


def _unmarked_literals(code: list[str]) -> list[str]:
    found = []
    # The functions whose arguments are open, by their names.
    calls: list[str] = []
    for place, value in enumerate(code):
        if value == "(":
            calls.append(code[place - 1] if place else "")
        elif value == ")" and calls:
            calls.pop()
        elif value[0] in "\"'" and not UNSHOWN & set(calls) and FOR_PEOPLE.fullmatch(value[1:-1]):
            is_key = (
                code[place + 1 : place + 2] == [":"]
                or code[place + 1 : place + 2] == ["]"]
                or code[place - 1] in ("==", "!=")
            )
            found += [] if is_key or not _has_words(value) else [value]
    return found


def _has_words(text: str) -> bool:
    return WORD.search(NO_WORDS.sub("", text)) is not None


def unmarked_in_module(source: str) -> list[str]:
    """Returns texts for people among the literals of a module."""
    tree = ast.parse(source)
    passed = {each for node in ast.walk(tree) for part in _for_programs(node) for each in ast.walk(part)}
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node not in passed)
    texts = [node.value for node in constants if isinstance(node.value, str) and node.value not in NAMES]
    return [text for text in texts if FOR_PEOPLE.fullmatch(text) and "<" not in text and _has_words(text)]


def _for_programs(node: ast.AST) -> list[ast.AST]:
    """Returns the parts of a node whose texts no visitor reads, and those that are marked."""
    match node:
        case ast.Call(func=function) if ast.unparse(function).rpartition(".")[2] in UNSHOWN or ".log." in ast.unparse(
            function
        ):
            return [node]
        case ast.Expr(value=ast.Constant()):
            return [node]
        case ast.Dict(keys=keys):
            return [key for key in keys if key is not None]
        case ast.Subscript(slice=key):
            return [key]
        case ast.arg(annotation=ast.expr() as annotation) | ast.AnnAssign(annotation=annotation):
            return [annotation]
        case ast.FunctionDef(returns=ast.expr() as annotation) | ast.AsyncFunctionDef(returns=ast.expr() as annotation):
            return [annotation]
    return []


def figures_in_module(source: str) -> list[str]:
    """Returns the numbers that a module writes with separators of its own."""
    values = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FormattedValue) and node.format_spec)
    return [unparsed for unparsed in map(ast.unparse, values) if re.search(r":[^{}]*[,f][^{}]*}", unparsed)]


def test_templates_mark_their_words() -> None:
    found = {path.name: unmarked_in_template(path.read_text()) for path in PAGES}
    assert {name: texts for name, texts in found.items() if texts} == {}


def test_modules_of_pages_mark_their_words() -> None:
    found = {str(path.relative_to(ROOT)): unmarked_in_module(path.read_text()) for path in MODULES}
    assert {name: texts for name, texts in found.items() if texts} == {}


def test_templates_write_figures_by_filters() -> None:
    found = {path.name: FIGURE.findall(path.read_text()) for path in PAGES}
    assert {name: texts for name, texts in found.items() if texts} == {}


def test_modules_write_figures_by_functions() -> None:
    written = {str(path.relative_to(ROOT)): figures_in_module(path.read_text()) for path in MODULES}
    found = {name: texts for name, texts in written.items() if texts}
    assert set(found) <= {"console/display/language.py", "console/display/words.py"}, found


def test_words_that_are_not_marked_are_found() -> None:
    template = """<title>{{ _("Keys") }}</title><p title="No">{% trans %}Yes{% endtrans %} <code>GET /v1</code> and
    {{ m.field("name", "Your name", value=ngettext("a key", "%(num)s keys", 2)) }}{% if kind == "Grant" %}5{% endif %}
    """
    assert unmarked_in_template(template) == ["No", "and", '"Your name"']
    module = """'Does it.'
words: "Any" = {"One": "Two words", "b": N_("Three words")}
words["More words"] = f"{x:,} requests left", f"{y:02d}"
"""
    assert unmarked_in_module(module) == ["Two words", " requests left"]
    assert figures_in_module(module) == ["{x:,}"]
