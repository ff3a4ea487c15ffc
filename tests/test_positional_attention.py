"""The layer against Definition 3.2 by hand and against vanilla attention; its scores are never stale."""

import copy
import io

import jaxtyping
import pytest
import torch
from torch import nn

from tessella.models.positional_attention import PositionalAttention, parameter_groups
from tessella.models.positional_scores import PARAMETRISATIONS, PositionalScores, held_scores
from tessella.models.vit import SelfAttention, ViT, ViTShape

DIM, HEADS, TOKENS = 12, 3, 7
SMALL = ViTShape(image=8, patch=4, dim=12, depth=2, heads=3, hidden=16, registers=1)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def layer_and_input(parametrisation, **options):
    layer = PositionalAttention(DIM, HEADS, parametrisation, TOKENS, generator=generator(), **options).double()
    positions = torch.randn(TOKENS, DIM, generator=generator(1), dtype=torch.float64)
    tokens = torch.randn(2, TOKENS, DIM, generator=generator(2), dtype=torch.float64)
    return layer, tokens, positions


def by_definition(layer, tokens, positions):
    """Definition 3.2 head by head and row by row, with explicit sums."""
    size, out = DIM // HEADS, torch.zeros_like(tokens)
    values = layer.project_values(tokens)
    for h in range(HEADS):
        part = slice(h * size, (h + 1) * size)
        if layer.scores.parametrisation == "matrix":
            A = layer.scores.attention[h]
        elif layer.scores.parametrisation == "gram":
            A = positions[:, part] @ positions[:, part].T / size**0.5
        else:
            A = layer.scores.query(positions)[:, part] @ layer.scores.key(positions)[:, part].T / size**0.5
        for i in range(TOKENS):
            weights = A[i].exp() / sum(A[i, r].exp() for r in range(TOKENS))
            out[:, i, part] = sum(weights[j] * values[:, j, part] for j in range(TOKENS))
    return layer.project_out(out)


@pytest.mark.parametrize("parametrisation", PARAMETRISATIONS)
@pytest.mark.parametrize("training", [True, False])
def test_layer_is_definition_3_2(parametrisation, training):
    layer, tokens, positions = layer_and_input(parametrisation)
    layer.train(training)
    if parametrisation == "matrix":
        nn.init.normal_(layer.scores.attention, generator=generator(3))
    torch.testing.assert_close(layer(tokens, positions), by_definition(layer, tokens, positions))


def test_matrix_starts_with_sigma_on_the_diagonal_and_zero_elsewhere():
    layer = PositionalAttention(DIM, HEADS, "matrix", TOKENS, diagonal=3.0)
    expected = 3.0 * torch.eye(TOKENS).expand(HEADS, -1, -1)
    torch.testing.assert_close(layer.scores.attention.detach(), expected)


def test_content_free_queries_and_keys_give_the_vanilla_layer():
    """W_Q and W_K that read the half of the space where encodings live, and not the half where content does."""
    layer, _, positions = layer_and_input("projections")
    vanilla = SelfAttention(ViTShape(dim=DIM, heads=HEADS), generator()).double()
    half = DIM // 2
    positions[:, half:] = 0
    content = torch.randn(2, TOKENS, DIM, generator=generator(4), dtype=torch.float64)
    content[..., :half] = 0
    with torch.no_grad():
        for projection in (layer.scores.query, layer.scores.key):
            projection.weight[:, half:] = 0
            projection.bias.normal_(generator=generator(5))
        vanilla.qkv.weight.copy_(
            torch.cat([layer.scores.query.weight, layer.scores.key.weight, layer.project_values.weight])
        )
        vanilla.qkv.bias.copy_(torch.cat([layer.scores.query.bias, layer.scores.key.bias, layer.project_values.bias]))
        vanilla.out.load_state_dict(layer.project_out.state_dict())
    tokens = content + positions
    torch.testing.assert_close(layer(tokens, positions), vanilla(tokens))


def test_kept_tokens_attend_among_themselves():
    layer, tokens, positions = layer_and_input("projections")
    kept = torch.tensor([[0, 2, 5], [4, 1, 6]])
    some = tokens.gather(1, kept[..., None].expand(-1, -1, DIM))
    got = layer(some, positions, kept)
    for b in range(2):
        torch.testing.assert_close(got[b : b + 1], layer(some[b : b + 1], positions[kept[b]]))


# What may change scores behind a cache. Each takes a layer in eval mode whose scores were asked for before.
def _in_place(layer):
    with torch.no_grad():
        next(layer.scores.parameters()).mul_(-1.5)


def _through_data(layer):
    next(layer.scores.parameters()).data.mul_(-0.7)


def _in_inference_mode(layer):
    with torch.inference_mode():
        next(layer.scores.parameters()).mul_(2.5)


