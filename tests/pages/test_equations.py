"""The equations that readers copy, held against the code that they describe.

Each stands below as its page has it, with its sides: first what the library, PyTorch,
an exact chance or a count gives, then the formula, spelled out in Python. Whoever
changes an equation on a page changes it here, too, and sees whether it is true.
"""

import copy
import math
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn, tensor
from torch.autograd.functional import jacobian
from torch.distributions import Categorical
from torch.utils.flop_counter import FlopCounterMode

from tested_transformer import (
    decoding,
    encoder_decoder,
    gpt,
    interpret,
    masks,
    positions,
    surgery,
    training,
)
from tested_transformer.attention import (
    attention_scores,
    attention_weights,
    attention_with_weights as attention,
    repeat_heads,
)
from tested_transformer.attentions import index_loss, index_scores, pool
from tested_transformer.cache import DenseCache, KVCache
from tested_transformer.checkpoints import to_torch
from tested_transformer.experts import MixtureOfExperts, count_parameters
from tested_transformer.gpt import DecoderBlock
from tested_transformer.kernels import fused_attention
from tested_transformer.layers import AddNorm, FeedForward, make_norm
from tested_transformer.multihead import MultiHeadAttention
from tested_transformer.training.muon import _coefficients
from transformer_book import microgpt

Sides = tuple[Any, ...]

# Sizes differ, so that no axis passes for another.
T, S, H, d_k, D, d_v, d_ff, vocab = 5, 7, 2, 3, 6, 11, 17, 19
chance = torch.Generator().manual_seed(0)


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=chance, dtype=torch.float64)


def redrawn(module: Any) -> Any:
    """Draw every parameter: gains are not 1, nor biases 0."""
    for parameter in module.parameters():
        parameter.data = drawn(*parameter.shape) / 2
    return module.double().requires_grad_(False)


def through(part: nn.Module, work: Callable[[], Any]) -> tuple[Tensor, Tensor]:
    """Return what goes into a part of a model while it works, and what comes out."""
    seen: list[tuple[Tensor, Tensor]] = []
    hook = part.register_forward_hook(lambda _, x, y: seen.append((x[0], y)))
    work()
    hook.remove()
    return seen[-1]


def multiplications(work: Callable[[], Any]) -> int:
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops() // 2  # PyTorch counts the additions, too


def table(entry: Callable[..., Any], *sizes: int) -> Tensor:
    """Return a tensor by a formula for its entries, or for its rows."""
    entries = [entry(*map(int, at)) for at in torch.ones(sizes).nonzero()]
    rows = torch.stack(
        [torch.as_tensor(value, dtype=torch.float64) for value in entries]
    )
    return rows.unflatten(0, sizes)


def row(*numbers: float) -> Tensor:
    return tensor(numbers, dtype=torch.float64)


def softmax(e: Tensor) -> Tensor:
    return e.exp() / e.exp().sum(-1, keepdim=True)


# One head: queries, keys, values, mask, scores, weights; and a row of each.
Q, K, V = drawn(T, d_k), drawn(S, d_k), drawn(S, d_v)
E, delta = Q @ K.T / d_k**0.5, torch.eye(S).double()
A, M = softmax(E), masks.causal_mask(T, S).double()
q, k, v, e, a, g = Q[0], K[0], V[:, 0], E[0], A[0], drawn(d_v)
index_q, index_w = torch.stack([Q, Q.flip(0)]), E[:, 2:4]
index_e = 3.0 * E.flip(1)  # scores of an indexer that knows little of E
marked = torch.zeros(T, S, dtype=torch.bool)
marked[[1, 1, 3, 4], [2, 5, 0, 6]] = True  # for three of the queries
chain_config = gpt.GPTConfig(vocab_size=vocab, d_model=D, num_heads=H, num_layers=1)
chained = redrawn(decoding.ChainedGPT(gpt.GPT(chain_config), num_tokens=3))
third_head, chain_text = chained.further[1], tensor([[3, 1, 4, 1, 5]])
unit_q, unit_k, P = q / q.norm(), k / k.norm(), torch.eye(T).double()[[3, 0, 4, 1, 2]]

# What a tile of three keys leaves; the four others are the next tile.
m, m_new = max(e[:3]), max(e)
W, U = drawn(d_v, D), drawn(T, D)
u = U / U.norm()
((muon_a, muon_b, muon_c),) = _coefficients(1)
ell, o = sum((e[:3] - m).exp()), (e[:3] - m).exp() @ V[:3]


@cache
def bars() -> dict[str, Tensor]:
    """Return the gradients, in the direction U, of all that one head computes."""
    leaves = [tensor.clone().requires_grad_() for tensor in (Q, K, V, W)]
    scores = attention_scores(*leaves[:2])
    weights = attention_weights(scores)
    output = weights @ leaves[2]
    every = (*leaves, scores, weights, output)
    gradients = torch.autograd.grad(output @ leaves[3], every, U)
    return dict(zip("QKVWEAZ", gradients, strict=True))


def bar(name: str) -> Tensor:
    return bars()[name]


