"""Accounts, for operators: search, create, suspend, credit, limits, classes, spend limits, keys."""

import asyncio
import secrets
from typing import Any, Final

from starlette.responses import Response

from console.account import spend_limits
from console.account.allowed_classes import classes_in, classes_of_account
from console.account.key_limits import LIMITS, limits_in
from console.display.language import N_, _
from console.pages.operator.reports import margin_rows, places_of
from console.services import if_available
from console.web.forms import LONGEST_NAME, Form, Refusal, Rules, parse_dollars
from console.web.periods import period_in, stamp_of
from console.web.refusals import shows_again
from console.web.visit import Visit
from console.web.zones import UTC_ZONE
from legato_protos.auth.v1 import auth_pb2
from legato_protos.auth.v1 import users_pb2 as pb
from legato_protos.metering.v1 import metering_pb2, reports_pb2
from services.chassis.changes import Change
from services.chassis.errors import LegatoError, Reason
from services.chassis.money import LARGEST_BOOKING_NANOS
from services.rules.margin import known_cost_nanos, margin_nanos
from services.rules.model_classes import CLASSES

ACCOUNTS_ON_A_PAGE: Final = 50
MEMBERS_SHOWN: Final = 100
KEYS_ON_A_PAGE: Final = 200
LONGEST_REASON: Final = 200
UNKNOWN_OUTCOME: Final = N_(
    "It is not known whether this was booked: a service did not answer in time. Send the form again: it has the same "
    "booking, which counts once."
)


async def show(visit: Visit, refusal: Refusal | None = None) -> Response:
    wanted = visit.query.get("q", "").strip()[:LONGEST_NAME]
    request = auth_pb2.ListAccountsRequest(page_size=ACCOUNTS_ON_A_PAGE, page_token=visit.page_token, query=wanted)
    listed = await visit.auth.accounts.ListAccounts(request)
    return visit.render(
        "operator_accounts.html",
        refusal=refusal,
        accounts=listed.accounts,
        balances=await _balances(visit, [account.account_id for account in listed.accounts]),
        wanted=wanted,
        next_page=listed.next_page_token,
    )


@shows_again(show, reasons=())
async def create(visit: Visit) -> Response:
    with Rules(visit.form) as rules:
        name = rules.require_name()
    made = await visit.auth.accounts.CreateAccount(auth_pb2.CreateAccountRequest(name=name))
    return visit.redirect(f"/operator/accounts/{made.account.account_id}", "account-created")


async def show_one(visit: Visit, refusal: Refusal | None = None) -> Response:
    account_id = visit.path_value("account_id")
    members_request = pb.ListUsersRequest(account_id=account_id, page_size=MEMBERS_SHOWN)
    period = period_in({}, UTC_ZONE, visit.now)
    report_request = reports_pb2.GetReportRequest(
        start_time=stamp_of(period.start),
        end_time=stamp_of(period.end),
        groups=[reports_pb2.REPORT_GROUP_CLASS],
        account_id=account_id,
    )
    account, balances, members, report = await asyncio.gather(
        _account(visit),
        _balances(visit, [account_id]),
        visit.auth.user_admin.ListUsers(members_request),
        if_available(visit.metering.reports.GetReport(report_request)),
    )
    roles = {
        held.user_id: held.membership.role for held in members.memberships if held.membership.account_id == account_id
    }
    return visit.render(
        "operator_account.html",
        refusal=refusal,
        account=account,
        balance=None if balances is None else balances.get(account_id, metering_pb2.Balance()),
        period=period,
        report=report,
        # Grants and adjustments have no class.
        report_rows=[] if report is None else margin_rows([row for row in report.rows if row.class_id], "class", {}),
        places=2 if report is None else places_of(report),
        cost_of=known_cost_nanos,
        margin_of=margin_nanos,
        members=members.users,
        roles_of=roles,
        more_members=bool(members.next_page_token),
        limit_titles=LIMITS,
        all_classes=list(CLASSES),
        allowed=classes_of_account(account),
        kind=visit.form.get("kind") or "grant",
        operation_id=visit.form.get("operation_id") or secrets.token_hex(16),
    )


async def show_keys(visit: Visit) -> Response:
    request = auth_pb2.ListKeysRequest(
        account_id=visit.path_value("account_id"), page_size=KEYS_ON_A_PAGE, page_token=visit.page_token
    )
    account, listed = await asyncio.gather(_account(visit), visit.auth.key_admin.ListKeys(request))
    return visit.render("operator_keys.html", account=account, keys=listed.keys, next_page=listed.next_page_token)


@shows_again(show_one, "requests_per_minute")
async def set_limits(visit: Visit) -> Response:
    with Rules(visit.form) as rules:
        limits: dict[str, Any] = limits_in(rules)
    return await _update(visit, auth_pb2.UpdateAccountRequest(**limits))


@shows_again(show_one, reasons=())
async def set_classes(visit: Visit) -> Response:
    with Rules(visit.form) as rules:
        allowed = classes_in(rules, CLASSES)
    request = auth_pb2.UpdateAccountRequest(allowed_classes=allowed, allow_all_classes=allowed is None)
    return await _update(visit, request)


async def _update(visit: Visit, request: auth_pb2.UpdateAccountRequest) -> Response:
    request.account_id = visit.path_value("account_id")
    await visit.auth.accounts.UpdateAccount(request)
    return visit.redirect(_path(visit), "account-changed")


