import pytest

from services.chassis.settings import SettingsError
from services.metering.valkey_client import make_client


@pytest.mark.parametrize(
    "url", ["hunter2", "http://host", "redis://:hunter2", "redis://host?pass=hunter2", "redis://host?db=hunter2"]
)
def test_address_that_is_none_is_named_and_not_quoted(url: str) -> None:
    with pytest.raises(SettingsError, match="LEGATO_VALKEY_URL") as refused:
        _ = make_client(url)
    assert "hunter2" not in str(refused.value)
