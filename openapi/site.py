"""Hooks of `make docs`: puts the OpenAPI document and a first page into the site."""

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]


def on_files(files: Any, config: Any) -> Any:
    document = (ROOT / "edge" / "api" / "openapi.json").read_text()
    # In the repository, the first page is the README beside the folder of the others.
    overview = (ROOT / "README.md").read_text().replace("](docs/", "](")
    files.append(File.generated(config, "openapi.json", content=document))
    files.append(File.generated(config, "index.md", content=overview))
    return files
