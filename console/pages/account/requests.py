"""Requests: those that run, those that were charged, and one receipt whose cost is computed again."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from console.account.key_names import KeyNames, ReportKeys, add_key_names, read_key_names, read_report_keys
from console.display.language import _
from console.display.receipts import APIS, BASES, arithmetic_of, end_of
from console.display.words import significant_places, time_of
from console.services import every_page, if_available
from console.web.csv_files import Row, csv_response, text_cell
from console.web.periods import Days, days_in
from console.web.visit import Visit, paging, with_query
from legato_protos.metering.v1 import statements_pb2 as pb
from legato_protos.metering.v1.metering_pb2 import Basis, End, RequestState
from legato_protos.type.v1.chat_api_pb2 import ChatApi
from services.chassis.money import format_usd
from services.rules.model_classes import CLASSES
from services.rules.usage import named

PAGE_SIZE: Final = 25
FILE_PAGE_SIZE: Final = 1_000
REQUEST_ID: Final = re.compile(r"[0-9a-f]{32}")
# What ids of answers begin with.
_PREFIX: Final = re.compile(r"^(chatcmpl-|msg_|req_|resp_)")


@dataclass(frozen=True, slots=True)
class RequestChoice:
    """The choice that an address makes; dates are days of the reader."""

    days: Days
    keys: ReportKeys
    class_id: str

    @property
    def query(self) -> dict[str, str]:
        fields = {**self.days.query, "keys": self.keys.chosen or "all", "class": self.class_id}
        return {name: value for name, value in fields.items() if value}

    @property
    def is_narrowed(self) -> bool:
        return bool(self.days.query or self.keys.chosen or self.class_id)


async def show(visit: Visit) -> Response:
    if wanted := visit.query.get("id", "").strip().lower():
        # As clients show it, and as responses have it.
        request_id = _PREFIX.sub("", wanted).replace("-", "")
        is_id = REQUEST_ID.fullmatch(request_id) is not None
        return visit.redirect(f"/requests/{request_id}") if is_id else _unknown(visit, wanted)
    choice = await _choice_in(visit)
    page_token = visit.page_token
    request = _request(visit, choice, PAGE_SIZE, page_token)
    listed = await if_available(visit.metering.statements.ListRequests(request))
    shown = (*listed.running, *listed.requests) if listed else ()
    names = await read_key_names(visit, [choice.keys.chosen, *(each.key_id for each in shown)])
    return visit.render(
        "requests.html",
        choice=choice,
        listed=listed,
        names=names,
        end_of=end_of,
        # One for the whole column.
        places=max((significant_places(each.charged_nanos or each.held_nanos, 3) for each in shown), default=2),
        classes=CLASSES,
        file_path=with_query("/requests.csv", choice.query),
        **paging("/requests", choice.query, page_token, listed.next_page_token if listed else ""),
    )


async def show_one(visit: Visit) -> Response:
    request_id = visit.path_value("request_id")
    if not REQUEST_ID.fullmatch(request_id):
        return _unknown(visit, request_id)
    request = pb.ListRequestsRequest(account_id=visit.account_id, request_id=request_id)
    found = await visit.metering.statements.ListRequests(request)
    receipts = [*found.running, *found.requests]
    if not receipts:
        return _unknown(visit, request_id)
    [receipt] = receipts
    return visit.render(
        "receipt.html",
        receipt=receipt,
        names=await read_key_names(visit, [receipt.key_id]),
        end=end_of(receipt),
        basis=_(BASES[receipt.basis]) if receipt.basis in BASES else "",
        api=_(APIS[receipt.api]) if receipt.api in APIS else "",
        arithmetic=arithmetic_of(receipt),
        is_running=bool(found.running),
    )


async def download(visit: Visit) -> Response:
    return await csv_response(visit, "legato-requests.csv", *requests_file(visit, await _choice_in(visit)))


def requests_file(visit: Visit, choice: RequestChoice) -> tuple[Row, AsyncIterator[Row]]:
    """Returns the columns and the rows of the file."""
    return _file_row(pb.RequestReceipt(), KeyNames()), _file_rows(visit, choice)


async def _choice_in(visit: Visit) -> RequestChoice:
    query = visit.query
    class_id = query.get("class", "")
    return RequestChoice(days_in(query), await read_report_keys(visit), class_id if class_id in CLASSES else "")


def _request(visit: Visit, choice: RequestChoice, page_size: int, page_token: str = "") -> pb.ListRequestsRequest:
    return pb.ListRequestsRequest(
        account_id=visit.account_id,
        key_ids=choice.keys.key_ids,
        class_ids=[choice.class_id] if choice.class_id else [],
        page_size=page_size,
        page_token=page_token,
        **choice.days.times(visit.zone),
    )


async def _file_rows(visit: Visit, choice: RequestChoice) -> AsyncIterator[Row]:
    names, request = KeyNames(), _request(visit, choice, FILE_PAGE_SIZE)
    async for page in every_page(visit.metering.statements.ListRequests, request):
        names = await add_key_names(visit, names, (each.key_id for each in (*page.running, *page.requests)))
        for receipt in (*page.running, *page.requests):
            yield _file_row(receipt, names)


def _file_row(receipt: pb.RequestReceipt, names: KeyNames) -> Row:
    usage, price = receipt.usage, receipt.price
    return {
        "request_id": receipt.request_id,
        "state": RequestState.Name(receipt.state).removeprefix("REQUEST_STATE_").lower(),
        "reserved": time_of(receipt.reserve_time).isoformat() if receipt.HasField("reserve_time") else "",
        "ended": time_of(receipt.end_time).isoformat() if receipt.HasField("end_time") else "",
        "first_token_ms": receipt.first_token_ms if receipt.HasField("first_token_ms") else "",
        "duration_ms": receipt.duration_ms if receipt.HasField("duration_ms") else "",
        "class": receipt.class_id,
        "key_id": receipt.key_id,
        "key_name": text_cell(names.name(receipt.key_id)),
        **named(usage),
        "cost_usd": format_usd(receipt.cost_nanos),
        "charged_usd": format_usd(receipt.charged_nanos),
        "charged_nanos": receipt.charged_nanos,
        "loss_nanos": receipt.loss_nanos,
        "price_version": price.version or "",
        "input_nanos_per_million": price.input_nanos_per_million,
        "cached_input_nanos_per_million": price.cached_input_nanos_per_million,
        "output_nanos_per_million": price.output_nanos_per_million,
        "basis": Basis.Name(receipt.basis).removeprefix("BASIS_").lower() if receipt.basis else "",
        "end": End.Name(receipt.end).removeprefix("END_").lower() if receipt.end else "",
        "routes_version": receipt.routes_version,
        "api": ChatApi.Name(receipt.api).removeprefix("CHAT_API_").lower() if receipt.api else "",
    }


def _unknown(visit: Visit, given: str) -> Response:
    return visit.render("request_unknown.html", 404, given=given[:60], is_id=bool(REQUEST_ID.fullmatch(given)))
