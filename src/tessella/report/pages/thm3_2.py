"""The page of Theorem 3.2: right answers from the wrong places."""

from __future__ import annotations

import numpy as np

from tessella.claims.claim import Verdict
from tessella.report import figures
from tessella.report.elements import figure, prose, table
from tessella.report.page import Content, Section


def content(verdict: Verdict) -> Content:
    cases = verdict.findings.evidence["cases"]
    first = cases[0]
    order = first["partition"].order
    drawn, (true, built) = figures.panels(2, width=3.0, height=2.6)
    figures.matrix(
        true,
        first["partition"].same_set.numpy()[np.ix_(order, order)].astype(float),
        "pairs in one set",
        "Greys",
        bar=False,
    )
    figures.matrix(built, first["attention"].numpy()[np.ix_(order, order)], "the constructed A")
    rows = [
        (
            case["kind"],
            case["seed"],
            case["own_overlap"],
            case["error"],
            case["error_own"],
            case["self_rows_gram"],
            case["error_gram"],
        )
        for case in cases
    ]
    header = (
        "sets",
        "seed",
        "overlap with own set",
        "error",
        "error, own attention",
        "rows that hold themselves, Gram",
        "error, Gram",
    )
    return Content(
        "Right answers from the wrong places",
        [
            Section(
                "What the theorem says",
                prose(
                    "A model can fit the labels without any patch attending to its own set: let the patches of one "
                    "set read the sum of another, and of course all sums are read. So nothing in the task forces "
                    "association; that gradient descent finds it is a property of gradient descent.",
                    "If the attention matrix must be a Gram matrix, A = P^T P, the construction breaks: a patch is "
                    "never more similar to another than the largest patch is to itself. Adding the least diagonal "
                    "that makes it a Gram matrix drowns the attention it was built for.",
                ),
            ),
            Section(
                "The construction",
                figure(
                    drawn,
                    "Patches sorted by set: the bright blocks lie off the diagonal.",
                    "True pairs and a matrix that avoids them",
                ),
            ),
            Section("Every case", table(header, rows, "Errors are against f*, on data points on which f* has a sign.")),
        ],
        {"thm3.2": drawn},
    )
