"""The benchmark's own counts: operations and bytes of the floor, and the two sides computing what they say."""

import pytest
import torch

from tessella.bench.attention import CPU_SIZES, GPU_SIZES, Size, core
from tessella.bench.benchmark import Case, record, side_by_side
from tessella.report.figures import save
from tessella.report.speed import speed


def test_operations_are_what_torch_counts():
    from torch.utils.flop_counter import FlopCounterMode

    size = Size(2, 3, 5, 4, torch.float32)
    scores = torch.rand(3, 5, 5, requires_grad=True)
    wide = torch.rand(3, 5, 2 * 4, requires_grad=True)
    with FlopCounterMode(display=False) as forward:
        mixed = torch.bmm(scores, wide)
    with FlopCounterMode(display=False) as backward:
        mixed.sum().backward()
    assert forward.get_total_flops() == size.operations(backward=False)
    assert forward.get_total_flops() + backward.get_total_flops() == size.operations(backward=True)


def test_bytes_are_those_of_the_tensors_that_must_be_read_and_written():
    size = Size(2, 3, 5, 4, torch.bfloat16)
    values, scores = torch.empty(2, 5, 3, 4, dtype=torch.bfloat16), torch.empty(3, 5, 5, dtype=torch.bfloat16)
    assert size.bytes_moved(backward=False) == 2 * values.nbytes + scores.nbytes
    assert size.bytes_moved(backward=True) == 5 * values.nbytes + 3 * scores.nbytes


def test_a_case_names_every_backend_that_ran_and_its_fastest_is_the_peer():
    for backward in (False, True):
        record = core(Size(2, 2, 9, 4, torch.float32), backward, "cpu").as_json()
        ran = {name: value for name, value in record.items() if name.startswith("SDPA")}
        assert {"SDPA flash ms", "SDPA math ms"} <= set(ran)
        assert record["peer_ms"] == min(ran.values()) == ran[f"{record['peer']} ms"]
        assert record["ratio"] == record["peer_ms"] / record["ours_ms"]


def test_rounds_call_each_side_alike():
    calls = []
    side_by_side({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, "cpu")
    assert calls == ["a", "b"] * 11


def test_the_sizes_include_197_tokens_on_either_device():
    assert all(any(size.tokens == 197 for size in sizes) for sizes in (CPU_SIZES, GPU_SIZES))


def test_the_picture_has_every_case_that_ran_with_its_times(tmp_path):
    cases = [
        Case("a case with a peer", 2.0, "SDPA flash", 5.0, 1.0),
        Case("one without", 3.0),
        Case("one that was not run", None),
    ]
    drawn = speed(record("attention", cases, "tessella bench attention"))
    axes = drawn.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a case with a peer", "one without"]
    assert sorted(bar.get_width() for bar in axes.patches) == [2.0, 3.0, 5.0]
    assert list(axes.lines[0].get_xdata()) == [1.0]
    assert {text.get_text().strip() for text in axes.texts} == {"2, 2.5 times as fast", "3", "5, SDPA flash"}
    save(drawn, tmp_path / "speed.svg")
    assert "a case with a peer" in (tmp_path / "speed.svg").read_text()


def test_a_picture_of_no_known_kind_is_refused_before_anything_runs(capsys):
    from tessella.cli.main import main

    with pytest.raises(SystemExit, match="2"):
        raise SystemExit(main(["bench", "attention", "--picture", "speed.gif"]))
    assert "picture: got speed.gif, expected a name that ends in .png, .svg or .pdf" in capsys.readouterr().err
