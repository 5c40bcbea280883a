"""Accounts, for operators: search, create, suspend, limits, classes, spend limits, credit, keys."""

import asyncio
import secrets
from typing import Any, Final

from starlette.responses import Response

from console.account import spend_limits
from console.account.allowed_classes import classes_of_account, given_classes
from console.pages.account.keys import LIMITS, LONGEST_NAME, limits_in, milliseconds_since
from console.web.visit import Visit
from protos.auth.v1 import auth_pb2
from protos.auth.v1 import users_pb2 as pb
from protos.metering.v1 import metering_pb2
from services.chassis.errors import LegatoError, Reason
from services.chassis.money import LARGEST_BOOKING_NANOS, parse_usd
from services.rules.model_classes import CLASSES

ACCOUNTS_ON_A_PAGE: Final = 50
MEMBERS_SHOWN: Final = 100
KEYS_ON_A_PAGE: Final = 200
LONGEST_REASON: Final = 200
# Answers that say that nothing was booked.
REFUSALS: Final = (Reason.REQUEST_INVALID, Reason.NOT_FOUND, Reason.CREDITS_EXHAUSTED, Reason.CREDITS_HELD)


async def show(visit: Visit) -> Response:
    return await _list(visit)


async def create(visit: Visit) -> Response:
    name = visit.form.get("name")
    if not name or len(name) > LONGEST_NAME:
        return await _list(visit, {"name": "A name has 1 to 100 characters."}, 400)
    made = await visit.auth.account_admin.CreateAccount(auth_pb2.CreateAccountRequest(name=name))
    return visit.redirect(f"/operator/accounts/{made.account.account_id}", "account-created")


async def show_one(visit: Visit) -> Response:
    return await _one(visit)


async def show_keys(visit: Visit) -> Response:
    account_id = _account_id(visit)
    request = auth_pb2.ListKeysRequest(
        account_id=account_id, page_size=KEYS_ON_A_PAGE, page_token=visit.request.query_params.get("page", "")
    )
    account, listed = await asyncio.gather(_account(visit), visit.auth.key_admin.ListKeys(request))
    return visit.render("operator_keys.html", account=account, keys=listed.keys, next_page=listed.next_page_token)


async def set_limits(visit: Visit) -> Response:
    limits, problems = limits_in(visit)
    if problems:
        return await _one(visit, problems, 400)
    began_s = visit.console.clock.elapsed_s()
    request = auth_pb2.UpdateAccountRequest(account_id=_account_id(visit))
    for name, limit in limits.items():
        setattr(request, name, limit)
    try:
        await visit.auth.account_admin.UpdateAccount(request)
    except LegatoError as error:
        if error.reason is not Reason.REQUEST_INVALID:
            raise
        return await _one(visit, {error.param or "requests_per_minute": error.message}, 400)
    return visit.redirect(_path(visit), "account-changed", milliseconds_since(visit, began_s))


async def set_classes(visit: Visit) -> Response:
    allowed, problem = given_classes(visit, list(CLASSES))
    if problem:
        return await _one(visit, {"allowed": problem}, 400)
    began_s = visit.console.clock.elapsed_s()
    request = auth_pb2.UpdateAccountRequest(
        account_id=_account_id(visit), allowed_classes=allowed, allow_all_classes=allowed is None
    )
    await visit.auth.account_admin.UpdateAccount(request)
    return visit.redirect(_path(visit), "account-changed", milliseconds_since(visit, began_s))


async def show_spending(visit: Visit) -> Response:
    return await _spending(visit)


async def set_spending(visit: Visit) -> Response:
    limits, problems, typed = spend_limits.given_limits(visit)
    if not problems:
        # Before the audit log is written, as for credit.
        visit.require_step_up()
        noted = pb.RecordOperatorActionRequest(
            action=pb.OPERATOR_ACTION_SET_SPEND_LIMITS, account_id=_account_id(visit), object_id=_account_id(visit)
        )
        await visit.auth.user_admin.RecordOperatorAction(noted)
        problems = await spend_limits.set_limits(visit, _account_id(visit), spend_limits.WHOLE_ACCOUNT, limits)
    if problems:
        return await _spending(visit, problems, typed)
    return visit.redirect(f"{_path(visit)}/spend-limits", "spend-limits-set")


