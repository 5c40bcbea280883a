"""Static files: read once at start, and served under the hash of their content."""

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[1] / "static"
TYPES: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}


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


def _read(file: Path) -> Asset:
    content = file.read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:32]
    return Asset(f"/static/{digest}{file.suffix}", TYPES[file.suffix], content, gzip.compress(content, 9, mtime=0))
