from datetime import UTC, datetime, timedelta, timezone
from typing import cast

import pytest

from legato_protos.chat.v1.chat_pb2 import BUCKET_WIDTH_DAY, GROUP_BY_CALLER, GROUP_BY_MODEL, GetUsageRequest
from legato_protos.client.usage_request import UsageOptions, usage_request_from


def test_every_field_of_the_request_can_be_given() -> None:
    start = datetime(2026, 11, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    request = usage_request_from(
        {
            "start": start,
            "end": start + timedelta(days=2),
            "bucket_width": "day",
            "group_by": ("model", "caller"),
            "page_size": 5,
            "page_token": "next",
        }
    )
    assert {field.name for field, _ in request.ListFields()} == {field.name for field in request.DESCRIPTOR.fields}
    assert request.start_time.ToDatetime(UTC) == datetime(2026, 11, 1, tzinfo=UTC)
    assert request.bucket_width == BUCKET_WIDTH_DAY
    assert list(request.group_by) == [GROUP_BY_MODEL, GROUP_BY_CALLER]


def test_what_is_not_given_is_absent() -> None:
    assert usage_request_from({}) == GetUsageRequest()


def test_an_option_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(TypeError, match="no option 'group'"):
        usage_request_from(cast(UsageOptions, {"group": "model"}))
