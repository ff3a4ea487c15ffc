"""The page of an inspection: made from real models of timm, and driven in headless Chromium as a person would."""

from __future__ import annotations

import dataclasses
import io
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image

import tessella
from tessella.probe.inspecting import Extent
from tessella.probe.inspection import Inspection
from tessella.report.attention_blocks import LADDER, block, foretold, kept_queries, levels_of, strided, weights_of
from tessella.report.inspection_data import cargo, png
from tessella.report.inspection_page import document, write_page

timm = pytest.importorskip("timm")

DOCS = Path(__file__).parent.parent / "docs"
SCREENSHOTS = "TESSELLA_SCREENSHOTS"
"""The variable that asks for the documentation's pictures to be taken anew: where to put them."""

NASTY = "</script><img src=x onerror=alert(1)>"
EXTENT = Extent(examples=2, chance_images=1, head_images=2, output_images=0)


def inspected(seed: int, name: str, model: str = "vit_tiny_patch16_224", depth: int = 3) -> Inspection:
    """A small model with random weights, on two images of 4 by 6 patches."""
    torch.manual_seed(seed)
    made = timm.create_model(model, img_size=(64, 96), patch_size=16, depth=depth, num_classes=3).eval()
    images = torch.randn(2, 3, 64, 96, generator=torch.Generator().manual_seed(0))
    return tessella.inspect(made, images, name=name, extent=EXTENT)


def labelled(inspection: Inspection, step: int | None = None) -> Inspection:
    """With labels as a person may give them."""
    examples = tuple(
        dataclasses.replace(example, label=NASTY, prediction=f"{NASTY} (51 %)") for example in inspection.examples
    )
    return dataclasses.replace(inspection, examples=examples, step=step)


@pytest.fixture(scope="module")
def before() -> Inspection:
    return labelled(inspected(1, NASTY), step=0)


@pytest.fixture(scope="module")
def after() -> Inspection:
    return labelled(inspected(2, NASTY), step=100)


@pytest.fixture(scope="module")
def registers() -> Inspection:
    return inspected(3, "with registers", "vit_small_patch14_reg4_dinov2", depth=2)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, before: Inspection, after: Inspection) -> Path:
    """The page of one model at two training steps."""
    return write_page([after, before], tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory, after: Inspection, registers: Inspection) -> Path:
    """The page of two models."""
    return write_page([dataclasses.replace(after, step=None), registers], tmp_path_factory.mktemp("two"))


class Visit:
    """A page in a browser, and what a person sees of it."""

    def __init__(self, view: Any):
        self.view = view

    def ready(self) -> None:
        self.view.wait_for_selector("main[aria-busy=false]")

    def status(self) -> str:
        self.ready()
        return str(self.view.inner_text("#status"))

    def drawn(self, kind: str) -> str:
        """What a canvas shows."""
        self.ready()
        return str(self.view.evaluate(f"() => document.querySelector('.{kind} canvas').toDataURL()"))

    def point(self, kind: str, across: float, down: float, press: bool = False) -> str:
        """Moves to a place on a canvas, given as shares of its width and height, and reads the numbers below it."""
        canvas = self.view.locator(f".{kind} canvas").first
        canvas.scroll_into_view_if_needed()
        box = canvas.bounding_box()
        position = {"x": across * box["width"], "y": down * box["height"]}
        (canvas.click if press else canvas.hover)(position=position)
        self.ready()
        return str(self.view.inner_text(f".{kind} .readout >> nth=0"))


def visit(browser: Any, page: Path) -> Iterator[Visit]:
    """Opens a page, and fails the test where it logs an error, asks for anything, or runs a script of somebody else."""
    view = browser.new_page(viewport={"width": 1280, "height": 900})
    wrong: list[str] = []
    view.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    view.on("pageerror", lambda error: wrong.append(str(error)))
    view.on("dialog", lambda dialog: wrong.append(dialog.message))
    own = ("data:", "blob:", page.as_uri())
    view.on("request", lambda request: None if request.url.startswith(own) else wrong.append(request.url))
    view.goto(page.as_uri())
    opened = Visit(view)
    opened.ready()
    yield opened
    view.close()
    assert wrong == []


@pytest.fixture
def one(browser: Any, written: Path) -> Iterator[Visit]:
    yield from visit(browser, written)


@pytest.fixture
def two(browser: Any, compared: Path) -> Iterator[Visit]:
    yield from visit(browser, compared)


# What the page carries.


