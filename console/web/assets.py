"""Static files: read once at start, and served under the hash of their content. A script comes with the modules that it
imports in one file, so that a page asks for no more than it did without them."""

import gzip
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[1] / "static"
TYPES: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
_IMPORT: Final = re.compile(r'^import \{[^}]*\} from "([^"]+)";\n', re.MULTILINE)
# What only readers of the source need: comments on lines of their own, indentation, and exports, which nothing outside
# imports. No text in a script goes over several lines.
_UNSENT: Final = re.compile(r"^ *//.*\n|^ +|^export (?=\w)|^\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Asset:
    path: str
    content_type: str
    content: bytes
    compressed: bytes


class Assets:
    def __init__(self, folder: Path = FOLDER) -> None:
        self._by_name = {file.name: _read(file) for file in sorted(folder.iterdir()) if file.suffix in TYPES}
        self._by_path = {asset.path: asset for asset in self._by_name.values()}

    def path_of(self, name: str) -> str:
        return self._by_name[name].path

    def find(self, path: str) -> Asset | None:
        return self._by_path.get(path)

    def all(self) -> list[Asset]:
        return list(self._by_path.values())


def _read(file: Path) -> Asset:
    text = file.read_text()
    content = (_UNSENT.sub("", _with_imports(file, text, set())) if file.suffix == ".js" else text).encode()
    digest = hashlib.sha256(content).hexdigest()[:32]
    return Asset(f"/static/{digest}{file.suffix}", TYPES[file.suffix], content, gzip.compress(content, 9, mtime=0))


def _with_imports(file: Path, text: str, included: set[Path]) -> str:
    """Puts the modules that a script imports before it, each once. Their names share one scope."""
    parts = []
    for name in _IMPORT.findall(text):
        module = (file.parent / name).resolve()
        if module not in included:
            included.add(module)
            parts.append(_with_imports(module, module.read_text(), included))
    return "".join((*parts, _IMPORT.sub("", text)))