def _through_numpy(layer):
    next(layer.scores.parameters()).detach().numpy()[...] *= 3


def _new_storage(layer):
    first = next(layer.scores.parameters())
    first.data = first.detach() * 2


def _new_parameter(layer):
    if layer.scores.parametrisation == "matrix":
        layer.scores.attention = nn.Parameter(layer.scores.attention.detach() * 4)
    else:
        layer.scores.query.weight = nn.Parameter(layer.scores.query.weight.detach() * 4)


def _loaded(layer):
    layer.load_state_dict({name: 2 * value for name, value in layer.state_dict().items()})


def _loaded_by_assignment(layer):
    layer.load_state_dict({name: 2 * value for name, value in layer.state_dict().items()}, assign=True)


def _cast(layer):
    layer.float().double().to(torch.float64)
    _in_place(layer)


def _trained(layer):
    optimiser = torch.optim.AdamW(layer.parameters(), lr=0.5, fused=True)
    layer.train()
    layer(torch.randn(2, TOKENS, DIM, dtype=torch.float64), torch.ones(TOKENS, DIM, dtype=torch.float64)).sum()
    for parameter in layer.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimiser.step()
    layer.eval()


def _trained_in_eval_mode(layer):
    optimiser = torch.optim.SGD(layer.parameters(), lr=1.0, foreach=True)
    for parameter in layer.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimiser.step()


CHANGES = [
    _in_place,
    _through_data,
    _in_inference_mode,
    _through_numpy,
    _new_storage,
    _new_parameter,
    _loaded,
    _loaded_by_assignment,
    _cast,
    _trained,
    _trained_in_eval_mode,
]


@pytest.mark.parametrize("parametrisation", ["matrix", "projections"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__.strip("_"))
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_scores_in_eval_mode_are_never_stale(parametrisation, change, mode):
    layer, tokens, positions = layer_and_input(parametrisation)
    layer.eval()
    with mode():
        before = layer(tokens, positions)
    change(layer)
    with mode():
        after = layer(tokens, positions)
    expected = by_definition(layer, tokens, positions)
    torch.testing.assert_close(after, expected.detach())
    assert not torch.allclose(before, after)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_scores_follow_a_cast(dtype):
    layer, tokens, positions = layer_and_input("projections")
    with torch.no_grad():
        exact = layer.eval()(tokens, positions)
        got = layer.to(dtype)(tokens.to(dtype), positions.to(dtype))
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), exact, rtol=0.05, atol=0.05)


def test_positions_changed_in_place_are_seen():
    layer, tokens, positions = layer_and_input("gram")
    layer.eval()
    with torch.no_grad():
        layer(tokens, positions)
        positions.data.mul_(0.3)
        torch.testing.assert_close(layer(tokens, positions), by_definition(layer, tokens, positions))


def test_scores_are_made_once_while_nothing_changes(monkeypatch):
    layer, tokens, positions = layer_and_input("projections")
    layer.eval()
    made = []
    whole = PositionalScores._made
    monkeypatch.setattr(PositionalScores, "_made", lambda self, *given: made.append(1) or whole(self, *given))
    with torch.inference_mode():
        for _ in range(3):
            layer(tokens, positions)
    assert len(made) == 1
    layer(tokens, positions)
    assert len(made) == 2, "with gradients asked for, scores carry their graph"


def test_scores_remembered_in_inference_mode_serve_gradients_of_the_input():
    layer, tokens, positions = layer_and_input("matrix")
    layer.eval().requires_grad_(False)
    with torch.inference_mode():
        layer(tokens, positions)
    tokens.requires_grad_()
    layer(tokens, positions).sum().backward()
    assert tokens.grad is not None


def test_remembered_scores_are_not_saved_or_copied():
    layer, tokens, positions = layer_and_input("matrix")
    keys = list(layer.state_dict())
    with torch.no_grad():
        layer.eval()(tokens, positions)
    assert list(layer.state_dict()) == keys
    assert copy.deepcopy(layer).scores._remembered is None
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    torch.testing.assert_close(again(tokens, positions), layer(tokens, positions))


def test_held_scores_stay_and_are_let_go():
    layer, tokens, positions = layer_and_input("matrix")
    with pytest.raises(ValueError, match="model: got one in training mode"), held_scores(layer):
        pass
    layer.eval()
    with torch.no_grad():
        with held_scores(layer):
            before = layer(tokens, positions)
            _in_place(layer)
            torch.testing.assert_close(layer(tokens, positions), before)
        assert not torch.allclose(layer(tokens, positions), before)


def test_attention_dropout_drops_the_same_scores_for_the_whole_batch():
    layer, tokens, positions = layer_and_input("matrix", attention_dropout=0.5)
    same = tokens[:1].expand(4, -1, -1)
    first, *others = layer(same, positions)
    assert all(torch.allclose(first, other) for other in others)
    assert not torch.allclose(first, layer(same, positions)[0])
    layer.eval()
    torch.testing.assert_close(layer(same, positions), layer(same, positions))


