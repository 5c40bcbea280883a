"""Implements the RPCs of accounts: creates, changes, suspends and resumes them, for operators, and for owners what is
theirs to set.

The account of a console's request was compared with its access token's before, unless an operator calls.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from legato_protos.auth.v1 import auth_pb2 as pb
from services.auth.accounts.rules import account_changes
from services.auth.accounts.store import change_account, list_accounts
from services.auth.core import checks, paging
from services.auth.core.codes import mint_id
from services.auth.core.messages import LIMITS, SWITCHES, given, given_classes, to_account
from services.auth.core.paging import Position
from services.auth.core.parts import Domain, is_operator, reads
from services.auth.core.records.accounts import Account
from services.auth.core.store import Connection, add
from services.auth.core.store import accounts as stored
from services.chassis.access_tokens import current_access
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.access_check import role_missing
from services.chassis.rpc.callers import Context
from services.chassis.sentence import Sentence
from services.rules.model_classes import DEFAULT_CLASS


class AccountMethods(Domain):
    async def CreateAccount(self, request: pb.CreateAccountRequest, context: Context) -> pb.CreateAccountResponse:
        by = current_access.get()
        account = Account(mint_id("acct"), checks.name(request.name), self.now_us(), DEFAULT_CLASS)

        def create(connection: Connection) -> None:
            add(connection, account)
            self._audit.append(connection, "account.created", by, account_id=account.account_id)

        await self._database.write(create)
        self._log.info("account.created", account_id=account.account_id)
        return pb.CreateAccountResponse(account=to_account(account, self._service_limits))

    @reads
    def GetAccount(
        self, connection: Connection, request: pb.GetAccountRequest, context: Context
    ) -> pb.GetAccountResponse:
        account = stored.require_account(connection, checks.id_of("account", request.account_id))
        return pb.GetAccountResponse(account=to_account(account, self._service_limits))

    @reads
    def ListAccounts(
        self, connection: Connection, request: pb.ListAccountsRequest, context: Context
    ) -> pb.ListAccountsResponse:
        size, after = paging.page_size(request.page_size), paging.page_token(request.page_token)
        found = list_accounts(connection, after, size + 1, checks.query(request.query))
        page = paging.to_page(found, size, lambda account: Position(account.created_at_us, account.account_id))
        accounts = [to_account(account, self._service_limits) for account in page.items]
        return pb.ListAccountsResponse(accounts=accounts, next_page_token=page.next_token)

    async def UpdateAccount(self, request: pb.UpdateAccountRequest, context: Context) -> pb.UpdateAccountResponse:
        """Changes what is given; returns when that is in effect on every edge. Limits are the operators' to change."""
        limits, grounding = given(request, *LIMITS), given(request, *SWITCHES)
        classes, changes = given_classes(request), dict[str, Any]()
        if limits and not is_operator(current_access.get()):
            raise role_missing()
        if request.HasField("name"):
            changes["name"] = checks.name(request.name)
        if request.HasField("preferred_class"):
            changes["preferred_class"] = checks.preferred_class(request.preferred_class)
        if classes is not None:
            changes["allowed_classes"] = classes
        checked_limits = checks.limits(limits)

        def change(account: Account) -> Account:
            return replace(
                account,
                limits=replace(account.limits, **checked_limits),
                grounding=replace(account.grounding, **grounding),
                **changes,
            )

        return pb.UpdateAccountResponse(account=await self._change("account.updated", request.account_id, change))

    async def SuspendAccount(self, request: pb.SuspendAccountRequest, context: Context) -> pb.SuspendAccountResponse:
        """Suspends an account; returns when every edge refuses its keys. If it is suspended already, its time is
        kept."""
        now_us = self.now_us()

        def suspend(account: Account) -> Account:
            return replace(account, suspended_at_us=account.suspended_at_us or now_us)

        return pb.SuspendAccountResponse(account=await self._change("account.suspended", request.account_id, suspend))

    async def ResumeAccount(self, request: pb.ResumeAccountRequest, context: Context) -> pb.ResumeAccountResponse:
        """Resumes an account; returns when every edge accepts its keys again."""

        def resume(account: Account) -> Account:
            if account.closed_at_us is not None:
                raise LegatoError(Reason.REQUEST_INVALID, Sentence("account_closed"))
            return replace(account, suspended_at_us=None)

        return pb.ResumeAccountResponse(account=await self._change("account.resumed", request.account_id, resume))

    async def _change(self, event: str, account_id: str, change: Callable[[Account], Account]) -> pb.Account:
        by = current_access.get()
        checks.id_of("account", account_id)

        def apply(connection: Connection) -> Account:
            before = stored.lock_account(connection, account_id)
            after = change_account(connection, account_id, change)
            changes = account_changes(before, after)
            self._audit.append(connection, event, by, account_id=account_id, object_id=account_id, changes=changes)
            return after

        account = await self._database.write(apply)
        self._log.info(event, account_id=account_id)
        await self._hold_everywhere()
        return to_account(account, self._service_limits)
