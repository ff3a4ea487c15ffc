"""Measures of heads against closed forms, brute force, and what is known of positional attention."""

import itertools
import json
import math

import pytest
import torch
from probe_models import images, timm_model, torchvision_model, transformers_model
from scipy import stats

import tessella
from tessella import Extent, Partition, ViT, ViTShape
from tessella.probe import layer_sums
from tessella.probe.attention_calls import Call
from tessella.probe.default_partition import small_blocks
from tessella.probe.layer_sums import LayerSums, Place
from tessella.probe.mean_replacement import change_of_output
from tessella.probe.measures import change_of_the_head, of_mean, share_of_position, streamed
from tessella.probe.random_weights import randomised
from tessella.probe.ranks import among_others, effective_rank, rank_correlation
from tessella.probe.token_places import places
from tessella.probe.tower import tower

pytestmark = pytest.mark.filterwarnings("default")
"""What other libraries warn of is theirs."""

PLACE = Place(0, "attention", 2, ("class",), (3, 4), (8, 4))


def drawn(count, place=PLACE, seed=0, scale=1.0):
    """Random attention and values of several images."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(count, place.heads, place.tokens, place.tokens, generator=generator)
    return logits.softmax(-1), torch.randn(count, place.heads, place.tokens, 5, generator=generator)


def summed(weights, values, place=PLACE, moved=100, examples=0, batch=3):
    sums = LayerSums(place, torch.device("cpu"), examples, moved)
    for some, others in zip(weights.split(batch), values.split(batch), strict=True):
        sums.add(Call("attention", others, known=some))
    return sums


def test_distance_is_the_published_one():
    # Dosovitskiy et al. 2021, D.7: the distance between the query and all others, averaged with attention's weights.
    weights, values = drawn(4)
    places_ = [(8.0 * row, 4.0 * column) for row, column in itertools.product(range(3), range(4))]
    expected = torch.zeros(2)
    for image, head, query in itertools.product(range(4), range(2), range(12)):
        row = weights[image, head, 1 + query, 1:]
        far = torch.tensor([math.dist(places_[query], other) for other in places_])
        expected[head] += (row * far).sum() / row.sum() / (4 * 12)
    torch.testing.assert_close(streamed(summed(weights, values))["attention distance"].float(), expected)


def test_known_attention_has_its_known_distance_entropy_and_diversity():
    place = Place(0, "a", 3, (), (1, 4), (16, 16))
    itself, alike = torch.eye(4), torch.full((4, 4), 0.25)
    next_one = torch.eye(4).roll(1, 1)
    found = streamed(summed(torch.stack([itself, alike, next_one])[None], torch.ones(1, 3, 4, 2), place))
    # All alike: pairs 0 to 3 apart have mean distance 20 / 16; the last patch's next one is the first, 3 apart.
    assert found["attention distance"].tolist() == pytest.approx([0.0, 16 * 20 / 16, 16 * (3 * 1 + 3) / 4])
    assert found["entropy"].tolist() == pytest.approx([0.0, math.log(4), 0.0], abs=1e-6)
    assert found["diversity"].tolist() == pytest.approx([1.0, 0.0, 1.0], abs=1e-6)


def test_share_of_position_is_one_without_content_and_zero_without_position():
    same, values = drawn(1)
    repeated = summed(same.expand(20, -1, -1, -1), values.expand(20, -1, -1, -1))
    assert share_of_position(repeated).tolist() == pytest.approx([1.0, 1.0])
    content, others = drawn(400, scale=2.0)
    assert float(share_of_position(summed(content, others)).max()) < 0.02
    assert all(map(math.isnan, share_of_position(summed(*drawn(1))).tolist()))
    uniform = torch.full_like(content, 1 / 13)
    assert all(map(math.isnan, share_of_position(summed(uniform, others)).tolist()))


def test_share_of_position_does_not_depend_on_how_many_images_estimate_it():
    # Position plus content of the same variance, with logits so small that attention is linear in them.
    position = torch.randn(1, 2, 13, 13, generator=torch.Generator().manual_seed(3))
    content = torch.randn(300, 2, 13, 13, generator=torch.Generator().manual_seed(4))
    weights = (0.02 * (position + content)).softmax(-1)
    values = torch.ones(300, 2, 13, 1)
    few = torch.stack(
        [share_of_position(summed(*each)) for each in zip(weights.split(3), values.split(3), strict=True)]
    )
    many = share_of_position(summed(weights, values))
    torch.testing.assert_close(few.mean(0), many, atol=0.03, rtol=0)
    assert many.tolist() == pytest.approx([0.5, 0.5], abs=0.06)


def test_change_of_the_head_is_that_of_a_second_pass():
    weights, values = drawn(7)
    mean, answers = weights.mean(0), weights @ values
    expected = ((mean @ values - answers).square().sum((0, 2, 3)) / answers.square().sum((0, 2, 3))).sqrt()
    torch.testing.assert_close(change_of_the_head(summed(weights, values)).float(), expected, atol=1e-5, rtol=1e-4)
    # Of the first four images, against the mean over all.
    some = ((mean @ values[:4] - answers[:4]).square().sum((0, 2, 3)) / answers[:4].square().sum((0, 2, 3))).sqrt()
    torch.testing.assert_close(change_of_the_head(summed(weights, values, moved=4)).float(), some, atol=1e-5, rtol=1e-4)


def test_neither_batches_nor_chunks_change_what_is_summed(monkeypatch):
    weights, values = drawn(8)
    whole = summed(weights, values, batch=8, examples=3)
    for batch, chunk in ((1, 1), (3, 2 * 169), (8, 5 * 169)):
        monkeypatch.setitem(layer_sums.CHUNK, "cpu", chunk)
        other = summed(weights, values, batch=batch, examples=3)
        for name in ("attention", "per_head", "examples", "squared_answer", "answer_value", "value_value"):
            torch.testing.assert_close(getattr(other, name), getattr(whole, name), atol=1e-4, rtol=1e-5)


def test_what_is_kept_does_not_grow_with_the_number_of_images():
    def kept(sums):
        return sum(each.nbytes for each in vars(sums).values() if isinstance(each, torch.Tensor))

    assert kept(summed(*drawn(2))) == kept(summed(*drawn(40)))


def _replaced_by_hand(model, given, layer, head, mean):
    """The output with one head's attention replaced in timm's unfused path, at the dropout that follows the softmax."""
    attention = model.blocks[layer].attn

    def swapped(_, inputs):
        changed = inputs[0].clone()
        changed[:, head] = mean[head]
        return (changed,)

    for block in model.blocks:
        block.attn.fused_attn = False
    hook = attention.attn_drop.register_forward_pre_hook(swapped)
    with torch.no_grad():
        answer = model(given)
    hook.remove()
    return answer


def test_change_of_the_output_is_that_of_replacing_the_head_by_hand():
    model, given = timm_model("deit_tiny_distilled_patch16_224", (16, 24)), images(3, 16, 24)
    seen = tessella.inspect(model, given, extent=Extent(output_images=3, chance_images=1))
    found = seen.measures["change of the output"]
    plain = model(given).detach()
    for layer, head in itertools.product(range(2), range(3)):
        other = _replaced_by_hand(model, given, layer, head, seen.layers[layer].mean_attention)
        expected = float((other - plain).norm() / plain.norm())
        assert expected > 1e-3
        assert float(found.values[layer, head]) == pytest.approx(expected, rel=1e-3)
    assert (found.images, found.chance_images) == (3, 1)


@pytest.mark.parametrize("name", ["swin", "torchvision", "positional", "transformers"])
def test_leaving_out_the_blocks_ahead_does_not_change_what_replacing_does(name, monkeypatch):
    model = {
        "swin": lambda: timm_model("swin_tiny_patch4_window7_224", (32, 32)),
        "torchvision": torchvision_model,
        "positional": lambda: ViT(ViTShape(image=32, patch=8, dim=12, depth=2, heads=3), "projections"),
        "transformers": lambda: transformers_model("ViTModel", 32),
    }[name]()
    looked_at, given = tower(model), images(2, 32, 32)
    with looked_at.reading():
        found, _ = places(looked_at, given[:1])
        assert len(found) > 1
        means = [torch.rand(place.heads, place.tokens, place.tokens) for place in found]
        quick = change_of_output(looked_at, found, means, [given])
        monkeypatch.setattr("tessella.probe.mean_replacement._blocks", lambda *_: [])
        whole = change_of_output(looked_at, found, means, [given])
    for one, other in zip(quick, whole, strict=True):
        assert float(one.min()) > 0
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-3)


def test_positional_attention_is_all_position_and_its_mean_does_its_work():
    model = ViT(ViTShape(image=16, patch=4, dim=12, depth=2, heads=3), "matrix", diagonal=1.0)
    with torch.no_grad():
        for block in model.blocks:
            block.attention.scores.attention += torch.randn(17, 17, generator=torch.Generator().manual_seed(0))
    seen = tessella.inspect(model, images(4, 16, 16))
    assert seen.measures["share of position"].values.flatten().tolist() == pytest.approx([1.0] * 6)
    assert float(seen.measures["change of the head"].values.max()) < 2e-3
    assert float(seen.measures["change of the output"].values.max()) < 1e-6
    scores = model.blocks[1].attention.scores(None)
    torch.testing.assert_close(seen.layers[1].mean_attention, scores.detach())


def test_mean_attention_that_is_blocks_associates_and_agrees_with_encodings_that_are():
    partition = Partition.blocks(4, 4, 2, 2)
    blocks = partition.same_set.float()[None] / 4
    found = of_mean(blocks, 0, (4, 4), partition, partition.same_set.float())
    assert found["association"].tolist() == [1.0]
    assert found["agreement with encodings"].tolist() == pytest.approx([1.0])
    assert found["effective rank"].tolist() == pytest.approx([4.0])
    other = of_mean(blocks, 0, (4, 4), Partition.random(16, 4, seed=0), None)
    assert float(other["association"]) < 0.6
    assert "agreement with encodings" not in other
    assert small_blocks((4, 4)) == partition


def test_ranks_are_those_of_scipy_ties_included():
    generator = torch.Generator().manual_seed(0)
    first = torch.randint(0, 5, (6, 9), generator=generator).double()
    second = torch.randn(6, 9, generator=generator, dtype=torch.float64)
    expected = [stats.spearmanr(a, b).statistic for a, b in zip(first.numpy(), second.numpy(), strict=True)]
    assert rank_correlation(first, second).tolist() == pytest.approx(expected)
    matrix = torch.arange(9.0).view(3, 3)
    assert among_others(matrix).tolist() == [[1.0, 2.0], [3.0, 5.0], [6.0, 7.0]]
    assert float(effective_rank(torch.ones(4, 4))) == pytest.approx(1.0, abs=1e-4)


def test_chance_is_the_same_measure_of_the_same_architecture_with_random_weights():
    model, given = timm_model("vit_tiny_patch16_224", (32, 32)), images(6, 32, 32)
    seen = tessella.inspect(model, given, extent=Extent(chance_images=6, output_images=1), seed=5)
    again = tessella.inspect(randomised(model, 5), given, extent=Extent(chance_images=6, output_images=1))
    assert list(seen.measures) == list(again.measures)
    for name, measured in seen.measures.items():
        torch.testing.assert_close(measured.chance, again.measures[name].values, msg=name, equal_nan=True)
    assert seen.encodings.chance == pytest.approx(again.encodings.measures)
    assert not torch.equal(seen.measures["entropy"].values, seen.measures["entropy"].chance)


def test_random_weights_differ_by_seed_leave_the_model_and_the_global_generator_alone():
    for model in (
        timm_model("vit_tiny_patch16_224", (32, 32)),
        transformers_model("ViTModel", 32),
        torchvision_model(),
    ):
        before, state = [each.clone() for each in model.parameters()], torch.get_rng_state()
        one, same, other = (randomised(model, seed) for seed in (0, 0, 1))
        assert torch.equal(torch.get_rng_state(), state)
        assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
        assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
        assert any(not torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_numbers_lie_in_the_range_that_is_given_and_write_as_json():
    seen = tessella.inspect(timm_model("eva02_tiny_patch14_224", (24, 40)), images(4, 24, 40))
    assert set(seen.measures) >= {"attention distance", "entropy", "diversity", "share of position", "effective rank"}
    for name, measured in seen.measures.items():
        for table in (measured.values, measured.chance):
            assert float(table.nan_to_num(measured.low).min()) >= measured.low - 1e-6, name
            assert float(table.nan_to_num(measured.low).max()) <= measured.high + 1e-6, name
    written = json.loads(json.dumps(seen.as_json(), allow_nan=False))
    assert written["measures"]["entropy"]["values"][0][0] == pytest.approx(float(seen.measures["entropy"].values[0, 0]))


def test_some_layers_alone_are_those_of_all():
    model, given = timm_model("vit_tiny_patch16_224", (32, 32)), images(3, 32, 32)
    whole = tessella.inspect(model, given)
    last = tessella.inspect(model, given, extent=Extent(layers=(-1,)))
    assert [layer.index for layer in last.layers] == [1]
    torch.testing.assert_close(last.layers[0].mean_attention, whole.layers[1].mean_attention)
    for name, measured in last.measures.items():
        torch.testing.assert_close(measured.values[0], whole.measures[name].values[1], msg=name, equal_nan=True)
    with pytest.raises(ValueError, match=r"^layers: got 2, expected 0 to 1, or -1 for the last"):
        tessella.inspect(model, given, extent=Extent(layers=(2,)))


def test_a_partition_that_does_not_fit_is_named():
    with pytest.raises(ValueError, match=r"^partition: got 9 patches, expected the model's 4 x 4"):
        tessella.inspect(torchvision_model(), images(1, 32, 32), partition=Partition.random(9, 3, seed=0))
