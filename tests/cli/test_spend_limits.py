import click
import pytest
from click.testing import CliRunner

from cli.spend_limits import spend_limit_options, to_spend_limits
from legato_protos.metering.v1.spend_limits_pb2 import SpendLimits


def test_periods_that_are_not_named_stay_as_they_are_and_none_takes_a_limit_away() -> None:
    known = SpendLimits(day_nanos=5, month_nanos=70)
    assert to_spend_limits(known, {"day": 0, "month": -1, "total": None}) == SpendLimits(day_nanos=0)
    assert known == SpendLimits(day_nanos=5, month_nanos=70)


@pytest.mark.parametrize("given", ["-1", "five", "1000001"])
def test_an_amount_that_is_no_limit_is_refused_by_its_option(given: str) -> None:
    @click.command()
    @spend_limit_options
    def command(**amounts: int | None) -> None:
        click.echo(sorted(amounts.items()))

    refused = CliRunner().invoke(command, [f"--month={given}"])
    assert refused.exit_code == 2
    assert "--month" in refused.stderr
    assert CliRunner().invoke(command, ["--day", "2.50", "--total", "none"]).output == (
        "[('day', 2500000000), ('month', None), ('total', -1)]\n"
    )
