"""More requests than are answered at the same time."""

import contextlib
import ipaddress

import pytest

from console.web.request_limit import RequestLimit
from services.chassis.errors import LegatoError, Reason
from services.chassis.http.addresses import Address

HERE, THERE = ipaddress.ip_address("203.0.113.7"), ipaddress.ip_address("2001:db8::1")
NEXT_DOOR = ipaddress.ip_address("2001:db8::2")


def is_refused(limit: RequestLimit, address: Address | None) -> bool:
    before = limit.refused
    with contextlib.suppress(LegatoError), limit.place(address):
        pass
    return limit.refused > before


@pytest.mark.parametrize("address", [HERE, THERE])
def test_client_has_its_share_and_others_have_theirs(address: Address) -> None:
    limit = RequestLimit(10, 2)
    with contextlib.ExitStack() as places:
        for _ in range(2):
            places.enter_context(limit.place(address))
        assert is_refused(limit, address)
        assert not is_refused(limit, HERE if address is THERE else THERE)
        assert limit.under_way == 2
    assert limit.under_way == 0
    assert not is_refused(limit, address)


def test_addresses_of_one_network_are_one_client() -> None:
    limit = RequestLimit(10, 1)
    with limit.place(THERE):
        assert is_refused(limit, NEXT_DOOR)


def test_all_together_have_no_more_than_there_is() -> None:
    limit = RequestLimit(2, 1)
    with limit.place(HERE), limit.place(None):
        with pytest.raises(LegatoError) as refused, limit.place(THERE):
            pass
        assert refused.value.reason is Reason.UNAVAILABLE
    assert not is_refused(limit, THERE)


def test_place_is_free_again_after_a_failure() -> None:
    limit = RequestLimit(1, 1)
    with contextlib.suppress(ValueError), limit.place(HERE):
        raise ValueError
    assert not is_refused(limit, HERE)
