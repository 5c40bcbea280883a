"""Measures the source tree as its reader meets it: places of a feature, owners of state, the price of one more.

`make measures` measures the files at hand, `make measures ARGS="0.2.0 main"` commits side by side, and
`make measures ARGS="--added main..column"` lists the files that the commits of a branch touch, by kind.
"""

import argparse
import ast
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path

from tests.contracts.product import PACKAGES, ROOT

# A feature whose places are counted.
FEATURE = "canary"
OWNERS = {"router": "services/router", "edge": "edge", "metering": "services/metering", "auth": "services/auth"}
# Recipes of CONTRIBUTING.md that name all files which one more costs.
RECIPES = ("usage column", "page to the console", "request parameter", "command")
GENERATED = "generated"
# The kind of a file is that of the first pattern which its path has.
KINDS = {
    GENERATED: r"_pb2(_grpc)?\.pyi?$|^docs/rpc-reference\.md$|/snapshots/|\.lock$",
    "contracts": r"^protos/",
    "tests": r"^tests/",
    "words": r"\.po$",
    "templates": r"^console/(templates|static)/",
    "product": r"^(cli|console|edge|services|legato_protos)/",
    "docs": r"\.md$",
    "other": r"",
}


def modules(tree: Path, *folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (tree / folder).rglob("*.py"))


def lines(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def foreign_assignments(source: str) -> int:
    """Counts assignments to attributes of any object but `self` and `cls`."""
    return sum(
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
        for node in ast.walk(ast.parse(source))
    )


def uses_of_any(source: str) -> int:
    """Counts where `Any` stands as a type or in one, without its imports."""
    return sum(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(ast.parse(source)))


def named_files(contributing: str, thing: str) -> int | None:
    """Counts the files that a recipe names; None if there is no such recipe."""
    recipe = re.search(rf"^\*\*Add a {thing}\.\*\*(.*?)(?=\n\n\*\*|\n## |\Z)", contributing, re.DOTALL | re.MULTILINE)
    return len(set(re.findall(r"`((?:\w+/)+[\w.*-]+|[A-Z]+\.md)`", recipe[1]))) if recipe else None


def measured(tree: Path) -> Mapping[str, str]:
    product = modules(tree, *PACKAGES)
    compiled = [path for package in PACKAGES for path in (tree / package).rglob("*.[ch]")]
    figures = {
        "product, lines of Python": f"{lines(product):,}",
        "product, lines of C": f"{lines(compiled):,}",
        "tests, lines": f"{lines(modules(tree, 'tests')):,}",
        f"modules that name `{FEATURE}`": str(sum(FEATURE in path.read_text() for path in product)),
    }
    for owner, folder in OWNERS.items():
        own = modules(tree, folder)
        found = sum(foreign_assignments(path.read_text()) for path in own)
        figures[f"{owner}, assignments to other objects in 1,000 lines"] = f"{1000 * found / lines(own):.1f} ({found})"
    contracts = "\n".join(path.read_text() for path in (tree / "protos/legato/auth").rglob("*.proto"))
    figures["gRPC services of auth"] = str(len(re.findall(r"^service \w+ {", contracts, re.MULTILINE)))
    figures["`Any` in the product, without imports"] = str(sum(uses_of_any(path.read_text()) for path in product))
    contributing = (tree / "CONTRIBUTING.md").read_text()
    for thing in RECIPES:
        count = named_files(contributing, thing)
        figures[f"files that the recipe of a {thing} names"] = "no recipe" if count is None else str(count)
    return figures


def kind_of(path: str) -> str:
    return next(kind for kind, pattern in KINDS.items() if re.search(pattern, path))


def table(columns: Sequence[str], rows: Mapping[str, Sequence[str]]) -> Iterator[str]:
    width = max(map(len, rows))
    yield " ".join([" " * width, *(f"{column:>14}" for column in columns)])
    for name, cells in rows.items():
        yield " ".join([f"{name:{width}}", *(f"{cell:>14}" for cell in cells)])


def at_commit(commit: str, folder: Path) -> Path:
    """Writes the files of a commit into a folder and returns that."""
    packed = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def compared(commits: Sequence[str]) -> Iterator[str]:
    """Yields the measures of commits, or of the files at hand if none is given."""
    if not commits:
        yield from table(["files at hand"], {name: [value] for name, value in measured(ROOT).items()})
        return
    columns = []
    for commit in commits:
        with tempfile.TemporaryDirectory() as folder:
            columns.append(measured(at_commit(commit, Path(folder))))
    yield from table(commits, {name: [column[name] for column in columns] for name in columns[0]})


def paths_of(commits: str, tree: Path) -> Sequence[str]:
    """Lists the files that a range of commits touches; of a merge, those that differ from what git merges itself."""
    names = ["git", "log", "--format=", "--name-only", "--no-renames", "--remerge-diff", commits]
    listed = subprocess.run(names, cwd=tree, check=True, capture_output=True, text=True).stdout
    return sorted(set(filter(None, listed.splitlines())))


def touched(paths: Sequence[str]) -> Iterator[str]:
    """Yields the paths and how many there are of each kind; what a program writes is counted apart."""
    counts = Counter(map(kind_of, paths))
    yield from (f"{kind_of(path):10} {path}" for path in sorted(paths, key=lambda path: (kind_of(path), path)))
    yield ", ".join(f"{kind} {counts[kind]}" for kind in KINDS if counts[kind])
    yield f"{len(paths) - counts[GENERATED]} files to write, {counts[GENERATED]} {GENERATED}"


def main() -> None:
    options = argparse.ArgumentParser(prog="make measures", description=__doc__)
    options.add_argument("commits", nargs="*", metavar="COMMIT", help="measured instead of the files at hand")
    options.add_argument(
        "--added", metavar="RANGE", help="list the files that these commits touch, for example main..column"
    )
    given = options.parse_args()
    found = touched(paths_of(given.added, ROOT)) if given.added else compared(given.commits)
    sys.stdout.writelines(f"{line}\n" for line in found)


if __name__ == "__main__":
    main()
