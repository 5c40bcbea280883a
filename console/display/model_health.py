"""The words for how a model fares: by its circuit breaker, and by how often it fails while that is closed."""

from typing import Final

from console.display.language import N_

HEALTHY: Final = (N_("Healthy"), "good")
RECOVERING: Final = (N_("Recovering"), "warn")
FAILING: Final = (N_("Failing"), "bad")
FAILS_OFTEN: Final = (N_("Fails often"), "warn")
NOT_CALLED: Final = (N_("Not called"), "")
ROLLED_BACK: Final = (N_("Rolled back"), "bad")
UNKNOWN: Final = (N_("Not known"), "warn")
# Fewer failures say little.
LEAST_FAILURES: Final = 3
OFTEN_SHARE: Final = 0.2


def while_closed(calls: float, failures: float) -> tuple[str, str]:
    """Returns the words and the kind of a model whose breaker is closed: it may fail now and then, or all the time."""
    if not calls:
        return NOT_CALLED
    return FAILS_OFTEN if failures >= max(LEAST_FAILURES, OFTEN_SHARE * calls) else HEALTHY
