"""The page of Theorem 4.1: the three events, in three numbers."""

from __future__ import annotations

from tessella.claims.claim import Verdict
from tessella.report.elements import figure, prose, table
from tessella.report.page import Content, Section
from tessella.report.pages.idealized_views import process_figure, process_player


def content(verdict: Verdict) -> Content:
    runs = verdict.findings.evidence["runs"]
    sections = [
        Section(
            "What happens here, for someone who has not read the paper",
            prose(
                "With infinitely many samples and a symmetric start, training moves only three numbers: alpha, how "
                "strongly the model responds to the feature; gamma, how much patches of one set attend to each other; "
                "rho, how much they attend to the rest. Their exact course can be computed without any sample.",
                "Event I: alpha rises to a plateau while attention stands still. The model adds up features over the "
                "whole image and is wrong wherever the spurious ones outvote the signal. Event II: gamma rises and "
                "leaves rho behind. Event III: the loss falls to nothing.",
                "The picture is one data point with label +1 in which the features add up to less than zero. The "
                "signal set is the first four patches, top left. Watch which patches decide, and when y F turns "
                "positive.",
            ),
        )
    ]
    drawn = {}
    for run in runs:
        problem, path, found = run["problem"], run["path"], run["events"]
        label = f"D = {problem.patches:,}"
        stop = (
            f"{label}: blue and orange patches pull to opposite sides, in units of the strongest patch of the moment."
        )
        sections.append(
            Section(
                f"The events at {label}", process_player(f"events-{problem.patches}", problem, run["law"], path, stop)
            )
        )
        drawn[f"thm4.1-{problem.patches}"] = process_figure(path, found)
    first = next(iter(drawn.values()))
    caption = "alpha, the entries of A and the loss over time at the smallest D; dotted lines end the three events."
    sections.append(Section("The same on paper", figure(first, caption, "Three curves over logarithmic time")))
    header = (
        "D",
        "states",
        "lost mass",
        "I ends",
        "II: gamma > |rho|",
        "II: gamma > 1",
        "III ends",
        "alpha, plateau",
        "alpha, peak",
        "alpha, end",
    )
    rows = [
        (
            f"{run['problem'].patches:,}", run["law"].states, run["law"].lost, run["events"].plateau,
            run["events"].association, run["events"].clear_association, run["events"].fit,
            run["events"].plateau_alpha, run["events"].peak_alpha, run["events"].final_alpha,
        )
        for run in runs
    ]  # fmt: skip
    note = "Times are eta times steps. I ends at 95 % of the plateau, III where the loss is ten times its final value."
    bounds = [
        (f"{run['problem'].patches:,}", run["bound"].loss, *[float(slope) for slope in run["bound"].gradient])
        for run in runs
    ]
    sections.append(Section("When", table(header, rows, note)))
    sections.append(
        Section(
            "How exact this is",
            table(
                ("D", "loss", "slope in alpha", "slope in gamma", "slope in rho"),
                bounds,
                "The most that the pruned states can change at the end of the path (Hoelder's inequality).",
            ),
        )
    )
    return Content("Three events, computed exactly", sections, drawn)