async def _spending(
    visit: Visit, problems: dict[str, str] | None = None, typed: dict[str, str] | None = None
) -> Response:
    account, spends = await asyncio.gather(_account(visit), spend_limits.read_spends(visit, _account_id(visit)))
    whole = None if spends is None else spends.get(spend_limits.WHOLE_ACCOUNT)
    return visit.render(
        "operator_spend_limits.html",
        400 if problems else 200,
        account=account,
        is_known=spends is not None,
        spend=whole,
        meters=spend_limits.meters_of(whole),
        limited_keys=sum(
            1 for key_id, spend in (spends or {}).items() if key_id and spend_limits.limited_meters(spend)
        ),
        typed=typed,
        problems=problems or {},
    )


async def suspend(visit: Visit) -> Response:
    began_s = visit.console.clock.elapsed_s()
    request = auth_pb2.SuspendAccountRequest(account_id=_account_id(visit))
    await visit.auth.account_admin.SuspendAccount(request)
    return visit.redirect(_path(visit), "account-suspended", milliseconds_since(visit, began_s))


async def resume(visit: Visit) -> Response:
    began_s = visit.console.clock.elapsed_s()
    request = auth_pb2.ResumeAccountRequest(account_id=_account_id(visit))
    await visit.auth.account_admin.ResumeAccount(request)
    return visit.redirect(_path(visit), "account-resumed", milliseconds_since(visit, began_s))


async def book(visit: Visit) -> Response:
    """Grants or adjusts credit. The form has the booking's id: however often it is sent, it is booked once."""
    form = visit.form
    given = {name: form.get(name) for name in ("kind", "amount", "amount_again", "reason", "operation_id")}
    amount_nanos, problems = _amount_in(given)
    if problems:
        return await _one(visit, problems, 400, given)
    # Before the audit log is written: what was asked for is then noted once, when it is done.
    visit.require_step_up()
    operation_id, account_id = given["operation_id"], _account_id(visit)
    is_grant = given["kind"] == "grant"
    noted = pb.RecordOperatorActionRequest(
        action=pb.OPERATOR_ACTION_GRANT_CREDIT if is_grant else pb.OPERATOR_ACTION_ADJUST_CREDIT,
        account_id=account_id,
        object_id=f"{visit.who.user.user_id}-{operation_id}",
    )
    try:
        await visit.auth.user_admin.RecordOperatorAction(noted)
        await _book(visit, is_grant, account_id, operation_id, amount_nanos, given["reason"])
    except LegatoError as error:
        if error.reason is Reason.UNAVAILABLE:
            return await _one(visit, {"outcome": _unknown_outcome()}, 503, given)
        if error.reason not in REFUSALS:
            raise
        return await _one(visit, {"amount": error.message}, 400, given)
    return visit.redirect(_path(visit), "credit-booked")


async def _book(
    visit: Visit, is_grant: bool, account_id: str, operation_id: str, amount_nanos: int, reason: str
) -> None:
    if is_grant:
        grant = metering_pb2.GrantCreditsRequest(
            operation_id=operation_id, account_id=account_id, amount_nanos=amount_nanos
        )
        await visit.metering.credit_admin.GrantCredits(grant)
        return
    adjustment = metering_pb2.AdjustCreditsRequest(
        operation_id=operation_id, account_id=account_id, amount_nanos=amount_nanos, reason=reason
    )
    await visit.metering.credit_admin.AdjustCredits(adjustment)


def _unknown_outcome() -> str:
    return (
        "It is not known whether this was booked: a service did not answer in time. Send the form again: it has the "
        "same booking, which counts once."
    )