def test_parameter_groups_hold_every_parameter_once_and_scores_apart():
    model = ViT(SMALL, "projections")
    groups = parameter_groups(model, 1e-3, scores_times=50)
    by_name = {group["name"]: group for group in groups}
    listed = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(listed) == sorted(id(parameter) for parameter in model.parameters())
    assert by_name["scores"]["lr"] == pytest.approx(0.05)
    assert by_name["scores"]["weight_decay"] == 0
    expected = {id(p) for name, p in model.named_parameters() if ".scores." in name}
    assert {id(p) for p in by_name["scores"]["params"]} == expected
    assert id(model.positions) in {id(p) for p in by_name["without decay"]["params"]}
    torch.optim.AdamW(groups)
    gram = ViT(SMALL, "gram")
    assert parameter_groups(gram, 1e-3, encodings=[gram.positions])[-1]["params"] == [gram.positions]


@pytest.mark.parametrize("attention", ["vanilla", *PARAMETRISATIONS])
@pytest.mark.parametrize("added", [True, False])
def test_vit_trains_a_step_with_a_gradient_for_every_parameter(attention, added):
    model = ViT(SMALL, attention, added)
    images = torch.randn(4, 3, 8, 8, generator=generator())
    assert model(images).shape == (4, 10)
    nn.functional.cross_entropy(model(images), torch.arange(4)).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    again = ViT(SMALL, attention, added)
    again.load_state_dict(model.state_dict())
    torch.testing.assert_close(again(images), model(images))


def test_gram_encodings_start_with_sigma_on_the_diagonal_on_average():
    shape = ViTShape(image=64, dim=96, heads=3)
    model = ViT(shape, "gram", diagonal=2.0)
    logits = model.blocks[0].attention.scores.logits(model.positions.detach())
    assert float(logits.diagonal(dim1=1, dim2=2).mean()) == pytest.approx(2.0, rel=0.05)


