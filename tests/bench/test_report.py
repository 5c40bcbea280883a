from bench.report import Row, doubts, table


def row(case: str, others_share: float = 0.0, measurement: str = "speed") -> Row:
    return Row(measurement, case, {"a/s": 1234.5, "b ms": 1.234, "c": None}, others_share)


def test_table_has_a_block_for_each_measurement() -> None:
    assert table([row("slow"), row("quick", 0.25), row("soft", measurement="sound")]).splitlines() == [
        "speed    a/s  b ms  c  others",
        "slow   1,234  1.23  -      0%",
        "quick  1,234  1.23  -     25%",
        "",
        "sound    a/s  b ms  c  others",
        "soft   1,234  1.23  -      0%",
    ]


def test_figures_from_a_busy_machine_are_doubted() -> None:
    assert doubts([row("slow"), row("quick", 0.1)]) is None
    doubt = doubts([row("slow"), row("quick", 0.25)])
    assert doubt is not None
    assert "25%" in doubt
