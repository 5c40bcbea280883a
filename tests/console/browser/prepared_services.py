"""What the services know before a page is opened: the account, its use, and which of them do not answer."""

from collections.abc import Callable

from protos.type.v1 import access_token_pb2
from services.rules.model_classes import CLASSES
from tests.console.fakes.operator_services import METRICS
from tests.console.fakes.services import Fakes, not_answering

Prepare = Callable[[Fakes], None]


def nothing(fakes: Fakes) -> None:
    """Leaves the services as they are: an account without any use yet."""


def failing(*methods: str) -> Prepare:
    """Fills the account, and lets RPCs (`Service.Method`) fail."""

    def prepare(fakes: Fakes) -> None:
        fakes.fill()
        fakes.fail = {method: not_answering() for method in methods}

    return prepare


without_metering = failing(
    "MeteringService.ListUsage",
    "MeteringService.GetBalance",
    "StatementService.ListRequests",
    "StatementService.ListLedgerDays",
    "SpendLimitService.ListSpendLimits",
)


def rotate(fakes: Fakes) -> None:
    fakes.fill()
    fakes.add_key("Nightly report", replaces="key_0000000000000001")


def add_many_keys(fakes: Fakes) -> None:
    fakes.fill()
    fakes.add_many_keys(150)


def suspend(fakes: Fakes) -> None:
    fakes.is_suspended = True


def become_viewer(fakes: Fakes) -> None:
    fakes.fill()
    fakes.role = access_token_pb2.ACCOUNT_ROLE_VIEWER


def answer_with_the_bundled_model(fakes: Fakes) -> None:
    fakes.fill()
    fakes.router.bundle(*CLASSES)


def narrow(fakes: Fakes) -> None:
    fakes.fill()
    fakes.allowed_classes = ["mezzo", "fortissimo"]


def grow_stale(fakes: Fakes) -> None:
    fakes.fill()
    fakes.is_fresh = False


def grow_stale_with_a_link_alone(fakes: Fakes) -> None:
    fakes.is_fresh = False


def grow_stale_with_mail(fakes: Fakes) -> None:
    fakes.is_fresh, fakes.methods.mail = False, True


def fill_grounding(fakes: Fakes) -> None:
    fakes.fill()
    fakes.grounding.fill()


def fill_notices(fakes: Fakes) -> None:
    fakes.fill()
    fakes.fill_notices()


def switch_off_grounding(fakes: Fakes) -> None:
    fakes.grounding.fill()
    fakes.switches = dict.fromkeys(fakes.switches, False)


def unconfigure_grounding(fakes: Fakes) -> None:
    fakes.grounding.is_configured = False


def grow_stale_with_all_ways(fakes: Fakes) -> None:
    fakes.offer_everything()
    fakes.is_fresh = False


def pay(fakes: Fakes) -> None:
    fakes.payments.pay()


def owe(fakes: Fakes) -> None:
    fakes.metering.owe(4_350_000_000)


def wait_for_the_money(fakes: Fakes) -> None:
    fakes.fill()
    fakes.payments.begin_checkout("complete")


def leave_the_checkout(fakes: Fakes) -> None:
    fakes.fill()
    fakes.payments.begin_checkout()


def leave_all_accounts(fakes: Fakes) -> None:
    fakes.has_account = False


# Pages of a signed-in user: the path, and what the services know.
def fill_operator(fakes: Fakes) -> None:
    fakes.operator.fill()


def fill_dead_letters(fakes: Fakes) -> None:
    fakes.operator.fill()
    fakes.fill_dead_letters()


def fill_operator_with_limits(fakes: Fakes) -> None:
    fakes.fill()
    fakes.operator.fill()


def change_routes(fakes: Fakes) -> None:
    fakes.operator.fill()
    fakes.router.write(limits={"maple-small": 64, "maple-large": 64})


def break_operator(fakes: Fakes) -> None:
    fakes.operator.fill()
    fakes.fail = {
        name: not_answering() for name in ("CreditAdminService.ListBalances", "RouteAdminService.ListTargets")
    }
    fakes.operator.missing = {"edge-2": ["auth", "metering"]}
    fakes.operator.metrics["metering"] = METRICS["metering"]().replace("violations 0.0", "violations 2.0")
