"""Hooks of `make docs`: adds the OpenAPI document, the start page and the pages outside `docs/` to the site."""

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

from edge.api.app import EdgeApp

ROOT = Path(__file__).parents[1]
PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md")
# Beside the code that it describes, because the package shows it, too.
CLIENT_README = "legato_protos/README.md"
CLIENT_PAGE = "python-client.md"
SECTIONS = ("runbooks", "decisions")
RELATIVE_LINK = re.compile(r"(?<!!)\[([^\[\]]+)\]\((?![a-z]+:|#)([^()\s#]+)(?:#[^()\s]*)?\)")


def on_config(config: Any) -> Any:
    for section in SECTIONS:
        pages = sorted((ROOT / "docs" / section).glob("*.md"))
        config["nav"].append({section.title(): [f"{section}/{page.name}" for page in pages]})
    return config


def on_files(files: Any, config: Any) -> Any:
    files.append(File.generated(config, "openapi.json", content=json.dumps(EdgeApp(None).openapi())))
    files.append(File.generated(config, "LICENSE", content=_read("LICENSE")))
    files.append(File.generated(config, CLIENT_PAGE, content=_read(CLIENT_README)))
    # The start page is the README.
    for name, page in (("README.md", "index.md"), *((page, page) for page in PAGES)):
        # Links from the root begin with the folder of the other pages.
        files.append(File.generated(config, page, content=_read(name).replace("](docs/", "](")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Replaces links to files that are not part of the site by their text."""
    folder = posixpath.dirname(page.file.src_uri)

    def keep_if_found(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[2]))
        if target.endswith(CLIENT_README):
            return link[0].replace(link[2], posixpath.relpath(CLIENT_PAGE, folder))
        return link[0] if files.get_file_from_path(target) else link[1]

    return RELATIVE_LINK.sub(keep_if_found, markdown)


def _read(path: str) -> str:
    return (ROOT / path).read_text()