async def show_spending(visit: Visit, refusal: Refusal | None = None) -> Response:
    account, spends = await asyncio.gather(
        _account(visit), spend_limits.read_spends(visit, visit.path_value("account_id"))
    )
    limited = [key_id for key_id, spend in (spends or {}).items() if key_id and spend_limits.limited_meters(spend)]
    return visit.render(
        "operator_spend_limits.html",
        refusal=refusal,
        account=account,
        form=spend_limits.SpendForm.of(spends, spend_limits.WHOLE_ACCOUNT),
        limited_keys=len(limited),
    )


@shows_again(show_spending, "day")
async def set_spending(visit: Visit) -> Response:
    limits, account_id = spend_limits.limits_in(visit.form), visit.path_value("account_id")
    # Before the audit log is written, as for credit.
    visit.require_step_up()
    message = await spend_limits.checked(visit, account_id, spend_limits.WHOLE_ACCOUNT, limits)
    await visit.record_operator_action(pb.OPERATOR_ACTION_SET_SPEND_LIMITS, account_id, account_id)
    await spend_limits.set_limits(visit, account_id, limits)
    return visit.redirect(f"{_path(visit)}/spend-limits", message)


@shows_again(
    show_one,
    "amount",
    reasons=(Reason.REQUEST_INVALID, Reason.NOT_FOUND, Reason.CREDITS_EXHAUSTED, Reason.CREDITS_HELD),
)
async def book_credit(visit: Visit) -> Response:
    """Books a grant, or an adjustment with a reason. The form has the id of its booking: however often it is sent, it
    is booked once."""
    amount_nanos, is_grant = _booked_amount(visit.form), visit.form.get("kind") == "grant"
    account_id, operation_id = visit.path_value("account_id"), visit.form.get("operation_id")
    booked: Any = {"operation_id": operation_id, "account_id": account_id, "amount_nanos": amount_nanos}
    # Before the audit log is written: what was asked for is then noted once, when it is done.
    visit.require_step_up()
    action = pb.OPERATOR_ACTION_GRANT_CREDIT if is_grant else pb.OPERATOR_ACTION_ADJUST_CREDIT
    try:
        amount, booking_id = Change("amount_nanos", None, amount_nanos), f"{visit.who.user.user_id}-{operation_id}"
        await visit.record_operator_action(action, account_id, booking_id, amount)
        if is_grant:
            await visit.metering.credit_admin.GrantCredits(metering_pb2.GrantCreditsRequest(**booked))
        else:
            adjustment = metering_pb2.AdjustCreditsRequest(**booked, reason=visit.form.get("reason"))
            await visit.metering.credit_admin.AdjustCredits(adjustment)
    except LegatoError as error:
        if error.reason is not Reason.UNAVAILABLE:
            raise
        raise Refusal({"outcome": _(UNKNOWN_OUTCOME)}, status=503) from None
    return visit.redirect(_path(visit), "credit-booked")


def _booked_amount(form: Form) -> int:
    """Reads how much is booked, in nano-dollars, and checks the rest of the form."""
    kind, wrong = form.get("kind"), _("An amount in dollars with up to nine decimals, such as 5.00.")
    with Rules(form) as rules:
        rules.require(bool(form.get("amount")), "amount", wrong)
        amount_nanos: int = rules.parse(parse_dollars, "amount", wrong, 0)
        if kind not in ("grant", "adjustment"):
            rules.problems["kind"] = _("Choose a grant or an adjustment.")
        elif not rules.problems and kind == "grant" and amount_nanos <= 0:
            rules.problems["amount"] = _("A grant is more than zero. To take credit away, choose an adjustment.")
        elif not rules.problems and not amount_nanos:
            rules.problems["amount"] = _("An adjustment is not zero.")
        rules.require(abs(amount_nanos) <= LARGEST_BOOKING_NANOS, "amount", _("At most a million dollars at once."))
        if not rules.problems:
            rules.require(form.get("amount_again") == form.get("amount"), "amount_again", _("The two amounts differ."))
        if kind == "adjustment":
            is_given = 1 <= len(form.get("reason")) <= LONGEST_REASON
            rules.require(is_given, "reason", _("An adjustment needs a reason, which the ledger keeps."))
    return amount_nanos


async def suspend(visit: Visit) -> Response:
    request = auth_pb2.SuspendAccountRequest(account_id=visit.path_value("account_id"))
    await visit.auth.accounts.SuspendAccount(request)
    return visit.redirect(_path(visit), "account-suspended")


async def resume(visit: Visit) -> Response:
    request = auth_pb2.ResumeAccountRequest(account_id=visit.path_value("account_id"))
    await visit.auth.accounts.ResumeAccount(request)
    return visit.redirect(_path(visit), "account-resumed")


async def _account(visit: Visit) -> auth_pb2.Account:
    request = auth_pb2.GetAccountRequest(account_id=visit.path_value("account_id"))
    return (await visit.auth.accounts.GetAccount(request)).account


async def _balances(visit: Visit, account_ids: list[str]) -> dict[str, metering_pb2.Balance] | None:
    """Returns balances by account; None if metering does not answer."""
    request = metering_pb2.ListBalancesRequest(account_ids=account_ids)
    found = await if_available(visit.metering.credit_admin.ListBalances(request))
    return None if found is None else {balance.account_id: balance for balance in found.balances}


def _path(visit: Visit) -> str:
    return f"/operator/accounts/{visit.path_value('account_id')}"
