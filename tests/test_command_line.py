import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tessella.claims.catalogue import load
from tessella.cli.fields import changed
from tessella.cli.main import main
from tessella.dynamics.realistic import Realistic
from tessella.runs.environment import environment


def test_help_imports_none_of_the_slow_libraries() -> None:
    script = "import sys; from tessella.cli.main import parser; parser().format_help(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "numpy", "scipy", "matplotlib", "rich"} & set(loaded)


def test_an_unknown_claim_is_one_line_and_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "nonsense"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("tessella: claim: got 'nonsense', expected one of fig1")
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["verify", "fig1b", "--seeds", "0"], "got '0', expected a whole number of at least 1"),
        (["verify", "fig1b", "--seeds", "x"], "got 'x'"),
        (["nothing"], "invalid choice: 'nothing'"),
        ([], "required: COMMAND"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1


@pytest.mark.parametrize("device", ["gpu7", "meta", "cuda:99"])
def test_an_unknown_device_is_named(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "fig1b", "--device", device]) == 2
    assert f"device: got '{device}'" in capsys.readouterr().err


def test_json_on_standard_output_is_json_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "fig1b", "--json", "-"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert record["claim"] == "fig1b"
    assert record["holds"] is True
    assert record["environment"] == dataclasses.asdict(environment())


def test_a_claim_that_does_not_hold_exits_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tessella.claims import catalogue, verify
    from tessella.claims.claim import Bar

    claim = catalogue.load("fig1b")
    impossible = dataclasses.replace(claim, bars=lambda setup: (Bar("contiguous_blocks", ">", 1.0, why_not="no"),))
    monkeypatch.setattr(verify, "load", lambda claim_id: impossible)
    assert main(["verify", "fig1b"]) == 1
    assert "contiguous_blocks is 1, the bar is > 1 (mean): no" in " ".join(capsys.readouterr().out.split())


def test_save_writes_a_file_a_claim_with_its_command(tmp_path: Path) -> None:
    assert main(["verify", "fig1b", "--save", str(tmp_path)]) == 0
    record = json.loads((tmp_path / "fig1b.json").read_text())
    assert record["command"] == "tessella verify fig1b --seeds 5"


def test_a_field_that_one_claim_has_anyway_still_counts_for_the_next(tmp_path: Path) -> None:
    main(["verify", "fig1b", "fig3", "--save", str(tmp_path), "--set", "side=4"])
    assert {path.name for path in tmp_path.iterdir()} == {"fig1b.json", "fig3-side=4.json"}
    assert json.loads((tmp_path / "fig1b.json").read_text())["command"] == "tessella verify fig1b --seeds 5"
    assert json.loads((tmp_path / "fig3-side=4.json").read_text())["command"].endswith("--seeds 5 --set side=4")


def test_a_verdict_is_saved_as_soon_as_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tessella.cli.progress.Bars.say", stop)
    assert main(["verify", "fig1b", "fig3", "--save", str(tmp_path)]) == 130
    assert [path.name for path in tmp_path.iterdir()] == ["fig1b.json"]


def test_a_place_that_cannot_be_written_to_fails_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    assert main(["verify", "thm4.2", "--page", str(tmp_path / "file")]) == 2
    assert "which is a file" in capsys.readouterr().err
    assert main(["verify", "thm4.2", "--json", str(tmp_path / "file" / "x.json")]) == 2
    assert (tmp_path / "file").read_text() == "mine"