def test_without_added_encodings_vanilla_attention_cannot_tell_patches_apart_and_positional_can():
    images = torch.randn(3, 3, 8, 8, generator=generator())
    swapped = torch.cat([images[..., 4:], images[..., :4]], dim=-1)
    blind = ViT(SMALL, "vanilla", added=False)
    torch.testing.assert_close(blind(images), blind(swapped))
    seeing = ViT(SMALL, "projections", added=False)
    assert not torch.allclose(seeing(images), seeing(swapped), atol=1e-4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PositionalAttention(10, 3), "heads: got 3, expected a divisor of dim, 10"),
        (lambda: PositionalAttention(9, 3), "tokens: got None"),
        (lambda: PositionalAttention(9, 3, tokens=4, dropout=1.0), "dropout: got 1.0"),
        (lambda: PositionalAttention(9, 3, tokens=4)(torch.zeros(1, 5, 9)), "tokens: got 5, expected 4"),
        (lambda: PositionalAttention(9, 3, "gram")(torch.zeros(1, 5, 9)), "positions: got none"),
        (lambda: ViTShape(patch=5), "patch: got 5, expected a divisor"),
        (lambda: parameter_groups(ViT(SMALL), 0.0), "rate: got 0.0, expected a number above 0"),
    ],
)
def test_what_does_not_fit_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PositionalAttention(9, 3, tokens=4)(torch.zeros(4, 9)), r"tokens: got shape \(4, 9\), expected"),
        (lambda: PositionalAttention(9, 3, tokens=4)(torch.zeros(1, 4, 8)), r"tokens: got shape \(1, 4, 8\), expected"),
        (
            lambda: PositionalAttention(9, 3, "gram")(torch.zeros(1, 4, 9), torch.zeros(4, 6)),
            r"positions: got shape \(4, 6\), expected \(tokens, 9\)",
        ),
        (
            lambda: PositionalAttention(9, 3, "projections")(torch.zeros(1, 4, 9), torch.zeros(1, 4, 9)),
            r"positions: got shape \(1, 4, 9\), expected \(tokens, 9\)",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_named(make, message):
    """To users, who run without the checker of shapes."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        with pytest.raises(ValueError, match=message):
            make()
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def test_no_images_give_none():
    assert PositionalAttention(9, 3, tokens=4)(torch.zeros(0, 4, 9)).shape == (0, 4, 9)


def test_an_unknown_parametrisation_is_named(monkeypatch):
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        with pytest.raises(ValueError, match="parametrisation: got 'qk', expected one of projections, gram, matrix"):
            PositionalAttention(9, 3, "qk")
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("parametrisation", PARAMETRISATIONS)
def test_gradcheck_in_forward_mode(parametrisation):
    layer, tokens, positions = layer_and_input(parametrisation)
    given = (tokens[:, :, :].requires_grad_(), positions.requires_grad_())
    assert torch.autograd.gradcheck(layer, given, check_forward_ad=True, check_undefined_grad=False)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("parametrisation", PARAMETRISATIONS)
def test_a_layer_in_eval_mode_has_forward_derivatives_and_maps_over_weights(parametrisation):
    layer, tokens, positions = layer_and_input(parametrisation)
    layer.eval()
    weights = dict(layer.named_parameters())
    tangents = {name: torch.randn(each.shape, generator=generator(3)).double() for name, each in weights.items()}

    def call(these):
        return torch.func.functional_call(layer, these, (tokens, positions))

    with torch.no_grad():
        layer(tokens, positions)
        step = 1e-6
        ahead, behind = (call({n: w + s * tangents[n] for n, w in weights.items()}) for s in (step, -step))
        along = torch.func.jvp(call, (weights,), (tangents,))[1]
        torch.testing.assert_close(along, (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-7)
        stacked = {name: torch.stack([each, each + 1.0]) for name, each in weights.items()}
        mapped = torch.vmap(call)(stacked)
        one_more = {name: each + 1.0 for name, each in weights.items()}
        torch.testing.assert_close(mapped, torch.stack([call(weights), call(one_more)]))


@pytest.mark.parametrize("inference", [False, True])
def test_writing_to_the_scores_that_were_given_out_changes_nothing_later(inference):
    layer, tokens, positions = layer_and_input("projections")
    layer.eval()
    with torch.inference_mode() if inference else torch.no_grad():
        before = layer(tokens, positions)
        layer.scores(positions).zero_()
        torch.testing.assert_close(layer(tokens, positions), before)
        with held_scores(layer):
            layer.scores(positions)
            layer.scores(positions).zero_()
            torch.testing.assert_close(layer(tokens, positions), before)


def test_queries_that_are_more_than_a_projection_are_made_anew():
    layer, tokens, positions = layer_and_input("projections")
    layer.eval()
    shift = torch.zeros(DIM, dtype=torch.float64)
    layer.scores.query.register_forward_hook(lambda module, given, made: made + shift)
    with torch.no_grad():
        before = layer(tokens, positions)
        shift += torch.arange(DIM)
        assert not torch.allclose(layer(tokens, positions), before)


def test_projections_of_another_class_are_made_anew():
    class Shifted(nn.Linear):
        shift = 0.0

        def forward(self, positions):
            return super().forward(positions) + self.shift * torch.arange(DIM)

    layer, tokens, positions = layer_and_input("projections")
    layer.scores.key = Shifted(DIM, DIM).double()
    layer.eval()
    with torch.no_grad():
        before = layer(tokens, positions)
        layer.scores.key.shift = 1.0
        # A shift of all keys alone would leave the softmax as it is.
        layer.scores.query = Shifted(DIM, DIM).double()
        moved = layer(tokens, positions)
        layer.scores.query.shift = 1.0
        assert not torch.allclose(layer(tokens, positions), moved)
        assert not torch.allclose(moved, before)


def test_a_promise_within_a_promise_leaves_the_outer_one_on():
    layer, tokens, _ = layer_and_input("matrix")
    layer.eval()
    with torch.no_grad(), held_scores(layer):
        before = layer(tokens)
        with held_scores(layer):
            layer(tokens)
        layer.scores.attention.data.zero_()
        torch.testing.assert_close(layer(tokens), before)
    with torch.no_grad():
        assert not torch.allclose(layer(tokens), before)


@pytest.mark.parametrize("parametrisation", PARAMETRISATIONS)
def test_the_meta_device_gives_shapes(parametrisation):
    layer, tokens, positions = layer_and_input(parametrisation)
    assert layer.to("meta")(tokens.to("meta"), positions.to("meta")).shape == (2, TOKENS, DIM)


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        (torch.zeros(3, 4, dtype=torch.long), r"kept: got shape \(3, 4\), expected \(2, 4\), a row for each image"),
        (torch.tensor([[0, 1, 2, 7]] * 2), "kept: got positions from 0 to 7, expected from 0 to 6"),
        (torch.tensor([[0, 1, 2, -1]] * 2), "kept: got positions from -1 to 2, expected from 0 to 6"),
        (torch.arange(4), r"kept: got shape \(4,\), expected \(2, 4\), a row for each image"),
    ],
)
def test_kept_positions_that_are_not_there_are_named(kept, message):
    layer, tokens, positions = layer_and_input("projections")
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        with pytest.raises(ValueError, match=message):
            layer(tokens[:, :4], positions, kept)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def test_no_dimensions_are_refused():
    with pytest.raises(ValueError, match="dim: got 0, expected at least 1"):
        PositionalAttention(0, 1, tokens=5)
