import json
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from tessella.claims.claim import Bar, Claim, Context, Findings, Verdict
from tessella.cli.main import main
from tessella.report import figures, readme
from tessella.report.elements import Chart, Images, Player, escape, figure, player, svg, table
from tessella.report.page import Content, Section, page
from tessella.report.wording import number
from tessella.runs.environment import environment
from tessella.structure.partition import Partition


def data_of(html: str) -> dict[str, object]:
    found = re.search(r"<script type='application/json'>(.*?)</script>", html, re.DOTALL)
    assert found
    loaded: dict[str, object] = json.loads(found[1])
    return loaded


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.5, "−0.5"),
        (1.23456, "1.235"),
        (1e-7, "1e−7"),
        (float("nan"), "nan"),
        (123456.0, "123500"),
        (3e6, "3e6"),
    ],
)
def test_numbers_are_written_for_people(value: float, text: str) -> None:
    assert number(value) == text


def test_text_from_outside_is_escaped() -> None:
    nasty = "</script><img src=x onerror=alert(1)>\"'"
    spec = Player(nasty, [0, 1], images=[Images(nasty, np.zeros((2, 2, 2)))], readouts={nasty: [1, 2]}, caption=nasty)
    html = player(spec) + table([nasty], [[nasty]], nasty)
    assert "<img" not in html
    assert html.count("</script>") == 1
    assert data_of(html)["images"][0]["name"] == nasty  # type: ignore[index]
    assert escape("<a>") == "&lt;a&gt;"


def test_images_span_their_scale() -> None:
    frames = np.array([[[-1.0, 0.0], [1.0, 3.0]]])
    image = data_of(player(Player("p", [0], images=[Images("x", frames)])))["images"][0]  # type: ignore[index]
    import base64

    assert list(base64.b64decode(image["frames"][0])) == [0, 64, 128, 255]
    assert (image["low"], image["high"]) == (-1.0, 3.0)
    signed = data_of(player(Player("p", [0], images=[Images("x", frames, "diverging")])))["images"][0]  # type: ignore[index]
    assert (signed["low"], signed["high"]) == (-3.0, 3.0)


def test_a_curve_has_gaps_where_it_cannot_be_drawn() -> None:
    chart = Chart("t", "y", {"a": [1.0, 0.0, float("nan")]}, [0, 1, 2], log_y=True)
    made = data_of(player(Player("p", [0], charts=[chart])))["charts"][0]  # type: ignore[index]
    assert made["series"][0]["y"] == [1.0, None, None]


@pytest.mark.parametrize(
    "spec",
    [
        Player("p", [0, 1], images=[Images("x", np.zeros((1, 2, 2)))]),
        Player("p", [0], readouts={"x": [1.0, 2.0]}),
        Player("p", [0], charts=[Chart("t", "y", {"a": [1.0]}, [0, 1])]),
    ],
)
def test_mismatched_lengths_are_named(spec: Player) -> None:
    with pytest.raises(ValueError, match=r"got \d .*expected \d"):
        player(spec)


def drawing() -> Figure:
    drawn, (left, right) = figures.panels(2)
    figures.partition(left, Partition.random(16, 4, 0, (4, 4)))
    figures.curves(right, [1, 2], {"a": [1, 2], "b": [2, 1]}, log_y=True)
    return drawn


def test_a_figure_is_the_same_each_time_and_carries_its_description() -> None:
    with figures.style():
        first, second = svg(drawing()), svg(drawing())
        html = figure(drawing(), "caption", "what it shows")
    assert first == second
    assert "aria-label='what it shows'" in html


def test_figures_are_saved_as_vectors(tmp_path: Path) -> None:
    figures.save(drawing(), tmp_path / "a.pdf")
    figures.save(drawing(), tmp_path / "a.svg")
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    assert "<svg" in (tmp_path / "a.svg").read_text()


def test_a_page_loads_nothing_and_shows_verdict_and_reason() -> None:
    bars = (Bar("x", ">=", 2.0, why_not="it is <one>"),)
    claim = Claim("t", "S <b>.", "P", None, None, lambda setup: bars, lambda setup, context: Findings({"x": [1.0]}))
    made = Verdict(claim, None, 1, claim.measure(None, Context()), 1.0, environment())
    html = page(made, Content("Title", [Section("One", "<p>body</p>")]), "tessella verify t")
    assert "does not hold" in html
    assert "it is &lt;one&gt;" in html
    assert "S &lt;b&gt;." in html
    assert not re.search(r"(src|href)=[\"'](?!index\.html|data:,)", html)
    assert "http" not in re.sub(r"http://www\.w3\.org/[\w/]+|http://purl\.org/[\w/.]+", "", html)