# Every outcome of six lopsided coins, of mean 0 and variance 1, and its chance.
coins = torch.cartesian_prod(*[row(-(2**0.5), 0.5**0.5)] * 2 * d_k)
odds = torch.where(coins > 0, row(2 / 3), row(1 / 3)).prod(-1)
products = coins[:, :d_k] * coins[:, d_k:]
q_i, k_i = coins[:, 0], coins[:, d_k]


def mean(x: Tensor) -> Tensor:
    return odds @ x


def variance(x: Tensor) -> Tensor:
    return odds @ (x - odds @ x) ** 2


# A layer for one sequence, one that reads another, and one whose heads share keys.
X, C = drawn(T, D), drawn(S, 13)
layer = redrawn(MultiHeadAttention(d_model=D, num_heads=H, bias=False))
W_Q, W_K, W_V = (
    part.weight.T.split(d_k, dim=1)
    for part in (layer.q_proj, layer.k_proj, layer.v_proj)
)
W_O = layer.o_proj.weight.T.split(d_k)
cross = redrawn(MultiHeadAttention(d_model=D, num_heads=1, d_context=13, bias=False))
Q_C = X @ cross.q_proj.weight.T
K_C, V_C = C @ cross.k_proj.weight.T, C @ cross.v_proj.weight.T
four: dict[str, Any] = {"num_heads": 4, "num_kv_heads": 2, "head_dim": d_k}
shared = redrawn(MultiHeadAttention(d_model=D, bias=False, **four))
Q_4, K_2, V_2 = (
    part(X).split(d_k, dim=-1) for part in (shared.q_proj, shared.k_proj, shared.v_proj)
)


def head(layer: Any = layer) -> tuple[Tensor, ...]:
    return through(layer.o_proj, lambda: layer(X[None]))[0][0].split(d_k, dim=-1)


# What stands between layers of attention.
after, before = (redrawn(AddNorm(d_model=D, norm_first=f)) for f in (False, True))
layer_norm, rms_norm = (redrawn(make_norm(norm, D)) for norm in ("layer", "rms"))
wide: dict[str, Any] = {"d_model": D, "d_ff": d_ff}
plain = redrawn(FeedForward(**wide, bias=False, activation="relu"))
gated = redrawn(FeedForward(**wide, bias=False, activation="swiglu"))
up, gate, down = gated.up.weight.T, gated.gate.weight.T, gated.down.weight.T
mixture = redrawn(MixtureOfExperts(**wide, num_experts=5)).float()
p = softmax(X @ mixture.router.weight.double().T)
top, picked = p.topk(2)
count, block = count_parameters, DecoderBlock(**wide, num_heads=H)

# A GPT of two blocks, and what travels through it.
sizes = {**wide, "vocab_size": vocab, "max_seq_len": 23, "num_heads": H, "bias": False}
model = redrawn(gpt.GPT(gpt.GPTConfig(**sizes, num_layers=2)))
x, y, (one, two) = tensor([[3, 1, 4, 1, 5]]), tensor([[1, 4, 1, 5, 9]]), model.blocks
W_E, W_P = model.token_embedding.weight, model.position_embedding.weight
gates, R = drawn(H), drawn(H, T, d_k)
W_O1 = one.attention.o_proj.weight.T.split(d_k)


def x_l(layer: int) -> Tensor:
    return through((one, two, model.norm)[layer], lambda: model(x))[0]


def y_l(layer: int) -> Tensor:
    return through(model.blocks[layer - 1].feed_forward_norm, lambda: model(x))[0]


def loss(model: Any = model) -> Tensor:
    return training.next_token_loss(model(x), y)


def straight_loss() -> Tensor:
    """Return a loss, of one sequence, that changes with a gate in a straight line."""
    return (U * through(two.attention, lambda: model(x))[1]).sum((1, 2))


def gated_output() -> Tensor:
    with interpret.gated_heads(model, [gates, torch.ones(H)], instead=[R[None]] * 2):
        return through(one.attention, lambda: model(x))[1][0]


def without(h: int) -> Any:
    shut = copy.deepcopy(model)
    shut.blocks[1].attention.o_proj.weight[:, h * d_k : (h + 1) * d_k] = 0.0
    return shut


# A model of two languages, and one that sees what it should guess.
both: dict[str, Any] = {"num_encoder_layers": 1, "num_decoder_layers": 1}
config = encoder_decoder.EncoderDecoderConfig(**sizes, **both)
translator = redrawn(encoder_decoder.EncoderDecoder(config))
words, french = translator.token_embedding.weight, torch.arange(S)[None]
encoder = encoder_decoder.EncoderBlock(d_model=D, num_heads=H)
peeking = redrawn(nn.Sequential(nn.Embedding(D, D), encoder))
text = tensor([3, 1, 4, 1, 5, 2])


def translate() -> Tensor:
    return translator(french, x)


def honest() -> training.HonestLoss:
    return training.honest_loss(peeking, text, seq_len=T)


def f(length: int) -> Tensor:
    return softmax(peeking(text[None, :length])[0])


