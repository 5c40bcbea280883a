from collections.abc import Callable, Iterator
from functools import partial

import pytest

from console.display import language


@pytest.fixture
def in_french() -> Iterator[Callable[[], None]]:
    """Switches to French, until the test ends."""
    yield partial(language.speak, "fr")
    language.speak(language.ENGLISH)