def test_a_weight_is_within_a_level_of_its_querys_largest() -> None:
    weights = np.random.default_rng(0).dirichlet(np.full(40, 0.1), size=(3, 40))
    for levels in (255, 31):
        tops, numbers = levels_of(weights, levels)
        error = np.abs(weights_of(tops, numbers, levels) - weights)
        assert (error <= weights.max(axis=-1, keepdims=True) / levels + 1e-7).all()
        assert error.max() > 0.2 / levels * weights.max()


def test_the_foretold_size_of_a_block_is_close() -> None:
    rows = np.random.default_rng(0).dirichlet(np.full(197, 0.3), size=(4, 197)).astype(np.float16)
    for levels in (255, 31):
        assert foretold(rows, levels) == pytest.approx(len(block(rows, levels)), rel=0.1)


def test_the_limit_is_kept_by_fewer_levels_and_then_by_fewer_queries(after: Inspection) -> None:
    sizes, hows = [], []
    for limit in (25_000, 15_000, 12_000, 4_000):
        carried = cargo([after], limit)
        attention = [text for key, text in carried.blocks.items() if "similarities" not in key]
        assert sum(map(len, attention)) <= limit
        hows.append((carried.meta["levels"]["single"], carried.meta["inspections"][0]["layers"][0]["stride"]))
        sizes.append(sum(map(len, attention)))
    assert sizes == sorted(sizes, reverse=True)
    assert hows[0] == (255, 1)
    assert hows[1][0] < 255
    assert hows[1][1] == 1
    assert hows[-1][1] == 2
    with pytest.raises(ValueError, match=r"got about .* of attention at its coarsest, expected at most .* MB"):
        cargo([after], 100)


def test_kept_queries_are_all_prefix_tokens_and_a_lattice_of_patches(registers: Inspection) -> None:
    layer = registers.layers[0]
    assert kept_queries(layer, 1).tolist() == list(range(29))
    assert kept_queries(layer, 2).tolist() == [*range(5), 5, 7, 9, 17, 19, 21]
    assert strided(layer, max(how.stride for how in LADDER)) == 2


def test_photographs_are_png() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (7, 5, 3), dtype=np.uint8)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(png(pixels)))), pixels)


def test_wrong_inspections_are_one_line(after: Inspection) -> None:
    with pytest.raises(ValueError, match="inspections: got none"):
        document([])
    with pytest.raises(ValueError, match="expected names or steps that differ"):
        document([after, after])
    with pytest.raises(ValueError, match="without layers"):
        document([dataclasses.replace(after, layers=())])
    wrong = dataclasses.replace(after.layers[0], mean_attention=after.layers[0].mean_attention[:, :-1])
    with pytest.raises(ValueError, match="got shape"):
        document([dataclasses.replace(after, layers=(wrong, *after.layers[1:]))])
    negative = dataclasses.replace(after.layers[0], mean_attention=after.layers[0].mean_attention - 1)
    with pytest.raises(ValueError, match="negative or not finite"):
        document([dataclasses.replace(after, layers=(negative, *after.layers[1:]))])


def test_a_page_is_written_into_a_folder_given_by_name(before: Inspection, tmp_path: Path) -> None:
    assert write_page([before], str(tmp_path / "out")) == tmp_path / "out" / "inspection.html"


def test_no_name_ends_the_script_or_becomes_markup(written: Path) -> None:
    text = written.read_text()
    assert "<img src=x" not in text
    assert len(re.findall(r"</script", text)) == len(re.findall(r"<script", text))


# What a person does.


@pytest.mark.browser
def test_a_press_on_a_patch_shows_whom_it_attends_to(one: Visit, after: Inspection) -> None:
    assert one.view.title() == f"What {NASTY} has learnt about space"
    drawn = [one.drawn(kind) for kind in ("photo", "maps", "similar")]
    one.point("photo", 0.9, 0.1, press=True)
    assert "patch at row 1, column 6 attends most" in one.status()
    assert all(one.drawn(kind) != old for kind, old in zip(("photo", "maps", "similar"), drawn, strict=True))
    attention = after.examples[0].attention[0][0, 1 + 5].float()
    best = int(attention[1:].argmax())
    assert f"to the patch at row {best // 6 + 1}, column {best % 6 + 1}" in one.status()
    told = one.point("photo", 0.05, 0.1)
    found = re.fullmatch(r"row 1, column 1: weight ([\d.]+)", told)
    assert found is not None
    assert float(found[1]) == pytest.approx(float(attention[1]), abs=float(attention.max()) / 255 + 5e-4)


