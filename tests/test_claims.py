import dataclasses
import json
import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tessella.claims import catalogue
from tessella.claims.claim import Bar, Claim, Context, Findings, Interval, Verdict
from tessella.claims.verify import Request, _together, check_needs, verify, verify_all
from tessella.runs.environment import environment


@dataclass(frozen=True)
class Setup:
    size: int = 3


def verdict(values: list[float], *bars: Bar) -> Verdict:
    claim = Claim("t", "s", "p", Setup(), Setup(9), lambda setup: bars, lambda setup, context: Findings({"x": values}))
    return Verdict(claim, Setup(), len(values), claim.measure(claim.default, Context()), 0.0, environment())


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=8))
def test_interval_is_students(values: list[float]) -> None:
    interval = Interval.of(values)
    assert interval.mean == pytest.approx(sum(values) / len(values), abs=1e-6)
    spread = stats.sem(values)
    half = spread * stats.t.ppf(0.975, len(values) - 1)
    assert interval.high - interval.mean == pytest.approx(half, rel=1e-6, abs=1e-9)


def test_one_value_is_its_own_interval() -> None:
    assert Interval.of([0.25]) == Interval(0.25, 0.25, 0.25)


@pytest.mark.parametrize(
    ("values", "bar", "holds"),
    [
        ([1.0, 0.8], Bar("x", ">=", 0.9), True),
        ([1.0, 0.8], Bar("x", ">=", 0.9, "every run"), False),
        ([0.5], Bar("x", "<", 0.5), False),
        ([0.5], Bar("x", "<=", 0.5), True),
        ([math.nan, 1.0], Bar("x", ">=", 0.0), False),
        ([math.nan], Bar("x", "<=", 0.0, "every run"), False),
    ],
)
def test_a_verdict_is_computed_from_the_bars(values: list[float], bar: Bar, holds: bool) -> None:
    assert verdict(values, bar).holds is holds


def test_a_missed_bar_gives_its_reason() -> None:
    made = verdict([0.7], Bar("x", ">=", 0.9, why_not="the sample is too small"), Bar("x", "<=", 1.0))
    assert made.reasons == ["x is 0.7, the bar is >= 0.9 (mean): the sample is too small"]
    assert made.as_json()["reasons"] == made.reasons
    assert made.as_json()["missed"] == ["x"]
    assert "reasons" not in verdict([1.0], Bar("x", ">=", 0.9)).as_json()


def test_bars_missed_for_one_reason_are_told_in_one_line() -> None:
    made = verdict([0.7], Bar("x", ">=", 0.9, why_not="too few"), Bar("x", ">", 0.8, why_not="too few"))
    assert made.reasons == ["x is 0.7, the bar is >= 0.9 (mean); x is 0.7, the bar is > 0.8 (mean): too few"]


def test_a_bar_on_every_run_that_is_missed_says_in_how_many() -> None:
    (reason,) = verdict([0.5, 9.0, 0.6], Bar("x", "<", 8.0, "every run")).reasons
    assert reason == "x is 3.367 on average and misses in 1 of 3 runs, the bar is < 8 (every run)"


def test_the_json_has_the_shared_form_and_no_nan() -> None:
    record = verdict([math.nan], Bar("x", ">=", 0.0)).as_json()
    keys = ["claim", "statement", "source", "holds", "seeds", "measured", "bar", "config", "seconds", "environment"]
    assert list(record)[: len(keys)] == keys
    assert record["measured"]["x"] == {"mean": None, "low": None, "high": None, "n": 1}
    json.dumps(record, allow_nan=False)


def test_the_json_keeps_details_where_there_are_some() -> None:
    details = {"runs": [{"seed": 0, "accuracy": math.inf, "loss": (1.5, math.nan)}]}
    plain = verdict([1.0], Bar("x", ">=", 0.9))
    made = dataclasses.replace(plain, findings=Findings({"x": [1.0]}, details=details)).as_json()
    assert made["details"] == {"runs": [{"seed": 0, "accuracy": None, "loss": [1.5, None]}]}
    assert "details" not in plain.as_json()


@pytest.mark.parametrize("claim_id", catalogue.MODULES)
def test_every_claim_says_what_it_is(claim_id: str) -> None:
    claim = catalogue.load(claim_id)
    assert claim.id == claim_id
    assert claim.statement.endswith(".")
    assert claim.source
    assert claim.bars(claim.default)
    assert claim.bars(claim.full)


def test_patterns_select_in_the_catalogues_order() -> None:
    assert catalogue.select(["thm4.2", "fig1?"]) == ["fig1a", "fig1b", "thm4.2"]
    assert catalogue.select([]) == list(catalogue.MODULES)
    with pytest.raises(ValueError, match=r"claim: got 'thm9', expected one of fig1a, "):
        catalogue.select(["thm9"])


def test_a_missing_extra_is_named_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    check_needs(["mim.mae"])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"mim.mae: sklearn is not installed; pip install 'tessella\[digits\]'"):
        check_needs(["fig1b", "mim.mae"])


def test_a_set_up_without_a_bar_holds_nothing() -> None:
    claim = catalogue.load("thm4.1")
    empty = dataclasses.replace(claim.default, worlds=())
    with pytest.raises(ValueError, match=r"thm4.1: got a set-up with nothing to hold against a bar"):
        verify(Request(("thm4.1",), configs={"thm4.1": empty}), "thm4.1", lambda *told: None)


def test_progress_runs_from_0_to_1() -> None:
    told: list[float] = []
    context = Context(progress=lambda fraction, text: told.append(fraction))
    for part in range(3):
        tell = context.part(part, 3, "")
        tell(0.0, "")
        tell(1.0, "")
    assert told == pytest.approx([0, 1 / 3, 1 / 3, 2 / 3, 2 / 3, 1])


def test_claims_that_share_runs_go_to_one_process_and_others_each_to_their_own() -> None:
    ids = catalogue.select(["fig1b", "mim.*"])
    groups = _together(ids)
    assert ("mim.floor", "mim.area", "mim.features") in groups
    assert ("mim.contrastive", "mim.diversity") in groups
    assert ("fig1b",) in groups
    assert sorted(name for group in groups for name in group) == sorted(ids)


def test_claims_in_processes_measure_what_they_do_alone() -> None:
    request = Request(("fig1b", "fig3"), seeds=2)
    alone = {name: verify(request, name, lambda *_: None) for name in request.ids}
    told: list[str] = []
    together = {found.claim.id: found for found in verify_all(request, 2, lambda name, *_: told.append(name))}
    assert together.keys() == alone.keys()
    for name, found in together.items():
        assert found.findings.measured == alone[name].findings.measured
        assert found.cpu_seconds is not None
        assert found.cpu_seconds >= 0
    assert "fig3" in told
