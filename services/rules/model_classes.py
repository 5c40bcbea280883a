"""The model classes, and the one that `auto` selects."""

from collections.abc import Container
from typing import Final

AUTO: Final = "auto"
# The cheapest first.
CLASSES: Final = ("mezzo", "forte", "fortissimo")
# The class that `auto` selects for an account that has chosen none.
DEFAULT_CLASS: Final = "forte"


def auto_class(preferred_class: str, allowed: Container[str]) -> str:
    """Returns what `auto` means: the most capable class that is allowed and not above the preferred one, or else the
    cheapest that is allowed. Where none is, the preferred class is returned, to be refused like all others."""
    usable = [class_id for class_id in CLASSES if class_id in allowed]
    if preferred_class in usable or not usable or preferred_class not in CLASSES:
        return preferred_class
    below = [class_id for class_id in usable if CLASSES.index(class_id) < CLASSES.index(preferred_class)]
    return below[-1] if below else usable[0]