@pytest.mark.browser
def test_the_script_reads_what_python_wrote(one: Visit, after: Inspection) -> None:
    place = one.view.evaluate("() => META.inspections.findIndex(each => each.step === 100)")
    for number in range(3):
        for picture, truth in (("mean", after.layers[number].mean_attention), (0, after.examples[0].attention[number])):
            read = one.view.evaluate(
                "async ([place, number, picture]) => { const row = await attention(place, number, picture);"
                " return [0, 1, 2].map(head => Array.from({ length: 25 }, (_, query) => row(head, query))); }",
                [place, number, picture],
            )
            tops, numbers = levels_of(truth.numpy(), 255)
            assert np.allclose(read, weights_of(tops, numbers, 255), atol=1e-7)


@pytest.mark.browser
def test_keys_alone_reach_everything(one: Visit) -> None:
    seen = set()
    for _ in range(40):
        one.view.keyboard.press("Tab")
        focus = "() => [document.activeElement.closest('figure')?.className ?? document.activeElement.id,"
        name, outline = one.view.evaluate(f"{focus} getComputedStyle(document.activeElement).outlineStyle]")
        seen.add(name)
        assert outline == "solid" or name == ""
        if name == "picture photo" and one.view.evaluate("() => document.activeElement.tagName") == "CANVAS":
            break
    assert {"theme", "layer", "head", "step", "overlay", "scale", "picture photo"} <= seen
    assert "row 2, column 3" in one.status()
    for key, expected in (("ArrowRight", "row 2, column 4"), ("ArrowDown", "row 3, column 4"), ("Home", "column 1")):
        one.view.keyboard.press(key)
        assert expected in one.status()
    for key in ("ArrowLeft", "ArrowUp", "ArrowUp", "ArrowUp"):  # the edge holds
        one.view.keyboard.press(key)
    assert "row 1, column 1" in one.status()
    one.view.keyboard.press("PageDown")
    assert "layer 2" in one.status()
    assert one.view.input_value("#layer") == "1"
    one.view.keyboard.press("]")
    assert "head 2" in one.status()
    assert "layer 2, head 2" in one.view.get_attribute(".photo canvas", "aria-label")


@pytest.mark.browser
def test_sliders_move_layer_head_and_training_step(one: Visit) -> None:
    drawn = one.drawn("photo")
    one.view.fill("#layer", "2")
    assert "layer 3, head 1" in one.status()
    one.view.locator("#head").focus()
    one.view.keyboard.press("ArrowRight")
    assert "layer 3, head 2" in one.status()
    assert one.view.inner_text("#head-name") == "2 of 3"
    at_end = one.drawn("photo")
    assert at_end != drawn
    one.view.fill("#step", "0")
    assert one.view.inner_text("#step-name") == "0"
    assert one.drawn("photo") != at_end
    one.view.fill("#overlay", "0")
    bare = one.drawn("photo")
    one.view.fill("#step", "1")
    assert one.drawn("photo") == bare  # without an overlay the image alone is there


@pytest.mark.browser
def test_images_tokens_and_colours_can_be_chosen(one: Visit) -> None:
    first = one.drawn("photo")
    one.view.check("input[name=picture][value='1']", force=True)
    assert one.drawn("photo") != first
    one.view.check("input[name=picture][value=mean]")
    assert "mean over 2 images" in one.status()
    one.view.check("input[name=token][value=class]")
    assert "the class token attends most" in one.status()
    maps = one.drawn("maps")
    for scale in ("common", "root"):
        one.view.select_option("#scale", scale)
        assert one.drawn("maps") != maps
    one.point("photo", 0.5, 0.5, press=True)
    assert "the patch at" in one.status()
    assert one.view.is_checked("input[name=token][value='']")


@pytest.mark.browser
def test_the_map_of_heads_shows_measures_and_sorts(one: Visit, after: Inspection) -> None:
    measured = after.measures["entropy"]
    one.view.select_option("#measure", "entropy")
    assert measured.definition[:40] in one.view.inner_text("#definition")
    told = one.point("map", 0.2, 0.55)
    found = re.fullmatch(r"layer (\d), head (\d): entropy ([\d.]+) nats, chance ([\d.]+) nats", told)
    assert found is not None
    layer, head = int(found[1]) - 1, int(found[2]) - 1
    assert float(found[3]) == pytest.approx(float(measured.values[layer, head]), rel=5e-3)
    assert float(found[4]) == pytest.approx(float(measured.chance[layer, head]), rel=5e-3)
    one.point("map", 0.2, 0.55, press=True)
    assert f"layer {layer + 1}, head {head + 1}:" in one.status()
    plain = one.drawn("map")
    one.view.select_option("#difference", "chance")
    assert one.drawn("map") != plain
    one.view.select_option("#difference", "value")
    one.view.select_option("#order", "value")
    assert one.drawn("map") != plain
    one.view.locator(".map canvas").focus()
    for _ in range(3):
        one.view.keyboard.press("ArrowLeft")
        one.view.keyboard.press("ArrowUp")
    shown = [float(f"{value:.4g}") for value in measured.values[0].tolist()]
    best = shown.index(max(shown)) + 1
    assert f"layer 1, head {best}:" in one.status()