def _amount_in(given: dict[str, str]) -> tuple[int, dict[str, str]]:
    """Returns the amount of a form, and what is wrong with which field."""
    problems: dict[str, str] = {}
    amount_nanos = 0
    try:
        amount_nanos = parse_usd(given["amount"].replace("\N{MINUS SIGN}", "-"))
    except ValueError:
        problems["amount"] = "An amount in dollars with up to nine decimals, such as 5.00."
    if given["kind"] not in ("grant", "adjustment"):
        problems["kind"] = "Choose a grant or an adjustment."
    elif not problems and given["kind"] == "grant" and amount_nanos <= 0:
        problems["amount"] = "A grant is more than zero. To take credit away, choose an adjustment."
    elif not problems and not amount_nanos:
        problems["amount"] = "An adjustment is not zero."
    if abs(amount_nanos) > LARGEST_BOOKING_NANOS:
        problems["amount"] = "At most a million dollars at once."
    if not problems and given["amount_again"] != given["amount"]:
        problems["amount_again"] = "The two amounts differ."
    if given["kind"] == "adjustment" and not 1 <= len(given["reason"]) <= LONGEST_REASON:
        problems["reason"] = "An adjustment needs a reason, which the ledger keeps."
    return amount_nanos, problems


async def _list(visit: Visit, problems: dict[str, str] | None = None, status: int = 200) -> Response:
    wanted = visit.request.query_params.get("q", "").strip()[:LONGEST_NAME]
    request = auth_pb2.ListAccountsRequest(
        page_size=ACCOUNTS_ON_A_PAGE, page_token=visit.request.query_params.get("page", ""), query=wanted
    )
    listed = await visit.auth.account_admin.ListAccounts(request)
    balances = await _balances(visit, [account.account_id for account in listed.accounts])
    return visit.render(
        "operator_accounts.html",
        status,
        accounts=listed.accounts,
        balances=balances,
        wanted=wanted,
        next_page=listed.next_page_token,
        problems=problems or {},
        given_name=visit.form.get("name"),
    )


async def _one(
    visit: Visit, problems: dict[str, str] | None = None, status: int = 200, given: dict[str, Any] | None = None
) -> Response:
    members_request = pb.ListUsersRequest(account_id=_account_id(visit), page_size=MEMBERS_SHOWN)
    account, balances, members = await asyncio.gather(
        _account(visit),
        _balances(visit, [_account_id(visit)]),
        visit.auth.user_admin.ListUsers(members_request),
    )
    roles = {
        held.user_id: held.membership.role
        for held in members.memberships
        if held.membership.account_id == account.account_id
    }
    empty = {"kind": "grant", "amount": "", "amount_again": "", "reason": "", "operation_id": secrets.token_hex(16)}
    return visit.render(
        "operator_account.html",
        status,
        account=account,
        balance=None if balances is None else balances.get(account.account_id, metering_pb2.Balance()),
        members=members.users,
        roles_of=roles,
        more_members=bool(members.next_page_token),
        limit_titles=LIMITS,
        all_classes=list(CLASSES),
        allowed=classes_of_account(account),
        given=given or empty,
        problems=problems or {},
    )


async def _account(visit: Visit) -> auth_pb2.Account:
    request = auth_pb2.GetAccountRequest(account_id=_account_id(visit))
    found = await visit.auth.account_admin.GetAccount(request)
    return found.account


async def _balances(visit: Visit, account_ids: list[str]) -> dict[str, metering_pb2.Balance] | None:
    """Returns balances by account; None if metering does not answer."""
    request = metering_pb2.ListBalancesRequest(account_ids=account_ids)
    try:
        found = await visit.metering.credit_admin.ListBalances(request)
    except LegatoError as error:
        if error.reason is not Reason.UNAVAILABLE:
            raise
        return None
    return {balance.account_id: balance for balance in found.balances}


def _account_id(visit: Visit) -> str:
    account_id: str = visit.request.path_params["account_id"]
    return account_id


def _path(visit: Visit) -> str:
    return f"/operator/accounts/{_account_id(visit)}"
