"""Hooks of `make docs`: adds the OpenAPI document and the start page to the site."""

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]


def on_files(files: Any, config: Any) -> Any:
    document = (ROOT / "edge" / "api" / "openapi.json").read_text()
    # The start page is the README, whose links begin with the folder of the other pages.
    overview = (ROOT / "README.md").read_text().replace("](docs/", "](")
    files.append(File.generated(config, "openapi.json", content=document))
    files.append(File.generated(config, "index.md", content=overview))
    return files
