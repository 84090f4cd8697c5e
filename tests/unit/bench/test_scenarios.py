"""The table of load-test scenarios by system."""

from bench.scenarios import Look, Run, cells, failures, growth, markdown
from tests.support.load_results import failed, result


def test_growth_is_that_of_medians_after_the_fifth_minute() -> None:
    looks = [Look(at_s, 1_000 if at_s < 300 else 2_000, 10) for at_s in range(0, 600, 30)]
    assert growth(looks) == (0.0, 0.0)
    grown = [Look(at_s, 2_000 + at_s, 10 if at_s < 500 else 11) for at_s in range(300, 600, 30)]
    memory, files = growth(grown) or (0.0, 0.0)
    assert memory == (2_000 + 540) / (2_000 + 330) - 1
    assert files == 11 / 10 - 1
    assert growth(looks[:10]) is None, "a run of five minutes says nothing"


def test_a_row_names_scenario_system_verdict_and_latencies() -> None:
    name, system, verdict, quantiles, audited, _ = cells(Run("Raylog, 1 broker", result()))
    assert (name, system, verdict) == (result().scenario.name, "Raylog, 1 broker", "passed")
    assert quantiles.startswith("produce ")
    assert audited == f"{result().audit.acknowledged:,}"


def test_failed_runs_are_listed_with_the_reason() -> None:
    runs = [Run("Raylog", result()), Run("Kafka", failed())]
    assert markdown(runs).count("\n") == 4
    lines = failures(runs)
    assert lines
    assert all(line.startswith(f"{failed().scenario.name} on Kafka: ") for line in lines)