@pytest.mark.browser
def test_the_table_sorts_and_chooses(one: Visit, after: Inspection) -> None:
    one.view.click("summary")
    column = [*after.measures].index("entropy") + 2
    header = one.view.locator("#rows th").nth(column)
    header.locator("button").click()
    assert header.get_attribute("aria-sort") == "descending"
    cells = one.view.evaluate(
        f"() => [...document.querySelectorAll('#rows tbody tr')].map(r => +r.cells[{column}].innerText)"
    )
    assert cells == sorted(cells, reverse=True)
    assert len(cells) == 9
    header.locator("button").click()
    assert header.get_attribute("aria-sort") == "ascending"
    line = one.view.locator("#rows tbody tr").first
    layer, head = line.locator("td").nth(0).inner_text(), line.locator("td").nth(1).inner_text()
    line.locator("button").click()
    assert f"layer {layer}, head {head}:" in one.status()
    assert one.view.locator("#rows tr[data-chosen]").count() == 1


@pytest.mark.browser
def test_every_picture_is_saved_as_svg_and_png(one: Visit) -> None:
    buttons = one.view.locator(".picture:not([hidden]) .save button")
    assert buttons.count() == 12
    names = []
    for number in range(buttons.count()):
        with one.view.expect_download() as download:
            buttons.nth(number).click()
        path = Path(download.value.path())
        names.append(download.value.suggested_filename)
        if names[-1].endswith(".svg"):
            root = ElementTree.parse(path).getroot()
            space = "{http://www.w3.org/2000/svg}"
            assert root.tag == f"{space}svg"
            assert root.findtext(f"{space}title", "").startswith(NASTY)
            assert len(root.findall(f".//{space}rect")) + len(root.findall(f".//{space}circle")) > 8
        else:
            with Image.open(path) as image:
                assert image.format == "PNG"
                assert image.width > 900
                assert len(image.convert("RGB").getcolors(1 << 24) or []) > 20
    assert len(set(names)) == 12


@pytest.mark.browser
def test_every_picture_and_control_has_words(one: Visit) -> None:
    nameless = one.view.evaluate(
        "() => [...document.querySelectorAll('canvas')].filter(e => !e.hidden && !e.getAttribute('aria-label')).length"
        " + [...document.querySelectorAll('input, select')].filter(e => !e.labels.length && !e.ariaLabel).length"
        " + [...document.querySelectorAll('button')].filter(e => !e.innerText && !e.ariaLabel).length"
    )
    assert nameless == 0
    assert one.view.get_attribute("#status", "aria-live") == "polite"
    assert "the label is" not in one.status()
    assert f"Label: {NASTY}." in one.view.inner_text("#attention")


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_telephone_and_can_be_read(two: Visit, scheme: str) -> None:
    two.view.emulate_media(color_scheme=scheme)
    for width in (390, 1280):
        two.view.set_viewport_size({"width": width, "height": 800})
        assert two.view.evaluate("() => document.documentElement.scrollWidth") <= width
        two.ready()
        widths = two.view.evaluate(
            "() => [...document.querySelectorAll('canvas')].map(e => e.getBoundingClientRect().right)"
        )
        assert max(widths) <= width
    colours = two.view.evaluate(
        "() => ['--ink', '--quiet', '--accent', '--good', '--bad'].map(name => {"
        " const e = document.body.appendChild(document.createElement('i')); e.style.color = `var(${name})`;"
        " return [getComputedStyle(e).color, getComputedStyle(document.body).backgroundColor]; })"
    )
    assert min(contrast(*pair) for pair in colours) >= 4.5
    ground = colours[0][1]
    drawn = two.drawn("depth")
    two.view.click("#theme")
    assert two.view.evaluate("() => getComputedStyle(document.body).backgroundColor") != ground
    assert two.drawn("depth") != drawn


def contrast(one: str, other: str) -> float:
    """The contrast of two CSS colours, as the accessibility guidelines define it."""

    def luminance(colour: str) -> float:
        shares = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.browser