def test_the_readme_is_rendered_from_the_results(tmp_path: Path) -> None:
    assert main(["verify", "fig1b", "--save", str(tmp_path / "results")]) == 0
    (tmp_path / "README.md").write_text("# T\n<!-- results: claims -->\nold\n<!-- end -->\nafter\n")
    assert main(["readme", "--check", "--root", str(tmp_path)]) == 1
    assert main(["readme", "--root", str(tmp_path)]) == 0
    text = (tmp_path / "README.md").read_text()
    assert "| fig1b | holds | contiguous_blocks 1, bar ≥ 1 in every run<br>contiguous_random 0" in text
    assert text.endswith("<!-- end -->\nafter\n")
    assert main(["readme", "--check", "--root", str(tmp_path)]) == 0


def saved(results: Path, measured: dict[str, list[float]], *bars: Bar, name: str = "fig1b", full: str = "") -> None:
    claim = Claim(name, "A statement.", "P", None, None, lambda setup: bars, lambda setup, context: Findings(measured))
    config = Player("any dataclass", [0])
    made = Verdict(claim, config, 2, claim.measure(None, Context()), 1.0, environment(), 1.5)
    results.mkdir(exist_ok=True)
    record = {"command": f"tessella verify {name}{full}", **made.as_json()}
    (results / f"{name}{full.replace(' -', '')}.json").write_text(json.dumps(record))


def test_a_row_shows_what_was_missed_first_and_counts_the_rest(tmp_path: Path) -> None:
    bars = [Bar(each, ">=", 1.0) for each in "abcd"] + [Bar("e", ">=", 9.0, "every run", why_not="too few")]
    saved(tmp_path / "results", {each: [2.0, 4.0] for each in "abcde"} | {"f": [0.5]}, *bars)
    (tmp_path / "docs").mkdir()
    for name, block in (("README.md", "claims"), ("docs/results.md", "details")):
        (tmp_path / name).write_text(f"<!-- results: {block} -->\n<!-- end -->\n")
    assert readme.update(tmp_path, check=True) == ["README.md", "docs/results.md"]
    assert readme.update(tmp_path, check=False) == ["README.md", "docs/results.md"]
    row = next(line for line in (tmp_path / "README.md").read_text().splitlines() if line.startswith("| fig1b"))
    assert "does not hold | ✗ e 3 [−9.71, 15.7], bar ≥ 9 in every run<br>a 3" in row
    assert row.endswith("and 2 more, met | 2 | `tessella verify fig1b` |")
    details = (tmp_path / "docs/results.md").read_text()
    assert "- e is 3 on average and misses in 2 of 2 runs, the bar is >= 9 (every run): too few" in details
    assert "| e | 3 | −9.706 to 15.71 | 2 | ≥ 9 in every run | ✗ missed |" in details
    assert "| f | 0.5 |  | 1 |  |  |" in details
    assert "1.5 s of processor time" in details
    assert readme.update(tmp_path, check=True) == []


def test_verdicts_stand_in_the_papers_order(tmp_path: Path) -> None:
    for name in ("mim.area", "depth", "thm4.2", "lem4.1"):
        saved(tmp_path / "results", {"a": [2.0]}, Bar("a", ">=", 1.0), name=name)
    text = readme.rendered("<!-- results: claims -->\n<!-- end -->\n", tmp_path / "results")
    assert re.findall(r"^\| (\S+) \| holds", text, re.MULTILINE) == ["lem4.1", "thm4.2", "depth", "mim.area"]


def test_larger_set_ups_are_in_the_readme_only_where_the_default_is_not(tmp_path: Path) -> None:
    for name, full in (("thm4.2", ""), ("thm4.2", " --full"), ("lem4.1", " --full")):
        saved(tmp_path / "results", {"a": [2.0]}, Bar("a", ">=", 1.0), name=name, full=full)
    rows = readme.rendered("<!-- results: claims -->\n<!-- end -->\n", tmp_path / "results")
    assert re.findall("`tessella verify (.*)`", rows) == ["lem4.1 --full", "thm4.2"]
    details = readme.rendered("<!-- results: details -->\n<!-- end -->\n", tmp_path / "results")
    assert re.findall("^## (.*): holds", details, re.MULTILINE) == ["lem4.1 --full", "thm4.2", "thm4.2 --full"]


ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "name", [path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))]
)
def test_what_a_document_links_to_is_there(name: str) -> None:
    document = ROOT / name
    for target in re.findall(r"\]\(([^)#\s]+)", document.read_text()):
        assert "://" in target or (document.parent / target).exists(), target


@pytest.mark.parametrize("name", readme.DOCUMENTS)
def test_the_projects_documents_agree_with_its_results(name: str) -> None:
    text = (ROOT / name).read_text()
    assert readme.rendered(text, ROOT / "results") == text
