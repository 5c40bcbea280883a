"""Lists the models of a class that a chat may be sent to, in the order in which they are tried."""

from collections.abc import Iterator

from services.router.routing.model_states import ClassModels, ModelState


def in_turn(models: ClassModels, key_id: str) -> Iterator[ModelState]:
    """Yields the models in order, but those in backoff later and those with an open circuit breaker last. These are
    tried only if no other model answered: a recent refusal is no reason to refuse a chat that no other model takes."""
    left_alone, failing = [], []
    for model_state in models.all:
        if not model_state.breaker.may_be_asked():
            failing.append(model_state)
        elif model_state.saturation.backoff.left_s(key_id):
            left_alone.append(model_state)
        else:
            yield model_state
    yield from left_alone
    yield from failing