def test_list_names_every_claim(capsys: pytest.CaptureFixture[str]) -> None:
    from tessella.claims.catalogue import MODULES

    assert main(["list"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in MODULES)


def test_train_keeps_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fields = ["points=500", "test_points=100", "grid=(4, 4)", "dim=4", "descent.steps=5"]
    arguments = [part for field in fields for part in ("--set", field)]
    assert main(["train", "signal-sets", "--folder", str(tmp_path / "a"), *arguments]) == 0
    assert json.loads((tmp_path / "a/result.json").read_text())["problem"]["points"] == 500
    assert main(["train", "signal-sets", "--folder", str(tmp_path / "a")]) == 2
    assert "holds another run" in capsys.readouterr().err


def test_train_that_diverges_names_the_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fields = ["points=500", "test_points=100", "grid=(4, 4)", "dim=4", "descent.rate_value=90.0"]
    arguments = [part for field in fields for part in ("--set", field)]
    assert main(["train", "signal-sets", "--folder", str(tmp_path / "a"), *arguments]) == 1
    printed = capsys.readouterr().err
    assert "rate_value: got 90" in printed
    assert printed.count("\n") == 1


def test_fields_reach_into_nested_configs() -> None:
    problem = changed(Realistic(), ["points=5", "descent.steps=7", "sets=random", "noise=None", "linear=1"])
    assert (problem.points, problem.descent.steps, problem.sets, problem.noise, problem.linear) == (
        5,
        7,
        "random",
        None,
        1.0,
    )


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("points", "got 'points', expected field=value"),
        ("colour=red", "got the field 'colour', expected one of sets, grid"),
        ("points=many", "got points=many, expected int"),
        ("points=1.5", "got points=1.5, expected int"),
        ("grid=(4, 4, 4)", "got grid="),
        ("sets=rings", "got sets=rings, expected"),
        ("points.x=1", "points has no fields"),
    ],
)
def test_a_wrong_field_is_named(assignment: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"^set: ") as stopped:
        changed(Realistic(), [assignment])
    assert message in str(stopped.value)


def test_every_public_name_is_where_the_package_says() -> None:
    import tessella

    for name in tessella.__all__:
        assert getattr(tessella, name).__name__ == tessella._RENAMED.get(name, name)
    assert dir(tessella) == tessella.__all__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tessella.nothing


def test_a_changed_set_up_is_run_recorded_and_saved_beside_the_claim_s_own(tmp_path: Path) -> None:
    assert main(["verify", "fig3", "--save", str(tmp_path), "--set", "dim=9"]) == 0
    record = json.loads((tmp_path / "fig3-dim=9.json").read_text())
    assert record["config"]["dim"] == 9
    assert record["command"].endswith(" --set dim=9")
    assert not (tmp_path / "fig3.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "dimension=9"], "fig3: set: got the field 'dimension', expected one of "),
        (["--data", "cifar100=somewhere"], "data: got 'cifar100=somewhere', but fig3 reads no images"),
    ],
)
def test_a_field_or_data_that_a_claim_lacks_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", "fig3", *arguments]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1


def test_fields_reach_into_the_cases_of_a_claim_by_place_and_by_name() -> None:
    setup = changed(load("thm4.2").full, ["cases.1.problem.spurious=0.3", "cases.1.problem.descent.steps=7"])
    assert setup.cases[0] == load("thm4.2").full.cases[0]
    assert setup.cases[1].problem.spurious == 0.3
    assert setup.cases[1].problem.descent.steps == 7
    figure = changed(load("fig2").default, ["settings.gram.diagonal=2"])
    assert figure.settings["gram"].diagonal == 2.0
    assert figure.settings["free_from_3"] == load("fig2").default.settings["free_from_3"]
    with pytest.raises(ValueError, match=r"cases\.2\.error.*expected one of cases\.0\.problem\.sets"):
        changed(load("thm4.2").full, ["cases.2.error=1"])
    with pytest.raises(ValueError, match=r"'settings\.gram'.*expected one of"):
        changed(load("fig2").default, ["settings.gram=3"])
    with pytest.raises(ValueError, match="points: got 0, expected at least 1"):
        changed(load("thm4.2").default, ["cases.0.problem.points=0"])


def test_a_tuple_of_pairs_is_given_as_its_default_reads() -> None:
    assert changed(load("lem4.3").default, ["worlds=((64, 4),)"]).worlds == ((64, 4),)


def test_tuples_of_any_length_are_fields_too() -> None:
    @dataclasses.dataclass(frozen=True)
    class Sizes:
        sizes: "tuple[int, ...]" = (1, 2)

    assert changed(Sizes(), ["sizes=(2, 8, 32)"]) == Sizes((2, 8, 32))
    with pytest.raises(ValueError, match=r"set: got sizes=\(2, 'x'\), expected tuple"):
        changed(Sizes(), ["sizes=(2, 'x')"])
