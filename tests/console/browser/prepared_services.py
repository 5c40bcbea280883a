"""What the services know before a page is opened: the account, its use, and which of them do not answer."""

from collections.abc import Callable

from services.auth.core.messages import SWITCHES
from services.auth.core.records.accounts import ClassAllowance
from services.chassis.access_tokens import AccountRole
from services.rules.model_classes import CLASSES
from tests.console.auth_rows import MEMBER_ID, USER_ID
from tests.console.backends import Backends, not_answering
from tests.console.clock import NOW_US
from tests.console.metering import DOLLAR
from tests.console.processes import METRICS

Prepare = Callable[[Backends], None]


def nothing(backends: Backends) -> None:
    """Leaves the services as they are: an account without any use yet."""


def failing(*methods: str) -> Prepare:
    """Fills the account, and lets RPCs (`Service.Method`) fail."""

    def prepare(backends: Backends) -> None:
        backends.fill()
        backends.fail = {method: not_answering() for method in methods}

    return prepare


without_metering = failing(
    "MeteringService.ListUsage",
    "ChatOutcomeService.GetChatOutcomes",
    "MeteringService.GetBalance",
    "StatementService.ListRequests",
    "StatementService.ListLedgerDays",
    "SpendLimitService.ListSpendLimits",
    "StatementService.ListPrices",
)


def rotate(backends: Backends) -> None:
    backends.fill()
    backends.auth.add_key("Nightly report (2)", replaces_key_id="key_0000000000000001")


def add_many_keys(backends: Backends) -> None:
    backends.fill()
    backends.add_many_keys(150)


def suspend(backends: Backends) -> None:
    backends.auth.change_account(suspended_at_us=NOW_US)


def become_member(backends: Backends) -> None:
    backends.fill()
    backends.auth.set_role(AccountRole.MEMBER)


def open_the_playground(backends: Backends) -> None:
    backends.fill()
    backends.auth.add_key("Playground", playground_user_id=USER_ID, pepper_version=0)


def become_viewer(backends: Backends) -> None:
    backends.fill()
    backends.auth.set_role(AccountRole.VIEWER)


def have_another_owner(backends: Backends) -> None:
    backends.fill()
    backends.auth.set_role(AccountRole.OWNER, MEMBER_ID)


def begin_to_close(backends: Backends) -> None:
    """Has a closing end where the router does not answer."""
    fill_grounding(backends)
    backends.auth.change_account(closed_at_us=NOW_US, suspended_at_us=NOW_US)
    backends.fail = {"GroundingAdminService.ListNotes": not_answering()}


def answer_with_the_bundled_model(backends: Backends) -> None:
    backends.fill()
    backends.router.bundle(*CLASSES)


def narrow(backends: Backends) -> None:
    backends.fill()
    backends.auth.change_account(allowed_classes=ClassAllowance(("mezzo", "fortissimo")))


def grow_stale(backends: Backends) -> None:
    backends.fill()
    backends.auth.grow_stale()


def grow_stale_with_a_link_alone(backends: Backends) -> None:
    backends.auth.grow_stale()


def grow_stale_with_mail(backends: Backends) -> None:
    backends.auth.offer("mail")
    backends.auth.grow_stale()


def fill_grounding(backends: Backends) -> None:
    backends.fill()
    backends.grounding.fill()


def fill_notices(backends: Backends) -> None:
    backends.fill()
    backends.fill_notices()


def switch_off_grounding(backends: Backends) -> None:
    backends.grounding.fill()
    backends.auth.change_account(**dict.fromkeys(SWITCHES, False))


def unconfigure_grounding(backends: Backends) -> None:
    backends.grounding.is_configured = False


def grow_stale_with_all_ways(backends: Backends) -> None:
    backends.offer_everything()
    backends.auth.grow_stale()


def pay(backends: Backends) -> None:
    backends.payments.pay()


def run_out_of_credit(backends: Backends) -> None:
    backends.fill()
    backends.metering.leave(0)


def run_low_on_credit(backends: Backends) -> None:
    backends.fill()
    backends.metering.leave(DOLLAR // 2)


def suspend_without_credit(backends: Backends) -> None:
    run_out_of_credit(backends)
    suspend(backends)


def become_viewer_without_credit(backends: Backends) -> None:
    run_out_of_credit(backends)
    backends.auth.set_role(AccountRole.VIEWER)
    backends.auth.set_role(AccountRole.OWNER, MEMBER_ID)


def measure_models(backends: Backends) -> None:
    backends.fill()
    backends.router.be_measured()


def owe(backends: Backends) -> None:
    backends.metering.owe(4_350_000_000)


def wait_for_the_money(backends: Backends) -> None:
    backends.fill()
    backends.payments.begin_checkout("complete")


def leave_the_checkout(backends: Backends) -> None:
    backends.fill()
    backends.payments.begin_checkout()


def leave_all_accounts(backends: Backends) -> None:
    backends.auth.leave_account()


# Pages of a signed-in user: the path, and what the services know.
def fill_operator(backends: Backends) -> None:
    backends.fill_operator()


def fill_dead_letters(backends: Backends) -> None:
    backends.fill_operator()
    backends.auth.fill_dead_letters()


def fill_operator_with_limits(backends: Backends) -> None:
    backends.fill()
    backends.fill_operator()


def change_routes(backends: Backends) -> None:
    backends.fill_operator()
    backends.router.write(limits={"maple-small": 64, "maple-large": 64})


def evaluate_models(backends: Backends) -> None:
    backends.fill_operator()
    backends.router.evaluate()


def break_operator(backends: Backends) -> None:
    backends.fill_operator()
    backends.fail = {
        name: not_answering() for name in ("CreditAdminService.ListBalances", "RouteAdminService.ListTargets")
    }
    backends.processes.missing = {"edge-2": ["auth", "metering"]}
    backends.processes.metrics["metering"] = METRICS["metering"]().replace("violations 0.0", "violations 2.0")
