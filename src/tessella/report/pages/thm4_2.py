"""The page of Theorem 4.2: what was hidden, how it was found, and how sure that is."""

from __future__ import annotations

from typing import Any

from tessella.claims.claim import Verdict
from tessella.report.elements import figure, prose, table
from tessella.report.page import Content, Section
from tessella.report.pages.descent_views import figure4, training_player
from tessella.report.wording import number


def content(verdict: Verdict) -> Content:
    runs = verdict.findings.evidence["runs"]
    first = runs[0]
    other = next((run for run in runs if run["name"].startswith("random")), runs[-1])
    drawn = figure4(first["partition"], first["trajectory"])
    sections = [
        Section(
            "What happens here, for someone who has not read the paper",
            prose(
                "Each image is a handful of patches. Some patches belong together in hidden sets. In every image one "
                "of the sets carries the label: all its patches show the same feature, with the label's sign. "
                "Patches of the other sets show the feature now and then, with a random sign, so that counting "
                "features over the whole image often gives the wrong answer. Nobody tells the model which patches "
                "belong together.",
                "The model is a vision transformer cut down to one layer of attention. Its attention matrix A says how "
                "much each position listens to each other position; it does not look at what is in the patches. Both A "
                "and a single vector v start as small random numbers, and plain gradient descent lowers the "
                "classification loss.",
                "Move the slider from left to right. First v finds the feature. Then the entries of A between patches "
                "of one set rise, and the others do not: the blocks that appear along the diagonal are the hidden "
                "sets. The test error falls as they appear. The paper calls this patch association, and Theorem 4.2 "
                "says that it must happen.",
            ),
        ),
        Section(
            "Watch A take shape",
            training_player(
                "training",
                first["partition"],
                first["trajectory"],
                f"Run {first['name']}. The rows and columns are the patches, sorted by set; thin lines separate the "
                "sets. The diagonal is fixed at its initial value and left out of the colours. Look for the blocks "
                "on the diagonal, and for the moment at which the two curves of A part.",
            ),
        ),
        Section(
            "Figure 4",
            figure(
                drawn,
                "From left to right: pairs of patches in one set (dark), the learnt A, the test error and the cosine "
                "between v and the true feature w* over training. The dark pattern and the bright one should agree.",
                "Four panels: true sets, learnt attention matrix with the same pattern, falling test error, rising "
                "cosine",
            ),
        ),
        Section(
            "The same with sets whose patches lie apart",
            training_player(
                "random-sets",
                other["partition"],
                other["trajectory"],
                f"Run {other['name']}: the sets are random, so that no two patches of a set need be neighbours. "
                "The model finds them as well: it learns which patches belong together, not which are close.",
            ),
        ),
        Section("Every run", _every_run(runs)),
    ]
    return Content("A transformer discovers which patches belong together", sections, {f"fig4-{first['name']}": drawn})


def _every_run(runs: list[dict[str, Any]]) -> str:
    rows = []
    for run in runs:
        final = run["trajectory"].final
        gap = f"{number(final.within_min)} / {number(final.between_max)}"
        rows.append((run["name"], final.exact_rows, final.error, final.error_rule, final.cosine, gap))
    header = (
        "run",
        "exact rows",
        "error against y",
        "error against f*",
        "cos(v, w*)",
        "least A within / largest between",
    )
    return table(header, rows, "The end of each run. An exact row has its hidden set as its Top_C.")
