"""The page of Lemma 4.3: gamma against |rho|."""

from __future__ import annotations

from tessella.claims.claim import Verdict
from tessella.report import figures
from tessella.report.elements import Chart, Player, figure, player, prose, table
from tessella.report.page import Content, Section


def content(verdict: Verdict) -> Content:
    evidence = verdict.findings.evidence
    descent = evidence["descent"]
    path = descent["path"]
    every = max(len(path.time) // 400, 1)
    times = path.time[1::every].tolist()
    gamma, rho = path.gamma[1::every].tolist(), abs(path.rho[1::every]).tolist()
    spec = Player(
        name="steps",
        places=times,
        place_label="time",
        charts=[
            Chart("Attention", "entry of A", {"gamma": gamma, "|rho|": rho}, times, "time", log_x=True, log_y=True),
            Chart("The loss", "loss", {"loss": path.loss[1::every].tolist()}, times, "time", log_x=True, log_y=True),
        ],
        readouts={"gamma": gamma, "|rho|": rho, "alpha": path.alpha[1::every].tolist()},
        caption=f"Gradient descent with one learning rate at D = {descent['patches']}, every step of it.",
    )
    chosen = [run for run in evidence["runs"] if run["diagonal"] == max(each["diagonal"] for each in evidence["runs"])]
    drawn, (axes,) = figures.panels(1, width=6.6, height=3.0)
    for run in chosen:
        axes.plot(run["path"].time, run["ratio"], label=f"D = {run['patches']:,}, lambda = {run['expected']:g}")
    axes.set(xscale="log", yscale="log", xlabel="time", ylabel="|d rho| / d gamma", title="increments")
    axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5))
    rows = [
        (f"{run['patches']:,}", run["expected"], run["diagonal"], float(run["ratio"].max()), run["loss"], run["states"])
        for run in evidence["runs"]
    ]
    beyond = [
        (f"{run['patches']:,}", run["expected"], run["expected"] / (run["patches"] - verdict.config.size),
         run["diagonal"], float(run["path"].gamma[-1]), float(run["path"].rho[-1]), float(run["path"].loss[-1]))
        for run in evidence["dense"]
    ]  # fmt: skip
    return Content(
        "Attention within sets outgrows attention between them",
        [
            Section(
                "What the lemma says",
                prose(
                    "Two entries of A compete: gamma, for patches of one set, and rho, for patches of different sets. "
                    "Both start at zero. At every step the first moves up by more than the second moves at all, so "
                    "from the first step on the patches of a set attend most to each other."
                ),
            ),
            Section("Step by step", player(spec)),
            Section(
                "Across worlds",
                figure(
                    drawn,
                    "How much rho moves for each unit that gamma does: less than 1, says the lemma. A curve ends where "
                    "gamma falls.",
                    "Curves of the ratio of increments over time; one above 1 misses the lemma",
                ),
            ),
            Section(
                "Every world",
                table(
                    ("D", "lambda", "beta", "largest ratio", "loss at the end", "states"),
                    rows,
                    "The largest ratio of increments anywhere on the path; inf where gamma falls.",
                ),
            ),
            Section(
                "Where features are dense",
                prose(
                    "Assumption 2 has few patches with a spurious feature. With q near 1 the lemma fails: rho falls "
                    "faster than gamma rises. Where gamma still ends above rho the patches are associated all the "
                    "same, as a softmax sees only the difference; where it ends below, they are not."
                )
                + table(
                    ("D", "lambda", "q", "beta", "gamma at the end", "rho at the end", "loss at the end"),
                    beyond,
                    "Paths to a time of 10,000 D^2 or a loss of 1e-4.",
                ),
            ),
        ],
        {"lem4.3": drawn},
    )
