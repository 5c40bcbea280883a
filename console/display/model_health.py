"""The words for how a model fares: by its circuit breaker, and by how often it fails while that is closed."""

from typing import Final

from console.display.language import N_

HEALTHY: Final = (N_("Healthy"), "good")
RECOVERING: Final = (N_("Recovering"), "warn")
FAILING: Final = (N_("Failing"), "bad")
FAILS_OFTEN: Final = (N_("Fails often"), "warn")
UNKNOWN: Final = (N_("Not known"), "warn")
# Fewer attempts say little.
LEAST_ATTEMPTS: Final = 10
OFTEN_SHARE: Final = 0.2


def while_closed(attempts: float, failures: float) -> tuple[str, str]:
    """Returns the words and the kind of a model whose breaker is closed: it may fail now and then, or all the time."""
    is_often = attempts >= LEAST_ATTEMPTS and failures >= OFTEN_SHARE * attempts
    return FAILS_OFTEN if is_often else HEALTHY
