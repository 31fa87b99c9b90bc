"""The drafter as it is trained: what a block sees, its convolution, its selector, its head."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from dflash.train.convolution import DynamicConvolution, convolve
from dflash.train.head import draft_head
from dflash.train.model import Blocks, Drafter
from dflash.train.selector import CandidateSelector, walk
from tests.rigs.tiny_drafter import TINY_SHAPE, tiny_drafter, tiny_embedding, tiny_sequence

LENGTHS = (9, 14)
BLOCKS = Blocks(
    anchor_ids=torch.tensor([3, 5, 2, 9, 1]),
    anchors=torch.tensor([4, 9, 1, 6, 14]),
    per_sequence=(2, 3),
)


def shaken(drafter: Drafter, scale: float = 0.3) -> Drafter:
    """Move every parameter away from its start, so that no part is a no-op."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in drafter.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * scale)
    return drafter


def features() -> Tensor:
    return torch.cat([tiny_sequence(seed, length).features for seed, length in enumerate(LENGTHS)])


def hidden_of(drafter: Drafter, of_features: Tensor, convolving: bool = True) -> Tensor:
    context = drafter.context(of_features, LENGTHS)
    return drafter(context, BLOCKS, tiny_embedding(), convolving)


def normalised(x: Tensor, weight: Tensor) -> Tensor:
    return weight * x / torch.sqrt((x * x).mean(-1, keepdim=True) + TINY_SHAPE.rms_norm_eps)


def turned(x: Tensor, position: int) -> Tensor:
    """Turn one head of one token, pair by pair."""
    half, out = len(x) // 2, x.clone()
    for i in range(half):
        angle = position * TINY_SHAPE.rope_theta ** (-2 * i / len(x))
        out[i] = x[i] * math.cos(angle) - x[half + i] * math.sin(angle)
        out[half + i] = x[half + i] * math.cos(angle) + x[i] * math.sin(angle)
    return out


def mixed_by(kernel: Tensor, dynamic: Tensor, x: Tensor) -> Tensor:
    """Convolve slot by slot: `kernel [taps, hidden]`, `dynamic [slots, taps, groups]`."""
    out = torch.zeros_like(x)
    for slot in range(len(x)):
        for tap in range(min(slot + 1, 2)):
            weight = kernel[tap] + dynamic[slot, tap].repeat_interleave(16)
            out[slot] += weight * x[slot - tap]
    return out


def one_block(drafter: Drafter, of_features: Tensor, anchor_id: int, anchor: int) -> Tensor:
    """Compute one block alone, token by token and head by head."""
    weights = dict(drafter.named_parameters())
    dim, slots = TINY_SHAPE.head_dim, TINY_SHAPE.block_size
    past = normalised(of_features[:anchor] @ weights["fc.weight"].T, weights["hidden_norm.weight"])
    x = tiny_embedding()[[anchor_id] + [TINY_SHAPE.mask_token_id] * (slots - 1)]
    for layer in range(TINY_SHAPE.num_layers):
        part = {
            name.removeprefix(f"layers.{layer}."): weight
            for name, weight in weights.items()
            if name.startswith(f"layers.{layer}.")
        }

        def heads(y: Tensor, which: str, start: int | None, part: dict = part) -> Tensor:
            rows = (y @ part[f"self_attn.{which}_proj.weight"].T).unflatten(1, (-1, dim))
            if start is None:
                return rows
            rows = normalised(rows, part[f"self_attn.{which}_norm.weight"])
            turned_rows = [
                torch.stack([turned(head, start + t) for head in row]) for t, row in enumerate(rows)
            ]
            return torch.stack(turned_rows)

        def attention(y: Tensor, part: dict = part, heads=heads) -> Tensor:
            queries = heads(y, "q", anchor)
            keys = torch.cat([heads(past, "k", 0), heads(y, "k", anchor)])
            values = torch.cat([heads(past, "v", None), heads(y, "v", None)])
            out = []
            for head in range(TINY_SHAPE.num_heads):
                shared = head // (TINY_SHAPE.num_heads // TINY_SHAPE.num_kv_heads)
                scores = queries[:, head] @ keys[:, shared].T / math.sqrt(dim)
                out.append(scores.softmax(-1) @ values[:, shared])
            return torch.cat(out, -1) @ part["self_attn.o_proj.weight"].T

        def mlp(y: Tensor, part: dict = part) -> Tensor:
            gate = functional.silu(y @ part["mlp.gate_proj.weight"].T)
            return (gate * (y @ part["mlp.up_proj.weight"].T)) @ part["mlp.down_proj.weight"].T

        for sublayer, norm, convolution in (
            (attention, "input_layernorm", "attention_conv"),
            (mlp, "post_attention_layernorm", "mlp_conv"),
        ):
            y = normalised(x, part[f"{norm}.weight"])
            base = part[f"{convolution}.base_kernel"]
            dynamic = y @ part[f"{convolution}.kernel_projection.weight"].T
            dynamic = dynamic.unflatten(1, (2, 2, -1))
            inner = sublayer(mixed_by(base[0], dynamic[:, 0], y))
            x = x + mixed_by(base[1], dynamic[:, 1], inner)
    return normalised(x, weights["norm.weight"])[1:]


