"""Static files come with what they import, and all scripts together are small."""

from pathlib import Path

from console.web.assets import Assets

LARGEST_SCRIPTS_BYTES = 16_000


def test_a_script_comes_with_the_modules_that_it_imports_each_once(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "page.js").write_text(
        "// Says a word.\n\n"
        'import { say } from "./parts/say.js";\nimport { word } from "./parts/word.js";\n\nsay(word);\n'
    )
    (tmp_path / "parts" / "say.js").write_text(
        'import { word } from "./word.js";\n\n'
        "export function say(text) {\n  // To the log.\n  console.log(text, word);\n}\n"
    )
    (tmp_path / "parts" / "word.js").write_text('export const word = "https://example.com";\n')
    assets = Assets(tmp_path)
    page = assets.find(assets.path_of("page.js"))
    assert page is not None
    assert page.content.decode().splitlines() == [
        'const word = "https://example.com";',
        "function say(text) {",
        "console.log(text, word);",
        "}",
        "say(word);",
    ]


def test_all_scripts_together_are_small() -> None:
    assert sum(len(asset.compressed) for asset in Assets().all() if asset.path.endswith(".js")) < LARGEST_SCRIPTS_BYTES
