"""The page of the claim on a small masked autoencoder."""

from __future__ import annotations

import numpy as np

from tessella.claims.claim import Verdict
from tessella.report import figures
from tessella.report.elements import figure, prose
from tessella.report.page import Content, Section


def content(verdict: Verdict) -> Content:
    evidence = verdict.findings.evidence
    layers = list(range(1, evidence["depth"] + 1))
    drawn, (distance, diversity) = figures.panels(2, width=3.4, height=2.8)
    for kind, axes in (("distance", distance), ("diversity", diversity)):
        for objective in evidence["maps"]:
            intervals = [verdict.intervals[f"{kind}_{objective}_layer{layer}"] for layer in layers]
            middle = np.array([interval.mean for interval in intervals])
            spread = [middle - [each.low for each in intervals], np.array([each.high for each in intervals]) - middle]
            axes.errorbar(layers, middle, yerr=spread, label=objective, capsize=3)
        axes.set(xlabel="layer", xticks=layers)
    distance.set_ylabel("attention distance, in patches")
    diversity.set_ylabel("diversity of attention")
    distance.axhline(verdict.intervals["distance_of_uniform_attention"].mean, color="#404040", linewidth=0.8)
    diversity.legend()
    maps, panels = figures.panels(len(layers), width=2.3, height=2.3, rows=len(evidence["maps"]))
    flat = [(name, layer, each) for name, stack in evidence["maps"].items() for layer, each in enumerate(stack)]
    for axes, (name, layer, values) in zip(panels, flat, strict=True):
        figures.matrix(axes, values, f"{name}, layer {layer + 1}", bar=False)
        axes.set(xlabel="key patch", ylabel="query patch")
    sections = [
        Section(
            "What happens here, for someone who has not read the paper",
            prose(
                "The paper says of large models on ImageNet that masked autoencoders have local, diverse attention and "
                "contrastive models global, uniform attention. Here are three small vision transformers of one size, "
                f"trained on small images ({evidence['data']}): to rebuild hidden patches, to name the class, and to "
                "tell that two views are of one image. A result at this size neither proves nor refutes what is "
                "said of the large ones."
            ),
        ),
        Section(
            "Distance and diversity by layer",
            figure(
                drawn,
                "Means over held-out images, heads and seeds with 95 % intervals. The line is uniform "
                "attention's distance.",
                "Two panels with three curves over the layers: attention distance and diversity, with error bars",
            ),
        ),
        Section(
            "Mean attention maps",
            figure(
                maps,
                "The mean over held-out images and heads, first seed. Patches run from left to right, top to bottom.",
                "A grid of attention maps: one row for each training, one column for each layer",
            ),
        ),
    ]
    return Content("A masked autoencoder and its twins", sections, {"mim-mae": drawn, "mim-mae-maps": maps})