@torch.no_grad()
def test_blocks_of_a_batch_equal_each_block_alone() -> None:
    drafter = shaken(tiny_drafter())
    batched = hidden_of(drafter, features())
    starts = (0, 0, 9, 9, 9)
    for block, start in enumerate(starts):
        alone = one_block(
            drafter,
            features()[start:],
            int(BLOCKS.anchor_ids[block]),
            int(BLOCKS.anchors[block]),
        )
        torch.testing.assert_close(batched[block], alone, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_a_block_sees_nothing_from_its_anchor_on() -> None:
    drafter = shaken(tiny_drafter())
    changed = features()
    changed[4:9] += 1.0
    before, after = hidden_of(drafter, features()), hidden_of(drafter, changed)
    same = [torch.equal(a, b) for a, b in zip(before, after, strict=True)]
    # Only the second block, whose anchor is 9, may look at positions 4 to 8 of its sequence.
    assert same == [True, False, True, True, True]


def test_parameters_have_the_published_names() -> None:
    names = set(tiny_drafter().state_dict())
    assert len(names) == 15 * TINY_SHAPE.num_layers + 6
    assert {
        "fc.weight",
        "layers.1.self_attn.q_norm.weight",
        "layers.0.attention_conv.base_kernel",
        "layers.0.mlp_conv.kernel_projection.weight",
        "candidate_selector.predecessor_codebook",
        "candidate_selector.hidden_projection.weight",
    } <= names


@torch.no_grad()
def test_the_convolution_starts_as_exactly_nothing() -> None:
    drafter = tiny_drafter()
    plain = hidden_of(drafter, features(), convolving=False)
    assert torch.equal(hidden_of(drafter, features(), convolving=True), plain)
    drafter.layers[0].mlp_conv.kernel_projection.weight.fill_(0.1)
    assert not torch.equal(hidden_of(drafter, features(), convolving=True), plain)


@torch.no_grad()
def test_the_selector_starts_as_exactly_nothing() -> None:
    selector = tiny_drafter().candidate_selector
    added = selector(torch.randn(2, 32), torch.tensor([1, 2]), torch.tensor([[3, 4], [5, 6]]))
    assert torch.equal(added, torch.zeros(2, 2))
    selector.successor_codebook.fill_(0.1)
    added = selector(torch.randn(2, 32), torch.tensor([1, 2]), torch.tensor([[3, 4], [5, 6]]))
    assert added.abs().min() > 0


def grid(rows: int, columns: int, value) -> Tensor:
    return torch.tensor([[value(i, j) for j in range(columns)] for i in range(rows)]).double()


def convolved_vector() -> tuple[Tensor, Tensor]:
    """The published test vector of the convolution: what enters the sublayer, and the end."""
    convolution = DynamicConvolution(TINY_SHAPE).double()
    base = [
        [[float(o == 0) + 0.01 * math.cos(s + 2 * o + 0.3 * c) for c in range(32)] for o in (0, 1)]
        for s in (0, 1)
    ]
    convolution.base_kernel.data = torch.tensor(base).double()
    convolution.kernel_projection.weight.data = grid(
        8, 32, lambda r, c: 0.02 * math.sin(0.5 * r + 0.2 * c)
    )
    x = grid(3, 32, lambda t, c: math.sin(0.37 * t + 0.11 * c))[None]
    before, after = convolution.kernels(x)
    y = convolve(x, before)
    return y[0].detach(), convolve(2 * y, after)[0].detach()


def test_the_convolution_gives_the_published_numbers() -> None:
    y, z = convolved_vector()
    assert y[1, 0].item() == pytest.approx(0.41673835, abs=1e-6)
    assert y[2, 31].item() == pytest.approx(-0.92095616, abs=1e-6)
    assert z[0, 31].item() == pytest.approx(-0.43842797, abs=1e-6)
    assert z[1, 0].item() == pytest.approx(0.68840099, abs=1e-6)
    assert z[2, 16].item() == pytest.approx(0.70564476, abs=1e-6)
    assert z.sum().item() == pytest.approx(69.74918239, abs=1e-5)


@torch.no_grad()
def test_the_selector_gives_the_published_path() -> None:
    selector = CandidateSelector(TINY_SHAPE).double()
    selector.predecessor_codebook.data = grid(20, 4, lambda v, j: math.sin(v + 0.5 * j))
    selector.successor_codebook.data = grid(20, 4, lambda v, j: math.cos(0.7 * v + 0.3 * j))
    selector.hidden_projection.weight.data = grid(4, 32, lambda j, c: 0.1 * math.sin(j + 0.4 * c))
    _, hidden = convolved_vector()
    unary = grid(3, 20, lambda t, v: math.sin(1.3 * v + t))
    values, ids = unary.topk(3)
    first = values[0] + selector(hidden[:1], torch.tensor([7]), ids[:1])[0]
    scores = dict(zip(ids[0].tolist(), first.tolist(), strict=True))
    assert scores == pytest.approx({6: 0.903184, 11: 1.229480, 1: 0.899450}, abs=1e-5)
    path = walk(selector, hidden[None], values[None], ids[None], torch.tensor([7]))
    assert path.tolist() == [[11, 5, 14]]


def test_the_head_gives_the_loss_and_gradient_of_plain_cross_entropy() -> None:
    # More rows than are worked on at once.
    hidden = torch.randn(700, 32, generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([2, 3, 5, 7, 11, 13, 17, 19])
    head = draft_head(tiny_embedding(), ids)
    labels = ids[torch.randint(8, (700,), generator=torch.Generator().manual_seed(1))]
    scale = torch.rand(700, generator=torch.Generator().manual_seed(2))

    ours = hidden.clone().requires_grad_()
    losses, likelihoods, best = head.cross_entropy(ours, labels, None, 3)
    (losses * scale).sum().backward()

    plain = hidden.clone().requires_grad_()
    logits = plain @ tiny_embedding()[ids].T
    expected = functional.cross_entropy(logits, head.rows[labels], reduction="none")
    (expected * scale).sum().backward()

    torch.testing.assert_close(losses, expected)
    torch.testing.assert_close(likelihoods, (-expected).exp())
    torch.testing.assert_close(ours.grad, plain.grad)
    assert torch.equal(best, ids[logits.topk(3).indices])


def test_a_taught_row_is_drawn_halfway_to_the_targets_distribution() -> None:
    source = torch.Generator().manual_seed(3)
    hidden, taught = (torch.randn(9, 32, generator=source) for _ in range(2))
    ids = torch.tensor([2, 3, 5, 7, 11, 13, 17, 19])
    head, labels = draft_head(tiny_embedding(), ids), ids[torch.arange(9) % 8]

    ours = hidden.clone().requires_grad_()
    losses, _, _ = head.cross_entropy(ours, labels, taught, 0)
    losses.sum().backward()

    plain = hidden.clone().requires_grad_()
    logits, wanted = plain @ tiny_embedding()[ids].T, taught @ tiny_embedding()[ids].T
    of_label = functional.cross_entropy(logits, head.rows[labels], reduction="none")
    of_target = functional.cross_entropy(logits, wanted.softmax(dim=-1), reduction="none")
    (0.5 * of_label + 0.5 * of_target).sum().backward()

    torch.testing.assert_close(losses, of_label)
    torch.testing.assert_close(ours.grad, plain.grad)


@pytest.mark.parametrize("window", [4, 9, 11])
def test_a_block_sees_only_the_context_nearer_than_the_window(window: int):
    shape = replace(TINY_SHAPE, sliding_window=window)
    torch.manual_seed(0)
    drafter = shaken(Drafter(shape))
    before = hidden_of(drafter, features())
    changed = features()
    # Position 4 of the second sequence, which begins at row 9; its blocks stand at 1, 6 and 14.
    changed[LENGTHS[0] + 4] += 1.0
    moved = (hidden_of(drafter, changed) != before).flatten(1).any(dim=1)
    assert moved.tolist() == [False, False, False, window > 6 - 4, window > 14 - 4]
