"""Measures of the source tree count what they say, on trees that a test writes."""

import subprocess
from pathlib import Path

import pytest

from tests.contracts import measures
from tests.contracts.product import ROOT


def written(tree: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tree


def test_only_attributes_of_other_objects_are_foreign() -> None:
    own = ["self.x = 1", "self.y, z = 2, 3", "cls.n += 1", "b['x'] = 1", "x = b.x"]
    assert [measures.foreign_assignments(source) for source in own] == [0] * len(own)
    others = ["b.x = 1", "b.x += 1", "b.x: int = 1", "self.b.x = 1", "a, b.x = 1, 2", "for b.x in y: pass"]
    assert [measures.foreign_assignments(source) for source in others] == [1] * len(others)


def test_any_is_counted_where_it_is_used() -> None:
    source = "from typing import Any\n# Any of them.\ndef f(x: Any, y: dict[str, Any]) -> None: ...\n"
    assert measures.uses_of_any(source) == 2


def test_recipe_is_counted_by_the_files_that_it_names() -> None:
    contributing = (
        "**Add a page.** See `docs/a.md`.\n\n"
        "**Add a command.** Write `cli/commands/account/NAME.py`, then `cli/command.py`\nand again "
        "`cli/command.py`; run `make check`.\n\n**Add a page to the console.** `docs/b.md`\n"
    )
    assert measures.named_files(contributing, "command") == 2
    assert measures.named_files(contributing, "usage column") is None


def test_tree_is_measured_by_its_files(tmp_path: Path) -> None:
    tree = written(
        tmp_path,
        {
            "CONTRIBUTING.md": "",
            "edge/chat.py": "b.x = 1\nc = 'canary'\n",
            "cli/a.py": "",
            "console/a.py": "",
            "services/router/a.py": "from typing import Any\nx: Any = 1\n",
            "services/metering/a.py": "x = 1\n",
            "services/auth/a.py": "x = 1\n",
            "services/router/a.c": "int x;\n",
            "tests/test_a.py": "c = 'canary'\n",
            "protos/legato/auth/v1/auth.proto": "service A {\n}\nservice B {\n}\n",
        },
    )
    figures = measures.measured(tree)
    assert figures["product, lines of Python"] == "6"
    assert figures["product, lines of C"] == "1"
    assert figures["tests, lines"] == "1"
    assert figures["modules that name `canary`"] == "1"
    assert figures["edge, assignments to other objects in 1,000 lines"] == "500.0 (1)"
    assert figures["router, assignments to other objects in 1,000 lines"] == "0.0 (0)"
    assert figures["gRPC services of auth"] == "2"
    assert figures["`Any` in the product, without imports"] == "1"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("legato_protos/chat/v1/chat_pb2.pyi", "generated"),
        ("tests/console/browser/snapshots/keys.txt", "generated"),
        ("protos/legato/chat/v1/chat.proto", "contracts"),
        ("legato_protos/client/client.py", "product"),
        ("console/templates/keys.html", "templates"),
        ("console/locale/fr/LC_MESSAGES/console.po", "words"),
        ("tests/edge/chat/test_chat.py", "tests"),
        ("README.md", "docs"),
        ("Makefile", "other"),
    ],
)
def test_files_have_a_kind(path: str, kind: str) -> None:
    assert measures.kind_of(path) == kind


def test_what_a_program_writes_is_counted_apart() -> None:
    *_, kinds, summary = measures.touched(["README.md", "edge/a.py", "legato_protos/chat/v1/chat_pb2.py"])
    assert kinds == "generated 1, product 1, docs 1"
    assert summary == "2 files to write, 1 generated"


def git(tree: Path, *arguments: str) -> None:
    author = ["-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *author, *arguments], cwd=tree, check=True, capture_output=True)


def commit(tree: Path, files: dict[str, str]) -> None:
    written(tree, files)
    git(tree, "add", ".")
    git(tree, "commit", "-m", "files")


def test_branch_touches_what_its_merges_change_themselves_and_nothing_of_the_other_side(tmp_path: Path) -> None:
    git(tmp_path, "init", "-b", "main")
    commit(tmp_path, {"same.py": "x = 1\n", "theirs.py": "", "merged.py": ""})
    git(tmp_path, "switch", "-c", "column")
    commit(tmp_path, {"same.py": "x = 2\n"})
    git(tmp_path, "switch", "main")
    commit(tmp_path, {"theirs.py": "y = 1\n"})
    git(tmp_path, "switch", "column")
    git(tmp_path, "merge", "--no-commit", "main")
    commit(tmp_path, {"merged.py": "z = 1\n"})
    git(tmp_path, "switch", "main")
    commit(tmp_path, {"theirs.py": "y = 2\n"})
    assert measures.paths_of("main..column", tmp_path) == ["merged.py", "same.py"]


def test_contributing_has_a_recipe_for_all_that_is_measured() -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    assert [thing for thing in measures.RECIPES if not measures.named_files(contributing, thing)] == []
