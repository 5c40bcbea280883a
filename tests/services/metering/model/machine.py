"""Whatever comes to two replicas, in whichever order, at once or twice: their books are those of the model."""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, Final, NamedTuple, NoReturn

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from msgspec.structs import replace

from services.metering.credit.ledger.spend import InheritSpendLimits, SetSpendLimits, SpendLimits
from services.metering.credit.records import (
    Adjust,
    Checkpoint,
    CreditOperation,
    Extend,
    Grant,
    Operation,
    RequestOperation,
    Reserve,
    RestorePayment,
    ReturnPayment,
    Settle,
    Settled,
    Sweep,
    Void,
)
from services.metering.settings import MeteringSettings
from services.rules.usage import Usage
from tests.services.metering.model import strategies
from tests.services.metering.model.model import Model
from tests.services.metering.model.records import Refusal
from tests.services.metering.model.replicas import CLOCK, VERSIONS, Replicas
from tests.services.metering.model.rows import broken_bounds, differences
from tests.services.metering.samples import KEY

_examples: Final = count(1)


class Violation(AssertionError):
    pass


class Asked(NamedTuple):
    operation: Operation[Any]
    replica: int
    answer: Any


class Machine(RuleBasedStateMachine):
    def __init__(self, replicas: Replicas) -> None:
        super().__init__()
        self._replicas = replicas
        CLOCK.go_to_the_end_of_a_month()
        replicas.create_partitions()
        self._model = Model(VERSIONS, CLOCK.now_us)
        # The database goes on from example to example: each has accounts and requests of its own.
        self._example = next(_examples)
        self._accounts = [f"{self._example}-a1", f"{self._example}-a2"]
        self._rows = replicas.rows(self._accounts)
        self._history: list[Operation[Any]] = []
        self._newest = 0
        self._settled: dict[str, Settled] = {}

    @initialize(
        first_nanos=st.integers(50, 700), second_nanos=st.integers(1, 200), replica=strategies.replicas,
        first_reserve=strategies.reserves,
    )  # fmt: skip
    def begin(self, first_nanos: int, second_nanos: int, replica: int, first_reserve: Reserve) -> None:
        self._ask(self._owned([Grant("first", "a1", first_nanos)]), self._owned([Grant("second", "a2", second_nanos)]))
        self._ask_one(replica, [first_reserve])

    @rule(replica=strategies.replicas, operation=strategies.grants)
    def grant(self, replica: int, operation: Grant) -> None:
        self._ask_one(replica, [operation])

    @rule(replica=strategies.replicas, operation=strategies.adjusts)
    def adjust(self, replica: int, operation: Adjust) -> None:
        self._ask_one(replica, [operation])

    @rule(replica=strategies.replicas, operations=st.lists(st.one_of(strategies.returns, strategies.restores)))
    def return_payments(self, replica: int, operations: list[ReturnPayment | RestorePayment]) -> None:
        self._ask_one(replica, operations)

    @rule(
        before=strategies.new_reserves, refund=strategies.returns, replica=strategies.replicas,
        end=st.one_of(strategies.settles, strategies.voids), after=strategies.new_reserves, top_up=strategies.grants,
    )  # fmt: skip
    def return_what_is_held(
        self, before: Reserve, refund: ReturnPayment, replica: int, end: Settle | Void, after: Reserve, top_up: Grant
    ) -> None:
        """What a running request releases, and what comes later, pays what is owed before anything else."""
        self._ask_one(replica, [before, replace(refund, account_id="a1")])
        for operations in ([after], [replace(end, request_id="0", account_id="own")], [top_up], [after]):
            self._ask_one(replica, operations)

    @rule(replica=strategies.replicas, operation=strategies.spend_limits)
    def limit_spending(self, replica: int, operation: SetSpendLimits) -> None:
        self._ask_one(replica, [operation])

    @rule(replica=strategies.replicas, operation=strategies.inherits)
    def inherit_limits(self, replica: int, operation: InheritSpendLimits) -> None:
        self._ask_one(replica, [operation])

    @rule(replica=strategies.replicas, operation=strategies.reserves)
    def reserve(self, replica: int, operation: Reserve) -> None:
        self._ask_one(replica, [operation])

    @rule(replica=strategies.replicas, operation=strategies.extends)
    def extend(self, replica: int, operation: Extend) -> None:
        self._ask_one(replica, [operation])

    @rule(
        before=strategies.new_reserves, extends=st.lists(strategies.extends, min_size=2, max_size=3),
        replica=strategies.replicas,
    )  # fmt: skip
    def extend_again(self, before: Reserve, extends: Sequence[Extend], replica: int) -> None:
        """Extends one request to more, or late to less."""
        self._ask_one(replica, [before])
        for each in extends:
            self._ask_one(replica, [replace(each, request_id="0", account_id="own")])

    @rule(replica=strategies.replicas, operation=strategies.checkpoints)
    def checkpoint(self, replica: int, operation: Checkpoint) -> None:
        self._ask_one(replica, [operation])

    @rule(replica=strategies.replicas, operation=strategies.settles)
    def settle(self, replica: int, operation: Settle) -> None:
        self._ask_one(replica, [operation])

    @rule(replica=strategies.replicas, operation=strategies.voids)
    def void(self, replica: int, operation: Void) -> None:
        self._ask_one(replica, [operation])

    @rule(replica=strategies.replicas, operation=strategies.sweeps)
    def sweep_from_an_old_list(self, replica: int, operation: Sweep) -> None:
        self._ask_one(replica, [operation])

    @rule(sweepers=st.sampled_from([(0,), (1,), (0, 1)]))
    def pass_with_sweepers(self, sweepers: Sequence[int]) -> None:
        self._replicas.sweep(*sweepers)
        for request_id, request in self._model.requests.items():
            self._predict(self._model, Sweep(request_id, request.account_id), 0)
        self._model.forget_old_claims()
        self._check([self._model])

    @rule(operation=strategies.new_reserves, delivered=strategies.usages)
    def lose_the_edge(self, operation: Reserve, delivered: Usage) -> None:
        """No edge is left to settle it: it is swept at its last checkpoint."""
        [reserve] = self._owned([operation])
        assert isinstance(reserve, Reserve)
        self._ask(*_queues(1, [reserve, Checkpoint(reserve.request_id, reserve.account_id, delivered)]))
        self.pass_with_sweepers((0,))

    @rule(
        operation=strategies.new_reserves, delivered=strategies.usages, next_one=strategies.new_reserves,
        late=st.one_of(strategies.settles, strategies.of_requests), days=st.sampled_from([0, 0, 1, 31]),
    )  # fmt: skip
    def find_the_journal_late(
        self, operation: Reserve, delivered: Usage, next_one: Reserve, late: Operation[Any], days: int
    ) -> None:
        """Meanwhile another request may have got all of the credit, and another day may have begun."""
        self._top_up()
        self.lose_the_edge(operation, delivered)
        swept = self._history[-1]
        assert isinstance(swept, Reserve)
        self._ask_one(0, [replace(next_one, output_tokens=1_000)])
        if days:
            self.let_days_pass(days)
        self._ask(*_queues(0, [replace(late, request_id=swept.request_id, account_id=swept.account_id)]))

    @rule(
        before=strategies.new_reserves, end=st.one_of(strategies.settles, strategies.voids),
        late=strategies.of_requests, replica=strategies.replicas,
    )  # fmt: skip
    def come_after_the_end(self, before: Reserve, end: Settle | Void, late: Operation[Any], replica: int) -> None:
        self._ask_one(0, [before])
        for each in (end, late):
            self._ask_one(replica, [replace(each, request_id="0", account_id="own")])

    @rule(
        limits=strategies.limits, before=strategies.new_reserves, used=strategies.usages, days=strategies.days,
        after=strategies.new_reserves,
    )  # fmt: skip
    def spend_on_both_sides_of_midnight(
        self, limits: SpendLimits, before: Reserve, used: Usage, days: int, after: Reserve
    ) -> None:
        self._top_up()
        self._ask_one(0, [SetSpendLimits("a1", before.key_id, limits), before])
        self._ask_one(0, [Settle("0", "own", used, "provider", "complete")])
        self.let_days_pass(days)
        self._ask_one(0, [replace(after, key_id=before.key_id)])

    @rule(
        limits=strategies.limits, before=strategies.new_reserves, used=strategies.usages,
        days=st.sampled_from([0, 0, 1]), mine=strategies.new_reserves, theirs=strategies.new_reserves,
        late=strategies.settles,
    )  # fmt: skip
    def rotate_a_key(
        self, limits: SpendLimits, before: Reserve, used: Usage, days: int, mine: Reserve, theirs: Reserve, late: Settle
    ) -> None:
        """Both keys go on for a while, and spend no more together than one might."""
        self._top_up()
        self._ask_one(0, [SetSpendLimits("a1", KEY, limits), replace(before, key_id=KEY)])
        self._ask_one(1, [InheritSpendLimits("a1", strategies.NEW_KEY, SpendLimits(), replaced_key_id=KEY)])
        self._ask_one(0, [Settle("0", "own", used, "provider", "complete")])
        if days:
            self.let_days_pass(days)
        new = replace(theirs, key_id=strategies.NEW_KEY)
        self._ask(self._owned([replace(mine, key_id=KEY)]), self._owned([new]))
        self._ask_one(0, [late])

    @rule(days=strategies.days)
    def let_days_pass(self, days: int) -> None:
        CLOCK.let_days_pass(days)
        self._replicas.create_partitions()
        self._model.let_days_pass(CLOCK.now_us)
        self._check([self._model])

    @rule(policy=strategies.policies, killed_at=strategies.failpoints_of_retention)
    def let_a_month_pass(self, policy: MeteringSettings, killed_at: str) -> None:
        """It is closed, and what the policy does not keep is pruned, though the process may be killed on the way."""
        CLOCK.begin_month()
        self._replicas.create_partitions()
        self._replicas.sweep(0)
        self._model.let_a_month_pass(CLOCK.now_us)
        self._check([self._model])
        if not self._replicas.retain(policy, killed_at):
            if violations := self._replicas.audit():
                self._fail("\n".join(violations))
            self._replicas.retain(policy, "")
        if policy.retention_holds_days:
            self._model.prune_requests()
        self._check([self._model])
        # No client repeats a request after so long: those from before are not named again.
        self._newest += 10
        self._history.clear()

    @rule(replica=strategies.replicas, back=st.integers(1, 6))
    def repeat(self, replica: int, back: int) -> None:
        if self._history:
            self._ask(*_queues(replica, self._history[-back:][:1]))

    @rule(replica=strategies.replicas, batch=st.lists(strategies.operations, min_size=2, max_size=6))
    def come_together(self, replica: int, batch: Sequence[Operation[Any]]) -> None:
        self._ask_one(replica, batch)

    @rule(mine=strategies.batches, theirs=strategies.batches)
    def come_to_both_at_once(self, mine: Sequence[Operation[Any]], theirs: Sequence[Operation[Any]]) -> None:
        self._ask(self._owned(mine), self._owned(theirs))

    @rule(mine=st.integers(1, 3), theirs=st.integers(0, 2), at_once=st.integers(1, 3))
    def come_in_a_crowd(self, mine: int, theirs: int, at_once: int) -> None:
        """All with one key, of which only so many may run."""
        new = Reserve("-1", "own", KEY, "mezzo", 1, 1, concurrent_requests=at_once)
        self._ask(self._owned([new] * mine), self._owned([new] * theirs))

    @rule(batch=strategies.batches)
    def come_twice_at_once(self, batch: Sequence[Operation[Any]]) -> None:
        batch = self._owned(batch)
        self._ask(batch, batch)

    @rule(
        replica=strategies.replicas, before=strategies.new_reserves,
        first=st.one_of(strategies.settles, strategies.of_requests), rest=st.lists(strategies.operations, max_size=2),
        statements=st.integers(2, 12),
    )  # fmt: skip
    def come_to_one_that_is_killed(
        self, replica: int, before: Reserve, first: Operation[Any], rest: Sequence[Operation[Any]], statements: int
    ) -> None:
        self._top_up()
        self._ask_one(replica, [before])
        batch = self._owned([replace(first, request_id="0", account_id="own"), *rest])
        answers = self._replicas.kill(replica, batch, statements)
        if answers is not None:
            self._explain([_asked(batch, replica, answers)])
        elif self._replicas.rows(self._accounts) != self._rows:
            self._fail("a transaction that was not committed left something")

    def _fail(self, violation: str) -> NoReturn:
        self._replicas.spoiled = True
        raise Violation(violation)

    def _owned(self, batch: Sequence[Operation[Any]]) -> list[Operation[Any]]:
        """Sets ids that no other example uses."""
        owned = [self._own(operation) for operation in batch]
        self._history += owned
        return owned

    def _own(self, operation: Operation[Any]) -> Operation[Any]:
        own = f"{self._example}-"
        if isinstance(operation, RestorePayment):
            operation = replace(operation, return_id=own + operation.return_id)
        if isinstance(operation, CreditOperation):
            return replace(operation, operation_id=own + operation.operation_id, account_id=own + operation.account_id)
        if isinstance(operation, SetSpendLimits):
            return replace(operation, account_id=own + operation.account_id)
        assert isinstance(operation, RequestOperation)
        number = max(1, self._newest - int(operation.request_id))
        if isinstance(operation, Reserve):
            self._newest = max(self._newest, number)
        # Every fifth is of the second account.
        is_of_the_second = (number % 5 == 0) != (operation.account_id == "other")
        account_id = "a2" if is_of_the_second else "a1"
        return replace(operation, request_id=f"{own}r{number}", account_id=own + account_id)

    def _top_up(self) -> None:
        self._ask_one(0, [Grant(f"top-up-{len(self._history)}", "a1", 300)])

    def _ask_one(self, replica: int, batch: Sequence[Operation[Any]]) -> None:
        self._ask(*_queues(replica, self._owned(batch)))

    def _ask(self, *queues: Sequence[Operation[Any]]) -> None:
        answers = self._replicas.ask(*queues)
        self._explain([_asked(queues[replica], replica, answers[replica]) for replica in (0, 1)])

    def _explain(self, queues: list[list[Asked]]) -> None:
        possible = list(self._orders(self._model, queues))
        asked = [each for queue in queues for each in queue]
        if not possible:
            self._fail(f"in no order does the model answer like this: {asked}; it had {self._model.requests}")
        before = self._rows
        self._check(possible)
        if all(isinstance(each.answer, Refusal) for each in asked) and before != self._rows:
            self._fail(f"a refusal left something: {asked}")
        for operation, _, answer in asked:
            if not isinstance(answer, Settled):
                continue
            assert isinstance(operation, Settle)
            if self._settled.setdefault(operation.request_id, answer) != answer:
                self._fail(f"{operation} was first answered {self._settled[operation.request_id]}, now {answer}")

    def _orders(self, model: Model, queues: Sequence[Sequence[Asked]]) -> Iterator[Model]:
        """The model after each order that explains every answer; each replica keeps to its own order."""
        if not any(queues):
            yield model
        for number, queue in enumerate(queues):
            if queue:
                branch = model.copy()
                if self._predict(branch, queue[0].operation, queue[0].replica) == queue[0].answer:
                    yield from self._orders(branch, [*queues[:number], queue[1:], *queues[number + 1 :]])

    def _predict(self, model: Model, operation: Operation[Any], replica: int) -> Any:
        asked = self._replicas.both[replica]
        return model.answer(operation, asked.price_version, asked.makes_overdue)

    def _check(self, possible: Sequence[Model]) -> None:
        self._rows = self._replicas.rows(self._accounts)
        found = [differences(model, self._rows, self._accounts) for model in possible]
        if [] not in found:
            self._fail("\n".join(found[0]))
        self._model = possible[found.index([])]
        if violations := [*broken_bounds(self._rows), *self._replicas.audit_now_and_then()]:
            self._fail("\n".join(violations))


def _asked(operations: Sequence[Operation[Any]], replica: int, answers: Sequence[Any]) -> list[Asked]:
    return [Asked(operation, replica, answer) for operation, answer in zip(operations, answers, strict=True)]


def _queues(replica: int, batch: Sequence[Operation[Any]]) -> list[Sequence[Operation[Any]]]:
    return [batch if number == replica else [] for number in (0, 1)]
