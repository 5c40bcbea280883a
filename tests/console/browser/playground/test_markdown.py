"""Answers as Markdown: elements that a model cannot make run, load or send anything."""

import re

from playwright.sync_api import Page, Request, expect

from tests.console.browser.api import Api
from tests.console.browser.axe import assert_accessible
from tests.console.browser.conftest import PATIENCE_MS
from tests.console.browser.playground.actions import send, show_all
from tests.console.harness import API_URL

expect.set_options(timeout=PATIENCE_MS)
# What a text may do nothing with: everything that a page could load, run or send.
HOSTILE = """
<img src=x onerror=alert(1)> <script>alert(2)</script> <svg/onload=alert(3)>

[x](javascript:alert(4)) [y](data:text/html,evil) [z](/sign-out) [w](//evil.example) <a href="javascript:alert(5)">v</a>
[u](jAvAsCrIpT:alert(6)) [t](vbscript:x) [s](https://) [r](java\tscript:x) **[q](file:///etc/passwd)**

![picture](https://evil.example/pixel.png) [<img src=y onerror=alert(7)>](https://evil.example/a"onclick=alert(8))

```html" onclick="alert(9)
<iframe src="https://evil.example"></iframe>
```

| <script>alert(10)</script> | b |
|---|---|
| [x](javascript:alert(11)) | `<b>` |

"""
MARKDOWN = """# Title

Some *italic*, **bold**, ***both***, `a <b>`, snake_case_name, 2 * 3 * 4 and \\*escaped\\*.
A second line, https://example.com/a_b_c. Or [the `docs`](https://example.com/docs).

### Deeper

1. First
   - nested **one**
   - nested two

     with a paragraph
2. Second
   ```python
   def f():
   \treturn 1
   ```
- Other list

> Quoted *text*
> > twice

| Left | Right |
|:-----|------:|
| 1 | a \\| b |
| 2 |

---
[mail](mailto:ada@example.com)
```
not closed"""
AS_ELEMENTS = """
<h4>Title</h4>
<p>Some <em>italic</em>, <strong>bold</strong>, <strong><em>both</em></strong>, <code>a &lt;b&gt;</code>,
 snake_case_name, 2 * 3 * 4 and *escaped*.
A second line, <a>https://example.com/a_b_c</a>. Or
 <a>the <code>docs</code></a> <span>(https://example.com/docs)</span>.</p>
<h5>Deeper</h5>
<ol start="1"><li><p>First</p><ul><li><p>nested <strong>one</strong></p></li>
<li><p>nested two</p><p>with a paragraph</p></li></ul></li>
<li><p>Second</p><div><pre><code>def f():
\treturn 1</code></pre><button>Copy</button></div></li></ol>
<ul><li><p>Other list</p></li></ul>
<blockquote><p>Quoted <em>text</em></p><blockquote><p>twice</p></blockquote></blockquote>
<div><table><thead><tr><th scope="col">Left</th><th scope="col">Right</th></tr></thead>
<tbody><tr><td>1</td><td>a | b</td></tr><tr><td>2</td></tr></tbody></table></div>
<hr>
<p><a>mail</a> <span>(mailto:ada@example.com)</span></p>
<div><pre><code>not closed</code></pre><button>Copy</button></div>
"""


def elements_of(page: Page) -> str:
    """Returns the last answer as elements, without what they look like."""
    shown: str = page.locator(".markdown").last.evaluate("(each) => each.innerHTML")
    return re.sub(r' (?:class|href|rel|target|tabindex|role|aria-label|type)="[^"]*"', "", shown)


def test_markdown_becomes_elements_however_it_is_cut(page: Page, api: Api) -> None:
    expected = AS_ELEMENTS.replace("\n ", " ").replace(">\n", ">").strip()
    for size in (1, 7, len(MARKDOWN)):
        api.stream(*(MARKDOWN[at : at + size] for at in range(0, len(MARKDOWN), size)))
        send(page, "Write something.")
        expect(page.get_by_role("button", name="Retry")).to_be_visible()
        assert elements_of(page).replace(">\n", ">") == expected, size
        page.get_by_role("button", name="Clear").click()
    links = "(each) => [each.getAttribute('href'), each.rel, each.target]"
    api.stream(MARKDOWN)
    send(page, "Write something.")
    expect(page.get_by_role("button", name="Retry")).to_be_visible()
    link = page.get_by_role("link", name="the docs")
    assert link.evaluate(links) == ["https://example.com/docs", "noopener noreferrer", "_blank"]
    show_all(page)
    assert_accessible(page)
    plain = page.get_by_label("Plain text")
    plain.check()
    assert page.locator(".turn.assistant .prose").text_content() == MARKDOWN
    plain.uncheck()
    assert elements_of(page).replace(">\n", ">") == expected


def test_a_model_can_make_the_page_run_load_and_send_nothing(page: Page, api: Api) -> None:
    asked: list[str] = []

    def note(request: Request) -> None:
        asked.append(request.url)

    page.on("request", note)
    api.stream(*HOSTILE)
    send(page, HOSTILE)
    turns = page.get_by_role("log")
    expect(turns).to_contain_text("Cost $0.00002")
    for shown in ("<img src=x onerror=alert(1)>", "<script>alert(2)</script>", "[x](javascript:alert(4))"):
        expect(turns.locator(".markdown")).to_contain_text(shown)
    assert turns.locator("img, script, iframe, svg, style, object, embed, form, meta, link, base").count() == 0
    attributes = "(all) => all.flatMap((each) => [...each.attributes].map((attribute) => attribute.name))"
    names: list[str] = turns.locator(".markdown *").evaluate_all(attributes)
    expected = {"class", "href", "rel", "target", "tabindex", "role", "aria-label", "type", "scope"}
    assert set(names) == expected
    leads = turns.locator("a").evaluate_all("(all) => all.map((each) => each.href)")
    assert [each for each in leads if not each.startswith(("https://evil.example/", page.url.rpartition("/")[0]))] == []
    # A link says where it leads.
    expect(turns).to_contain_text("picture (https://evil.example/pixel.png)")
    own = (API_URL, page.url.rpartition("/")[0])
    assert [url for url in asked if not url.startswith(own)] == []


def test_long_blocks_are_drawn_seldom_and_hostile_ones_quickly(page: Page, api: Api) -> None:
    """Every piece would be drawn at once: it is the page that waits until there is enough to draw."""
    page.evaluate(
        """() => {
          window.drawn = 0;
          window.requestAnimationFrame = (draw) => { draw(); return 0; };
          const create = document.createElement.bind(document);
          document.createElement = (name) => { window.drawn += name === "p"; return create(name); };
        }"""
    )
    api.stream(*["word "] * 4_000)
    send(page, "Go on.")
    expect(page.get_by_role("button", name="Retry")).to_be_visible()
    assert page.evaluate("window.drawn") < 500
    page.get_by_role("button", name="Clear").click()
    unclosed = ("*a **b " * 3_000, "> " * 20_000, "- " * 20_000, "[a](" * 9_000, "`` ` " * 5_000, "_a " * 9_000)
    api.stream("\n\n".join(unclosed))
    send(page, "Go on.")
    expect(page.get_by_role("button", name="Retry")).to_be_visible()
    assert "[a](" in page.get_by_role("log").inner_text()


def test_code_is_copied(page: Page, api: Api) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    api.stream("```python\nprint(1)\n\n  # two\n```\n")
    send(page, "Code, please.")
    copy = page.get_by_role("log").get_by_role("button", name="Copy")
    copy.click()
    expect(page.get_by_role("log").get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "print(1)\n\n  # two"
