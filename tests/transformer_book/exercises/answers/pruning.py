"""Answers to the exercises of *Pruning*: a right one, and wrong ones."""

import torch

from transformer_book import grade_drop_head, grade_padded

READING = [
    f"{name}.{kind}"
    for name in ("q_proj", "k_proj", "v_proj")
    for kind in ("weight", "bias")
]


def keeping(state, keep):
    kept = {name: state[name][keep] for name in READING}
    return state | kept | {"o_proj.weight": state["o_proj.weight"][:, keep]}


def drop_head(state, head, head_dim):
    own = range(head * head_dim, (head + 1) * head_dim)
    return keeping(state, [i for i in range(12) if i not in own])


def rows_of_o(state, head, head_dim):
    weight = state["o_proj.weight"]
    return drop_head(state, head, head_dim) | {"o_proj.weight": weight[:8]}


def another(state, head, head_dim):
    return drop_head(state, head + 1, head_dim)


def always_head_1(state, head, head_dim):
    return drop_head(state, 1, head_dim)


def every_third(state, head, head_dim):
    return keeping(state, [i for i in range(12) if i % 3 != head])


def smaller_bias(state, head, head_dim):
    smaller = state["o_proj.bias"] * 2 / 3
    return drop_head(state, head, head_dim) | {"o_proj.bias": smaller}


def padded(state, d_model):
    missing = d_model - len(state["q_proj.bias"])
    longer = {
        name: torch.cat([state[name], torch.zeros(missing, *state[name].shape[1:])])
        for name in READING
    }
    columns = state["o_proj.weight"]
    wider = torch.cat([columns, torch.zeros(d_model, missing)], dim=1)
    return state | longer | {"o_proj.weight": wider}


def padded_in_front(state, d_model):
    return keeping(padded(state, d_model), [*range(8, 12), *range(8)])


def shared(state, d_model):
    state = padded(state, d_model)
    return state | {"o_proj.weight": state["o_proj.weight"] * 2 / 3}


RIGHT = {grade_drop_head: drop_head, grade_padded: padded}
WRONG = {
    grade_drop_head: {
        "o_proj.weight is (8, 12), not (12, 8)": rows_of_o,
        "head 2 is gone": another,
        "head 1 is gone, and head 0": always_head_1,
        "the features are not": every_third,
        "it stays": smaller_bias,
    },
    grade_padded: {
        "the new features come last": padded_in_front,
        "q_proj.weight is (8, 12), not (12, 12)": lambda state, d_model: state,
        "o_proj reads the new head": lambda s, d: keeping(s, [*range(8), *range(4)]),
        "of the old heads different": shared,
    },
}
