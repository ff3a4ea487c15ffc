"""The page of Figure 2: the same small error, with the sets found and without."""

from __future__ import annotations

from tessella.claims.claim import Verdict
from tessella.report import figures
from tessella.report.elements import figure, prose, table
from tessella.report.page import Content, Section
from tessella.structure.association import association


def content(verdict: Verdict) -> Content:
    runs, partition = verdict.findings.evidence["runs"], verdict.findings.evidence["partition"]
    firsts = [run for run in runs if run["seed"] == 0]
    drawn, axes = figures.panels(len(firsts) + 1, width=2.3, height=2.4)
    figures.matrix(axes[0], partition.same_set.numpy().astype(float), "pairs in one set", "Greys", bar=False)
    for place, run in zip(axes[1:], firsts, strict=True):
        figures.matrix(place, run["similarities"], f"{run['name']}: error {run['error'][-1]:.3f}")
    learning, (left,) = figures.panels(1, width=4.4, height=2.8)
    for run in firsts:
        left.plot(run["steps"], run["error"], label=run["name"])
    left.set(xlabel="step", ylabel="test error", yscale="log", title="test error")
    left.legend()
    rows = []
    for run in runs:
        similar, attended = association(run["similarities"], partition), association(run["logits"], partition)
        rows.append(
            (
                run["name"],
                run["seed"],
                run["error"][-1],
                similar.exact_rows,
                similar.overlap,
                similar.chance,
                attended.exact_rows,
            )
        )
    header = ("how A is made", "seed", "test error", "exact rows", "overlap", "chance", "exact rows of A")
    return Content(
        "The same small error, with the sets found and without",
        [
            Section(
                "What the figure says",
                prose(
                    "Here the patches are pure noise and the sets exist in the labels alone. A transformer can reach a "
                    "small error without its attention showing the sets. It can also find them: which of the two "
                    "happens is decided by how A is made and where it starts. All four models below are trained alike."
                ),
            ),
            Section(
                "What was learnt",
                figure(drawn, "Similarities <p_i, p_j>, or A itself where it is free, first seed.", "Five matrices"),
            ),
            Section("Learning", figure(learning, "Test error on fresh samples.", "Four falling error curves")),
            Section("Every run", table(header, rows, "With W_Q and W_K trained the sets are in P^T P and not in A.")),
        ],
        {"fig2": drawn, "fig2-error": learning},
    )