def test_two_models_stand_side_by_side(two: Visit, registers: Inspection) -> None:
    assert two.view.locator(".photo canvas").count() == 2
    assert two.view.inner_text("#attention h3 >> nth=1") == "with registers"
    two.view.check("input[name=token][value='register 2']")
    assert "the register 2 token attends most" in two.status()
    assert "It has no register 2 token: a patch is shown." in two.view.inner_text("#attention")
    two.view.fill("#layer", "2")
    assert "layer 3, head 1" in two.status()  # of the first; the second has two layers
    assert "with registers: layer 2" in two.status()
    plain = two.drawn("map")
    two.view.select_option("#difference", "first")
    assert two.drawn("map") != plain
    boxes = [two.view.locator(".photo canvas").nth(k).bounding_box() for k in range(2)]
    assert boxes[0]["y"] == pytest.approx(boxes[1]["y"], abs=60)
    assert boxes[0]["x"] + boxes[0]["width"] < boxes[1]["x"]
    assert math.isclose(boxes[0]["width"], boxes[1]["width"], abs_tol=2)


@pytest.mark.browser
def test_windows_and_relative_biases_are_shown_as_what_they_are(browser: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    shape = {"img_size": (64, 96), "patch_size": 4, "window_size": 4, "depths": (2, 2), "num_heads": (2, 4)}
    swin = timm.models.swin_transformer.SwinTransformer(**shape, embed_dim=32, num_classes=2).eval()
    images = torch.randn(2, 3, 64, 96, generator=torch.Generator().manual_seed(0))
    for page in visit(browser, write_page([tessella.inspect(swin, images, name="swin", extent=EXTENT)], tmp_path)):
        assert "within windows of 4 × 4 patches" in page.view.inner_text("#attention")
        assert page.view.inner_text("#encodings").startswith("Relative bias: ")
        page.point("photo", 0.02, 0.02, press=True)  # of 16 by 24 patches; the picture has a scale below it
        assert "patch at row 1, column 1 attends" in page.status()
        assert page.point("photo", 0.9, 0.5).endswith("in another window")
        page.point("photo", 5.5 / 24, 0.02, press=True)  # the second window's second column
        assert "row 1, column 6" in page.status()
        similar = page.view.locator(".similar canvas")
        assert "row 1, column 2 to all" in similar.get_attribute("aria-label")
        similar.focus()
        for _ in range(4):  # it ends where the window ends
            page.view.keyboard.press("ArrowRight")
        assert "row 1, column 8" in page.status()


@pytest.mark.browser
@pytest.mark.parametrize("page", sorted((DOCS / "pages").glob("*.html")), ids=lambda page: page.stem)
def test_the_pages_of_the_documentation_work(browser: Any, page: Path) -> None:
    """The README shows them as they are after these presses; their pictures are taken here."""
    assert page.stat().st_size < 1_500_000
    for opened in visit(browser, page):
        opened.point("photo", 0.4, 0.3, press=True)
        opened.view.fill("#layer", "1")
        assert "layer 2, head 1" in opened.status()
        assert opened.view.locator(".photo canvas").count() == opened.view.evaluate("() => META.models.length")
        assert opened.view.evaluate("() => document.documentElement.scrollWidth") <= 1280
        if SCREENSHOTS in os.environ:
            opened.view.mouse.move(0, 0)
            shown = opened.view.locator("section[aria-labelledby=attention-heading]").bounding_box()
            height = shown["y"] + shown["height"] + opened.view.evaluate("() => window.scrollY")
            folder = Path(os.environ[SCREENSHOTS])
            folder.mkdir(parents=True, exist_ok=True)
            clip = {"x": 0, "y": 0, "width": 1280, "height": height}
            opened.view.screenshot(path=folder / f"inspection-{page.stem}.png", full_page=True, clip=clip)


@pytest.mark.browser
def test_where_queries_are_left_out_the_nearest_that_is_kept_is_shown(
    browser: Any, tmp_path: Path, after: Inspection
) -> None:
    small = dataclasses.replace(after, step=None)
    for page in visit(browser, write_page([small], tmp_path, limit=4000)):
        assert "every second row and column of patches can be chosen" in page.view.inner_text("#attention")
        page.point("photo", 0.95, 0.8, press=True)
        assert "the patch at row 3, column 5 attends" in page.status()
        tops, numbers = levels_of(after.examples[0].attention[0][0, 1 + 2 * 6 + 4][None].numpy(), 31)
        best = int(weights_of(tops, numbers, 31)[0, 1:].argmax())
        assert f"to the patch at row {best // 6 + 1}, column {best % 6 + 1}" in page.status()
        page.view.locator(".photo canvas").focus()
        page.view.keyboard.press("ArrowLeft")
        assert "the patch at row 3, column 3 attends" in page.status()