# Positions: sinusoids of eleven places, and turns of an arrow with two pairs.
waves, q_2, k_2 = positions.sinusoidal_positions(11, D), drawn(4), drawn(4)
omega, turns = [10000 ** (-2 * i / D) for i in range(D // 2)], row(1, 0.01)


def turned(arrow: Tensor, t: int) -> Tensor:
    angles = positions.rotary_table(tensor([t]), len(arrow))
    return positions.rotate(arrow[None].float(), angles)[0]


# A cache of 16 bits a number, and one that is filled step by step.
memory = torch.empty(2, 5, 3, S, d_v, dtype=torch.float16)
nbytes = KVCache([DenseCache(*memory), DenseCache(*memory)]).nbytes


def steps() -> Tensor:
    room = DenseCache(*torch.empty(2, 1, 1, T, d_k).double())
    kept = [room.append(key, -key) for key in K[:T, None, None, None]]
    queries = Q[:, None, None, None]
    return torch.cat([fused_attention(queries[t], *kept[t]) for t in range(T)])[:, 0, 0]


# Scores of words, their ranks; chances, and counts of draws.
z, tau, chances = drawn(vocab), 0.7, row(0.5, 0.25, 0.15, 0.07, 0.03)
soft = softmax(z / tau)
rank, n, N = (soft > soft[:, None]).sum(-1), row(45, 30, 15, 5, 5), 100


def keeps(**setting: float) -> Tensor:
    return decoding.sampling_probabilities(z, temperature=tau, **setting) > 0


# What microgpt makes of the head above, of a product, and of three gradients.
def scalars(numbers: Tensor) -> list[microgpt.Scalar]:
    return [microgpt.Scalar(number) for number in numbers.tolist()]


def slopes(f: Callable[..., microgpt.Scalar], *values: float) -> list[float]:
    numbers = scalars(row(*values))
    f(*numbers).backward()
    return [number.grad for number in numbers]


def adam(steps: int) -> SimpleNamespace:
    """Return the mean, the mean square and the weight after some steps."""
    weight = microgpt.Scalar(0.3)
    optimizer = microgpt.Adam([weight], beta1=0.8, beta2=0.7)
    for weight.grad in (0.5, -0.2, 0.9)[:steps]:
        optimizer.step(0.1)
    (m,), (v,) = optimizer.means, optimizer.squares
    return SimpleNamespace(m=m, v=v, w=weight.value)


def micro_attended() -> list[float]:
    output, _ = microgpt.attend(scalars(q), [*map(scalars, K)], [*map(scalars, V)])
    return [number.value for number in output]


micro = microgpt.MicroGPT(vocab_size=vocab, d_model=D, num_heads=H, max_seq_len=S)


# fmt: off
# To be read as a table: a formula, what gives it, and what it says.
EQUATIONS: dict[str, dict[str, Callable[[], Sides]]] = {
    "notation": {
        r"A = \operatorname{softmax}(E)": lambda: (attention_weights(E), softmax(E)),
        r"a_{ts} = \frac{m_{ts} \exp e_{ts}}{\sum_{j} m_{tj} \exp e_{tj}}": lambda: (
            attention_weights(E, M.bool()),
            M * E.exp() / (M * E.exp()).sum(-1, keepdim=True)),
    },
    "a-lookup-that-blurs": {
        r"\text{weight}_s = \frac{\exp(\text{score}_s)}{\sum_j \exp(\text{score}_j)}":
            lambda: (attention_weights(e[None])[0], e.exp() / sum(e.exp())),
        r"-\tfrac12 \lVert q - k \rVert^2 = q \cdot k - 1": lambda: (
            -1 / 2 * torch.dist(unit_q, unit_k) ** 2, unit_q @ unit_k - 1),
    },
    "square-root": {
        r"\operatorname{Var}(q_i k_i)"
        r" &= \operatorname{E}(q_i^2 k_i^2)"
        r" - \left(\operatorname{E}(q_i k_i)\right)^2 \\"
        r" &= \operatorname{E}(q_i^2) \operatorname{E}(k_i^2) - 0 = 1": lambda: (
            variance(q_i * k_i), mean(q_i**2 * k_i**2) - mean(q_i * k_i) ** 2,
            mean(q_i**2) * mean(k_i**2) - 0, 1),
        r"\operatorname{Var}(q \cdot k)"
        r" = \sum_{i=1}^{d_k} \operatorname{Var}(q_i k_i) = d_k": lambda: (
            variance(products.sum(-1)),
            sum(variance(products[:, i]) for i in range(d_k)), d_k),
        r"a (1 - a)": lambda: (
            jacobian(lambda e: attention_weights(e[None])[0], e).diagonal(),
            a * (1 - a)),
        r"-\sum_s a_s \ln a_s": lambda: (
            Categorical(a).entropy(), -sum(a[s] * a[s].log() for s in range(S))),
    },
    "attention-by-hand": {
        r"e_{ts} &= \frac{q_t \cdot k_s}{\sqrt{d_k}}": lambda: (
            attention_scores(Q, K), table(lambda t, s: Q[t] @ K[s] / d_k**0.5, T, S)),
        r"a_{ts} &= \frac{\exp e_{ts}}{\sum_j \exp e_{tj}}": lambda: (
            attention_weights(E),
            table(lambda t, s: E[t, s].exp() / sum(E[t].exp()), T, S)),
        r"o_t &= \sum_s a_{ts}\, v_s": lambda: (
            attention(Q, K, V)[0],
            table(lambda t: sum(A[t, s] * V[s] for s in range(S)), T)),
        r"\text{output} = \operatorname{softmax}"
        r"\!\left(\frac{Q K^\top}{\sqrt{d_k}}\right) V = A V": lambda: (
            attention(Q, K, V)[0], softmax(Q @ K.T / d_k**0.5) @ V, A @ V),
        r"T \cdot S \cdot d_k": lambda: (
            multiplications(lambda: attention_scores(Q, K)), T * S * d_k),
        r"T \cdot S \cdot d_v": lambda: (
            multiplications(lambda: attention(Q, K, V)) - T * S * d_k, T * S * d_v),
    },
    "softmax-gradients": {
        r"\frac{\partial a_i}{\partial e_s} = a_i (\delta_{is} - a_s)": lambda: (
            jacobian(lambda e: attention_weights(e[None])[0], e),
            table(lambda i, s: a[i] * (delta[i, s] - a[s]), S, S)),
        r"\frac{\partial o}{\partial e_s}"
        r" = \sum_i v_i\, a_i (\delta_{is} - a_s) = a_s (v_s - o)": lambda: (
            jacobian(lambda e: attention_weights(e[None])[0] @ v, e),
            sum(v[i] * a[i] * (delta[i] - a) for i in range(S)),
            a * (v - a @ v)),
    },
    "many-heads": {
        r"d_k = D / H": lambda: (layer.head_dim, D / H),
        r"A_h = \operatorname{softmax}\!\left("
        r"\frac{(X W^Q_h)(X W^K_h)^\top}{\sqrt{d_k}}\right)": lambda: (
            layer(X[None], return_weights=True)[1][0], table(lambda h: softmax(
                (X @ W_Q[h]) @ (X @ W_K[h]).T / d_k**0.5), H)),
        r"\text{head}_h = A_h\, X W^V_h": lambda: (
            torch.stack(head()), table(
                lambda h: layer(X[None], return_weights=True)[1][0, h] @ X @ W_V[h],
                H)),
        r"\text{output} = \begin{bmatrix} \text{head}_0 & \cdots"
        r" & \text{head}_{H-1} \end{bmatrix} W^O": lambda: (
            layer(X[None])[0], torch.cat(head(), dim=1) @ torch.cat(W_O)),
        r"\text{output} = \sum_{h=0}^{H-1} \text{head}_h\, W^O_h": lambda: (
            layer(X[None])[0], sum(head()[h] @ W_O[h] for h in range(H))),
        r"4D^2 + 4D": lambda: (
            count(MultiHeadAttention(d_model=D, num_heads=H)), 4 * D**2 + 4 * D),
    },
    "shapes-that-lie": {
        r"\left\lfloor \frac{hT + t}{H} \right\rfloor": lambda: (
            torch.arange(T).repeat_interleave(D).reshape(H, T, d_k)[..., 0],
            table(lambda h, t: (h * T + t) // H, H, T)),
    },
    "no-peeking": {
        r"m_{ts} = \begin{cases} 1 & \text{if } s \le t + (S - T)"
        r" \\ 0 & \text{otherwise} \end{cases}": lambda: (
            masks.causal_mask(T, S), table(lambda t, s: s <= t + (S - T), T, S)),
        r"a_{ts} = \frac{m_{ts} \exp e_{ts}}{\sum_{j=0}^{S-1} m_{tj} \exp e_{tj}}":
            lambda: (attention(Q, K, V, causal=True)[1],
                     M * E.exp() / (M * E.exp()).sum(-1, keepdim=True)),
        r"L_\text{usual} = -\frac1T \sum_{t=0}^{T-1}"
        r" \ln f_t(x_0 \ldots x_{T-1})[x_{t+1}]": lambda: (tensor(honest().full),
            -1 / T * sum(f(T)[t, text[t + 1]].log() for t in range(T))),
        r"L_\text{honest} = -\frac1T \sum_{t=0}^{T-1}"
        r" \ln f_t(x_0 \ldots x_{t})[x_{t+1}]": lambda: (tensor(honest().prefix),
            -1 / T * sum(f(t + 1)[t, text[t + 1]].log() for t in range(T))),
    },
    "padding": {
        r"m_{bts} = \begin{cases} 1 & \text{if token } s \text{ of } b"
        r" \text{ is real} \\ 0 & \text{if it is padding.} \end{cases}": lambda: (
            masks.padding_mask(tensor([3, 5])).expand(2, 1, T, 5)[:, 0],
            tensor([[[1, 1, 1, 0, 0]] * T, [[1, 1, 1, 1, 1]] * T])),
    },
    "cross-attention": {
        r"Q = X W^Q, \quad K = C W^K, \quad V = C W^V": lambda: (
            torch.cat([cross.q_proj(X), cross.k_proj(C), cross.v_proj(C)]),
            torch.cat([Q_C, K_C, V_C])),
        r"A = \operatorname{softmax}\!\left(\frac{Q K^\top}{\sqrt{d_k}}\right)":
            lambda: (cross(X[None], context=C[None], return_weights=True)[1][0, 0],
                     softmax(Q_C @ K_C.T / D**0.5)),
        r"\text{head} = A V": lambda: (
            through(cross.o_proj, lambda: cross(X[None], context=C[None]))[0][0],
            softmax(Q_C @ K_C.T / D**0.5) @ V_C),
    },
    "encoder-and-decoder": {
        r"X_t = \sqrt{D}\, W^E[\text{token}_t] + P_t": lambda: (
            through(translator.encoder[0], translate)[0][0],
            table(lambda t: D**0.5 * words[french[0, t]] + waves[t], S)),
        r"\text{logits} = Y\, (W^E)^\top": lambda: (
            translate(), through(translator.decoder[0], translate)[1] @ words.T),
    },
    "the-2017-transformer": {
        r"\sqrt{D/2}": lambda: (waves[5].norm(), (D / 2) ** 0.5),
    },
    "order": {
        r"\operatorname{softmax}\!\left(PQ\,(PK)^\top / \sqrt{d_k}\right)"
        r" = P A P^\top": lambda: (
            attention(P @ Q, P @ K[:T], P @ V[:T])[1],
            softmax(P @ Q @ (P @ K[:T]).T / d_k**0.5),
            P @ softmax(Q @ K[:T].T / d_k**0.5) @ P.T),
        r"P A P^\top P V = P\,AV": lambda: (
            attention(P @ Q, P @ K[:T], P @ V[:T])[0],
            P @ softmax(Q @ K[:T].T / d_k**0.5) @ P.T @ P @ V[:T],
            P @ attention(Q, K[:T], V[:T])[0]),
        r"p_{t,2i} = \sin(t\,\omega_i)": lambda: (
            waves[:, 0::2], table(lambda t, i: math.sin(t * omega[i]), 11, D // 2)),
        r"p_{t,2i+1} = \cos(t\,\omega_i)": lambda: (
            waves[:, 1::2], table(lambda t, i: math.cos(t * omega[i]), 11, D // 2)),
        r"\omega_i = 10000^{-2i/D}": lambda: (
            torch.atan2(waves[1, 0::2], waves[1, 1::2]),
            table(lambda i: 10000 ** (-2 * i / D), D // 2)),
        r"R_t \begin{pmatrix} a \\ b \end{pmatrix} = \begin{pmatrix}"
        r" a \cos t\omega - b \sin t\omega \\ b \cos t\omega + a \sin t\omega"
        r" \end{pmatrix}": lambda: (turned(q_2, 3), torch.cat([
            q_2[:2] * (3 * turns).cos() - q_2[2:] * (3 * turns).sin(),
            q_2[2:] * (3 * turns).cos() + q_2[:2] * (3 * turns).sin()])),
        r"(R_t\, q) \cdot (R_s\, k) = q \cdot (R_{s-t}\, k)": lambda: (
            turned(q_2, 2) @ turned(k_2, 5), q_2.float() @ turned(k_2, 5 - 2)),
        r"e^{-2}, e^{-1}, 1": lambda: (
            attention_weights(positions.alibi_bias(torch.ones(1), 1, 3))[0, 0, 0],
            row(-2, -1, 0).exp() / sum(row(-2, -1, 0).exp())),
    },
    "blocks": {
        r"\operatorname{N}(X + \operatorname{part}(X))":
            lambda: (after(X[None], plain)[0], after.norm(X + plain(X))),
        r"X + \operatorname{part}(\operatorname{N}(X))":
            lambda: (before(X[None], plain)[0], X + plain(before.norm(X))),
        r"Y = X + \operatorname{attention}(\operatorname{N}(X))": lambda: (
            y_l(2), x_l(1) + two.attention(two.attention_norm(x_l(1)), causal=True)),
        r"\text{output} = Y + \operatorname{feedforward}(\operatorname{N}'(Y))":
            lambda: (x_l(2), y_l(2) + two.feed_forward(two.feed_forward_norm(y_l(2)))),
        r"X_L = X_0 + \sum_{l=1}^{L}"
        r" \left( A_l + F_l \right)": lambda: (
            x_l(2), x_l(0) + sum(through(part, lambda: model(x))[1] for part in (
                one.attention, one.feed_forward, two.attention, two.feed_forward))),
        r"\operatorname{layer}(x) = g \odot \frac{x - \bar x}"
        r"{\sqrt{\frac1D \sum_i (x_i - \bar x)^2 + \epsilon}} + b": lambda: (
            layer_norm(X[0]), layer_norm.weight * (X[0] - X[0].mean()) / (
                1 / D * sum((X[0] - X[0].mean()) ** 2) + 1e-5).sqrt()
            + layer_norm.bias),
        r"\operatorname{rms}(x) = g \odot \frac{x}"
        r"{\sqrt{\frac1D \sum_i x_i^2 + \epsilon}}": lambda: (rms_norm(X[0]),
            rms_norm.weight * X[0] / (1 / D * sum(X[0] ** 2) + 1e-5).sqrt()),
        r"\operatorname{feedforward}(x) = \phi(x W_\text{up}) \, W_\text{down}":
            lambda: (plain(X), (X @ plain.up.weight.T).relu() @ plain.down.weight.T),
        r"\operatorname{gated}(x) = \left( \phi(x W_\text{gate})"
        r" \odot x W_\text{up} \right) W_\text{down}": lambda: (gated(X),
            ((X @ gate) * (X @ gate).sigmoid() * (X @ up)) @ down),
        r"2 D d_\text{ff} + d_\text{ff} + D": lambda: (
            count(block.feed_forward), 2 * D * d_ff + d_ff + D),
        r"3 D d_\text{ff} + 2 d_\text{ff} + D": lambda: (
            count(FeedForward(**wide, activation="swiglu")),
            3 * D * d_ff + 2 * d_ff + D),
    },
    "experts": {
        r"p = \operatorname{softmax}(x W_\text{router})": lambda: (
            mixture.route(X.float())[0], softmax(X @ mixture.router.weight.double().T)),
        r"s_e = \frac{p_e}{\sum_{e' \in \text{top } k} p_{e'}}": lambda: (
            mixture.route(X.float())[1],
            table(lambda t, i: p[t, picked[t, i]] / sum(top[t]), T, picked.shape[1])),
        r"\text{output} = \sum_{e \,\in\, \text{top } k} s_e"
        r" \operatorname{feedforward}_e(x)":
            lambda: (mixture(X.float()), table(lambda t: sum(
                p[t, e] / sum(top[t]) * mixture.experts[e](X[t].float())
                for e in picked[t]), T)),
        r"\text{balance} = n \sum_{e=1}^{n} f_e \, P_e": lambda: (
            (mixture(X.float()), mixture.balance_loss)[1],
            5 * sum((picked == e).double().mean() * p[:, e].mean() for e in range(5))),
    },
    "nn-multiheadattention": {
        r"\begin{pmatrix} Q & K & V \end{pmatrix}"
        r" = X \begin{pmatrix} W^Q & W^K & W^V \end{pmatrix}": lambda: (
            torch.cat([layer.q_proj(X), layer.k_proj(X), layer.v_proj(X)], dim=1),
            X @ to_torch(layer).in_proj_weight.T),
        r"1 / (1 - p)": lambda: (F.dropout(torch.ones(99), 0.2).max(), 1 / (1 - 0.2)),
    },
    "fast-paths": {  # three keys were read, and the tile is of the others
        r"m' = \max(m, \max_j e_j)": lambda: (e.max(), max(m, max(e[3:]))),
        r"\ell' = e^{m - m'} \ell + \sum_j e^{e_j - m'}": lambda: (
            (e.logsumexp(0) - e.max()).exp(),
            (m - m_new).exp() * ell + sum((e[3:] - m_new).exp())),
        r"o' = e^{m - m'} o + \sum_j e^{e_j - m'} v_j": lambda: (
            attention(Q, K, V)[0][0] * (e.logsumexp(0) - e.max()).exp(),
            (m - m_new).exp() * o
            + sum((e[j] - m_new).exp() * V[j] for j in range(3, S))),
        r"\operatorname{dropout}\!\left(\operatorname{softmax}"
        r"\left(s \cdot Q K^\top + B\right)\right) V": lambda: (
            fused_attention(Q, K, V, scale=0.3, score_bias=M),
            attention(Q, K, V, scale=0.3, score_bias=M)[0],
            softmax(0.3 * Q @ K.T + M) @ V),
        r"e^{e_{ts} - L_t}": lambda: (attention_weights(E),
            table(lambda t, s: (E[t, s] - sum(E[t].exp()).log()).exp(), T, S)),
    },
    "microgpt": {  # L is a product of what is made from x: xy and the exponential of x
        r"\frac{\partial L}{\partial x} = \sum_{z \,\text{made from}\, x}"
        r" \frac{\partial L}{\partial z} \cdot \frac{\partial z}{\partial x}": lambda: (
            slopes(lambda x, y: x * y * x.exp(), 0.7, 1.3)[0],
            math.exp(0.7) * 1.3 + 0.7 * 1.3 * math.exp(0.7)),
        r"o = \sum_s a_s\, v_s": lambda: (
            micro_attended(), sum(a[s] * V[s] for s in range(S))),
        r"m &\leftarrow m + (1 - \beta_1)(g - m)": lambda: (
            adam(3).m, adam(2).m + (1 - 0.8) * (0.9 - adam(2).m)),
        r"v &\leftarrow v + (1 - \beta_2)(g^2 - v)": lambda: (
            adam(3).v, adam(2).v + (1 - 0.7) * (0.9**2 - adam(2).v)),
        r"w &\leftarrow w - \eta \, \frac{m / (1 - \beta_1^t)}"
        r"{\sqrt{v / (1 - \beta_2^t)} + 10^{-8}}": lambda: (
            adam(3).w, adam(2).w - 0.1 * (adam(3).m / (1 - 0.8**3))
            / (math.sqrt(adam(3).v / (1 - 0.7**3)) + 1e-8)),
        r"12D^2 + DV": lambda: (
            len(micro.parameters()) - (vocab + S) * D, 12 * D**2 + D * vocab),
    },
    "mini-gpt": {
        r"X_0 &= W^E[\text{tokens}] + W^P": lambda: (x_l(0)[0], W_E[x[0]] + W_P[:T]),
        r"Y_l &= X_{l-1}"
        r" + \operatorname{attention}_l\!\left(\operatorname{N}(X_{l-1})\right)":
            lambda: (
                y_l(1), x_l(0) + one.attention(one.attention_norm(x_l(0)), causal=True)
            ),
        r"X_l &= Y_l"
        r" + \operatorname{feedforward}_l\!\left(\operatorname{N}(Y_l)\right)":
            lambda: (x_l(1), y_l(1) + one.feed_forward(one.feed_forward_norm(y_l(1)))),
        r"\text{logits} &= \operatorname{N}(X_L)\, (W^E)^\top": lambda: (
            model(x), model.norm(x_l(2)) @ W_E.T),
    },
    "finding-a-recipe": {
        r"a X + b\, X X^\top X + c\, (X X^\top)^2 X": lambda: (
            training.orthogonalize(U, rounds=1),
            muon_a * u + muon_b * u @ u.T @ u + muon_c * u @ u.T @ u @ u.T @ u),
    },
    "the-cache": {
        r"\text{head}_t = \operatorname{softmax}\!\left(\frac{q_t"
        r" K_{0 \ldots t}^\top}{\sqrt{d_k}}\right) V_{0 \ldots t}": lambda: (
            steps(), table(lambda t: softmax(
                Q[t] @ K[:t + 1].T / d_k**0.5) @ -K[:t + 1], T)),
        r"\text{bytes} = 2 \cdot L \cdot H_\text{kv} \cdot d_k \cdot S \cdot B \cdot b":
            lambda: (nbytes, 2 * 2 * 3 * d_v * S * 5 * 2),
    },
    "fewer-keys": {
        r"g(h) = \left\lfloor \frac{h \, H_\text{kv}}{H} \right\rfloor": lambda: (
            repeat_heads(
                torch.arange(2.0)[None, :, None, None], torch.ones(1, 4, 1, 1)
            ).flatten(),
            table(lambda h: h * 2 // 4, 4)),
        r"\text{head}_h = \operatorname{softmax}\!\left("
        r"\frac{Q_h K_{g(h)}^\top}{\sqrt{d_k}}\right) V_{g(h)}": lambda: (
            torch.stack(head(shared)), table(lambda h: softmax(
                Q_4[h] @ K_2[h * 2 // 4].T / d_k**0.5) @ V_2[h * 2 // 4], 4)),
        r"2 \, L \, H_\text{kv} \, d_k": lambda: (
            nbytes / (S * 5 * 2), 2 * 2 * 3 * d_v),
    },
    "sampling": {
        r"p_v = \frac{\exp(z_v / \tau)}{\sum_u \exp(z_u / \tau)}": lambda: (
            decoding.sampling_probabilities(z, temperature=tau),
            (z / tau).exp() / sum((z / tau).exp())),
        r"\text{top-k keeps } v &\text{ if } r(v) < k": lambda: (
            keeps(top_k=4), rank < 4),
        r"\text{top-p keeps } v &\text{ if }"
        r" \textstyle\sum_{r(u) < r(v)} p_u < p": lambda: (keeps(top_p=0.8),
            table(lambda v: sum(soft[rank < rank[v]]) < 0.8, vocab)),
        r"\text{min-p keeps } v &\text{ if } p_v \ge m \max_u p_u": lambda: (
            keeps(min_p=0.3), soft >= 0.3 * max(soft)),
        r"-\sum_v p_v \log_2 p_v": lambda: (
            Categorical(chances).entropy() / math.log(2),
            -sum(chances[v] * chances[v].log2() for v in range(5))),
    },
    "testing-a-sampler": {
        r"\chi^2 = \sum_{v:\, p_v > 0} \frac{(n_v - N p_v)^2}{N p_v}": lambda: (
            sum(n**2 / (N * chances)) - N,
            sum((n - N * chances) ** 2 / (N * chances))),
        r"e^{-x/2} \sum_{i < f/2} (x/2)^i / i!": lambda: (
            torch.special.gammaincc(row(6 / 2), row(1.7))[0],  # f is 6
            math.exp(-1.7) * sum(1.7**i / math.factorial(i) for i in range(3))),
    },
    "what-heads-do": {
        r"\text{score} = \frac{1}{n} \sum_{t=0}^{T-1}"
        r" \sum_{s=0}^{S-1} m_{ts} \, a_{ts}": lambda: (
            interpret.head_scores([A[None, None]], marked[None])[0, 0],
            1 / 3 * sum(A[t, s] for t, s in marked.nonzero())),
        r"\text{output} = \sum_{h}"
        r" \bigl( g_h A_h V_h + (1 - g_h) R_h \bigr) W^O_h": lambda: (
            gated_output(), sum(
                (gates[h] * interpret.record_heads(model, x).outputs[0][0, h]
                 + (1 - gates[h]) * R[h]) @ W_O1[h] for h in range(H))),
    },
    "pruning": {
        r"\Delta_h = L(g \text{ with } g_h = 0) - L(\text{all } g = 1)": lambda: (
            interpret.loss_changes(model, loss)[1],
            table(lambda h: loss(without(h)) - loss(), H)),
        r"4 \, D \, d_k": lambda: (
            count(model) - count(surgery.prune_heads(model, [(0, 1)])), 4 * D * d_k),
    },
    "pruning-by-slopes": {
        r"\Delta_h = - \frac{\partial L}{\partial g_h}": lambda: (
            interpret.loss_changes(model, lambda: straight_loss()[0])[1],
            -interpret.gate_slopes(model, straight_loss, num_sequences=1)[1][0]),
    },
    "attention-ten-ways": {
        r"\bar W^O_h &= Z^\top U": lambda: (bar("W"), (A @ V).T @ U),
        r"\bar Z &= U W_h^{O\top}": lambda: (bar("Z"), U @ W.T),
        r"\bar V &= A^\top \bar Z": lambda: (bar("V"), A.T @ bar("Z")),
        r"\bar A &= \bar Z V^\top": lambda: (bar("A"), bar("Z") @ V.T),
        r"\bar e_{ts} &= a_{ts} \Big( \bar a_{ts} - \sum_j a_{tj}\, \bar a_{tj} \Big)":
            lambda: (bar("E"), table(
                lambda t, s: A[t, s] * (bar("A")[t, s] - A[t] @ bar("A")[t]), T, S)),
        r"\bar Q &= \bar E K / \sqrt{d_k}": lambda: (
            bar("Q"), bar("E") @ K / d_k**0.5),
        r"\bar K &= \bar E^\top Q / \sqrt{d_k}": lambda: (
            bar("K"), bar("E").T @ Q / d_k**0.5),
    },
    "chosen-keys": {
        r"I_{ts} = \frac{1}{\sqrt{H_I \, d_I}} \sum_{h} w_{th}"
        r" \operatorname{ReLU}(q_{th} \cdot k_s)": lambda: (
            index_scores(index_q[None], K[None], index_w[None])[0],
            table(lambda t, s: sum(
                index_w[t, h] * (index_q[h, t] @ K[s]).clamp(min=0)
                for h in range(2)) / (2 * d_k) ** 0.5, T, S)),
        r"L_I = \operatorname{mean}_t \sum_s p_{ts}"
        r" \ln \frac{p_{ts}}{\operatorname{softmax}(I_t)_s}": lambda: (
            index_loss(index_e[None], A[None, None], torch.ones(1, T, S).bool()),
            table(lambda t: (
                A[t] * (A[t] / softmax(index_e[t])).log()).sum(), T).mean()),
    },
    "compressed-keys": {
        r"e_n = \sum_{t} a_t \odot c_t, \qquad a_t ="
        r" \frac{\exp(z_t + b_t)}{\sum_{t'} \exp(z_{t'} + b_{t'})}": lambda: (
            pool(K[None, None], (K.flip(0) + delta[:, :d_k])[None, None])[0, 0],
            table(lambda i: sum(
                K[t, i] * (K[S - 1 - t, i] + delta[t, i]).exp() for t in range(S))
                / (K.flip(0) + delta[:, :d_k])[:, i].exp().sum(), d_k)),
    },
    "draft-trees": {
        r"x_i = M_k \, [\, \mathrm{norm}(h^{k-1}_i) \, ;"
        r" \, \mathrm{norm}(\mathrm{embedding}(t_{i+k})) \,]": lambda: (
            through(third_head.block, lambda: chained(chain_text))[0][0, :3],
            table(lambda i: third_head.projection.weight @ torch.cat([
                through(third_head.feature_norm, lambda: chained(chain_text))[1][0, i],
                third_head.token_norm(
                    chained.gpt.token_embedding.weight[chain_text[0, i + 2]]),
            ]), 3)),
    },
    "a-chapter-to-copy": {
        r"\text{distance}_t = \sum_s a_{ts} \, (t - s)": lambda: (
            torch.arange(T) - attention(Q, K, row(*range(S))[:, None])[0][:, 0],
            table(lambda t: sum(A[t, s] * (t - s) for s in range(S)), T)),
    },
}
# fmt: on


def as_tensor(side: Any) -> Tensor:
    return side if isinstance(side, Tensor) else tensor(side, dtype=torch.float64)


@pytest.mark.parametrize("page", EQUATIONS)
def test_the_equations_of_a_page_stand_there_and_are_true(
    page: str, find_formula: Callable[[str, str], None]
) -> None:
    for formula, sides in EQUATIONS[page].items():
        find_formula(page, formula)
        result, *spelled_out = map(as_tensor, sides())
        assert spelled_out
        # The library has sinusoids, turns, routes and chances in single precision.
        close = 1e-5 if result.dtype == torch.float32 else 1e-9
        for side in spelled_out:
            assert result.shape == side.shape, formula
            assert side.isfinite().all()
            gap = (result.double() - side.double()).abs().max()
            assert gap <= close * side.double().abs().max(), (formula, result, side)


def test_a_slip_is_named_with_its_line(
    find_formula: Callable[[str, str], None],
) -> None:
    slip = r"e_{ts} &= \frac{q_s \cdot k_s}{\sqrt{d_k}}"
    message = (
        r"attention-by-hand.md has no formula(.|\n)*nearest, in line \d+:\s+e_{ts} &="
    )
    with pytest.raises(pytest.fail.Exception, match=message):
        find_formula("attention-by-hand", slip)
