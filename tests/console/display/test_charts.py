"""Charts as SVG."""

import re
from datetime import date

import pytest

from console.display.charts import CostChart, Series, cost_chart, round_up

DOLLAR = 1_000_000_000


def test_a_name_in_a_chart_is_text_whatever_it_looks_like() -> None:
    days = [date(2026, 11, 1), date(2026, 11, 2)]
    svg = cost_chart(days, {"</title><script>": {days[0]: 5}}, ["1", "2"]).svg
    assert "&lt;/title&gt;&lt;script&gt;" in svg
    assert "<script" not in svg


def test_a_chart_draws_every_cost_and_tells_it() -> None:
    days = [date(2026, 11, day) for day in (15, 16, 17)]
    costs = {"forte": {days[0]: DOLLAR}, "mezzo": {days[0]: 2 * DOLLAR, days[2]: 1}}
    chart = cost_chart(days, costs, ["Sunday", "Monday", "Tuesday"])
    assert [series.name for series in chart.series] == ["mezzo", "forte"]
    assert chart.day_totals == [3 * DOLLAR, 0, 1]
    drawn = str(chart.svg)
    assert drawn.count("<rect") == 3
    assert "Sunday: mezzo $2.00, forte $1.00" in drawn


def test_many_series_are_drawn_in_five_colours_and_add_up() -> None:
    when = date(2026, 11, 17)
    chart = cost_chart([when], {f"class-{number}": {when: number} for number in range(1, 9)}, ["Tuesday"])
    assert len(chart.series) == 5
    assert chart.total == sum(range(1, 9))


@pytest.mark.parametrize(("nanos", "top"), [(0, 0), (1, 1), (3, 5), (180, 200), (501, 1000)])
def test_an_axis_ends_at_a_round_figure(nanos: int, top: int) -> None:
    assert round_up(nanos) == top


def test_a_class_has_its_colour_whatever_it_costs_and_no_two_series_share_one() -> None:
    when = date(2026, 11, 17)
    for dearest in ("mezzo", "forte", "fortissimo"):
        names = ("forte", "fortissimo", "mezzo", "old", "older", "oldest")
        costs = {name: {when: 2 if name == dearest else 1} for name in names}
        shown = cost_chart([when], costs, ["Tuesday"]).series
        colours = {series.name: series.colour for series in shown}
        assert [colours[name] for name in ("mezzo", "forte", "fortissimo")] == [1, 2, 3]
        assert sorted(colours.values()) == [1, 2, 3, 4, 5]
        alone = cost_chart([when], {dearest: {when: 1}}, ["Tuesday"])
        assert alone.series[0].colour == colours[dearest]
        assert f'class="s{colours[dearest]}"' in alone.svg


def test_what_is_no_part_of_a_sum_is_not_added_up() -> None:
    most, half = Series("95 of 100", (400,), 2), Series("Half", (300,), 1)
    chart = CostChart((date(2026, 11, 17),), (most, half), ("Tuesday",), has_whole_titles=True, is_sum=False)
    assert chart.top == 500
    # Both stand on the ground.
    bars = re.findall(r'y="([\d.]+)" width="[\d.]+" height="([\d.]+)"', chart.svg)
    assert [float(y) + float(height) for y, height in bars] == [200, 200]
    assert [float(height) for _y, height in bars] == [160, 120]
