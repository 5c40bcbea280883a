"""The modules of the product, and what contract tests let pass of each package, in `exceptions/`."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGES = ("cli", "console", "edge", "services")
EXCEPTIONS = Path(__file__).parent / "exceptions"


def product_modules() -> Sequence[Path]:
    """All modules except the steps of migrations."""
    paths = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return [path.relative_to(ROOT) for path in paths if "migrations" not in path.parts]


def exceptions() -> Sequence[dict[str, Any]]:
    return [tomllib.loads(path.read_text()) for path in sorted(EXCEPTIONS.glob("*.toml"))]
