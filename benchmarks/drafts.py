"""Count what trees of drafts, and heads in a chain, give to three models of the book.

The three were trained alike on stories, from seeds 1, 2 and 3. Each continues the same
starts of new stories. The heads are trained on top of each, which stays as it is. Only
tokens and passes are counted, so nothing depends on the machine's speed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.contenders import num_parameters
from benchmarks.learning import Descent
from benchmarks.run import Results, Run
from benchmarks.several import train_draft, train_heads
from tested_transformer.data import load_corpus
from tested_transformer.decoding import (
    ChainDrafter,
    ChainedGPT,
    Drafter,
    HeadDrafter,
    MultiTokenGPT,
    RandomSource,
    Sampling,
    Speculation,
    TreeDrafter,
    speculate,
)
from tested_transformer.decoding.sampling import Probabilities, softmax
from tested_transformer.gpt import GPT
from transformer_book.our_gpt import held_out_stories, our_gpt

__all__ = ["Setting", "measure"]

# Six tokens in each but the short chains, which are as deep as the trees above them.
SHAPES = ((1,) * 6, (2, 1, 1), (1, 1, 1), (2, 2), (3, 1), (1, 1), (6,), (1,))
PROMPT = 8
GREEDY = Sampling(temperature=0.0).probabilities
NUM_TOKENS = 4  # of the heads, the next one included


@dataclass(frozen=True)
class Setting:
    """How much to measure."""

    seeds: Sequence[int] = (1, 2, 3)
    steps: Sequence[int] = (30, 300)  # of the small models, weak and good
    head_steps: int = 400
    prompts: int = 40
    new_tokens: int = 48


QUICK = Setting(seeds=(1,), steps=(1, 2), head_steps=2, prompts=1, new_tokens=5)


def measure(run: Run) -> Results:
    """Count tokens and passes with trees of drafts."""
    setting = QUICK if run.quick else Setting()
    size = {"prompts": setting.prompts, "new tokens": setting.new_tokens}
    trees, heads = dict[str, dict](), dict[str, dict]()
    for seed in setting.seeds:
        gpt, words = our_gpt(seed)
        tokens = torch.tensor(words.encode(load_corpus("stories").text))
        held_out = words.encode(held_out_stories().text)
        starts = [held_out[200 * n :][:PROMPT] for n in range(setting.prompts)]
        trees[str(seed)] = _trees(gpt, tokens, starts, setting, seed)
        heads[str(seed)] = _heads(gpt, tokens, starts, setting, seed)
        print(seed, trees[str(seed)], heads[str(seed)], flush=True)
    return {"size": size, "trees": trees, "heads": heads}


def _continued(
    model: GPT,
    drafter: Drafter,
    starts: Sequence[Sequence[int]],
    setting: Setting,
    probabilities: Probabilities = softmax,
) -> list[Speculation]:
    """Continue all starts."""
    return [
        speculate(
            model,
            start,
            drafter,
            max_new_tokens=setting.new_tokens,
            num_drafted=6,
            probabilities=probabilities,
            rng=RandomSource(seed),
        )
        for seed, start in enumerate(starts)
    ]


def _tokens_per_pass(written: Sequence[Speculation]) -> float:
    passes = sum(len(text.accepted) for text in written)
    return round(sum(len(text.tokens) for text in written) / passes, 4)


def _trees(
    gpt: GPT, tokens: Tensor, starts: list[list[int]], setting: Setting, seed: int
) -> dict[str, dict[str, float]]:
    """Return the tokens per pass of each shape, for each drafter and way to draw."""
    small = {
        name: train_draft(gpt, tokens, steps=steps, seed=seed)
        for name, steps in zip(("weak", "good"), setting.steps, strict=True)
    }
    results: dict[str, dict[str, float]] = {}
    for shape in SHAPES:
        ways = {
            name: (TreeDrafter(model, shape), softmax) for name, model in small.items()
        }
        good = small["good"]
        ways |= {
            "itself": (TreeDrafter(gpt, shape), softmax),
            "greedy": (TreeDrafter(good, shape, likeliest=True), GREEDY),
            "greedy, certain": (TreeDrafter(good, shape, probabilities=GREEDY), GREEDY),
        }
        results[" ".join(map(str, shape))] = {
            name: _tokens_per_pass(
                _continued(gpt, drafter, starts, setting, probabilities)
            )
            for name, (drafter, probabilities) in ways.items()
        }
    return results


def _heads(
    gpt: GPT, tokens: Tensor, starts: list[list[int]], setting: Setting, seed: int
) -> dict[str, dict]:
    """Train heads of each kind, and return what they cost and how many stay."""
    torch.manual_seed(seed)
    parallel = MultiTokenGPT(gpt, num_tokens=NUM_TOKENS)
    chain, blind, shared = (
        ChainedGPT(gpt, num_tokens=NUM_TOKENS, shared=one)
        for one in (False, False, True)
    )
    for head in blind.further:  # as large, but it knows no token of the draft
        head.token_norm.register_forward_hook(lambda *call: 0 * call[2])
    drafters: dict[str, tuple[MultiTokenGPT | ChainedGPT, Drafter]] = {
        "parallel": (parallel, HeadDrafter(parallel)),
        "chain": (chain, ChainDrafter(chain)),
        "chain, blind": (blind, ChainDrafter(blind)),
        "chain, one head": (shared, ChainDrafter(shared)),
    }
    results: dict[str, dict] = {}
    steps = setting.head_steps
    descent = Descent(steps, 2e-3, warm_up=max(1, steps // 10))
    for name, (model, drafter) in drafters.items():
        losses = train_heads(
            model, tokens, descent, seed=seed, batch_size=16, seq_len=64
        )
        written = _continued(gpt, drafter, starts, setting)
        results[name] = {
            "parameters": num_parameters(model.further),
            "losses": losses,
            "tokens per pass": _tokens_per_pass(written),
            "stayed": [_stayed(written, ahead) for ahead in range(1, NUM_TOKENS)],
        }
    return results


def _stayed(written: Sequence[Speculation], ahead: int) -> float:
    """Return which share of these guesses stayed, of those whose turn came."""
    pairs = [
        pair
        for text in written
        for pair in zip(text.drafted, text.accepted, strict=True)
    ]
    came = [kept for drafted, kept in pairs if drafted >= ahead and kept >= ahead - 1]
    return round(sum(kept >= ahead for kept in came) / max(len(came), 1), 4)
