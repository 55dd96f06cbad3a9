"""Draft trees: one pass against each path alone, the cache, and the texts written."""

import pytest
import torch

from tested_transformer.attentions import ChosenBlocks, ChosenKeys, DeltaRule, Latent
from tested_transformer.decoding import (
    ModelDrafter,
    RandomSource,
    Sampling,
    TextReader,
    TreeDrafter,
    TreeReader,
    speculate,
    tree_mask,
)

KINDS = [
    {},
    {"positions": "sinusoidal"},
    {"positions": "rotary", "num_kv_heads": 1, "qk_norm": True},
    {"attention": Latent(latent_dim=7), "positions": "rotary"},
    {"attention": ChosenKeys(keys_per_query=3), "positions": "rotary"},
]
TEXT, NODES, PARENTS = [3, 1, 4, 1, 5], [9, 2, 6, 5, 2, 5, 8], [-1, -1, 0, 1, 1, 3, 0]


def path_to(node):
    return [] if node < 0 else [*path_to(PARENTS[node]), NODES[node]]


def test_a_node_sees_its_ancestors_and_itself():
    mask = tree_mask(PARENTS)
    seen = [{0}, {1}, {0, 2}, {1, 3}, {1, 4}, {1, 3, 5}, {0, 6}]
    assert [{*row.nonzero().flatten().tolist()} for row in mask] == seen
    with pytest.raises(ValueError, match=r"parents\[1\]=1 must lie between -1 and 0"):
        tree_mask([-1, 1])


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_one_pass_gives_the_logits_of_each_path_read_alone(kind, make):
    model = make(**kind)
    for before in (0, 3, 4):
        reader = TreeReader(model)
        if before:
            reader.read(TEXT[:before], 1)
        logits = reader.read_draft(TEXT, NODES, PARENTS)
        assert logits.shape == (8, 11)
        for node in range(-1, 7):
            with torch.no_grad():
                alone = model(torch.tensor([[*TEXT, *path_to(node)]]))[0, -1]
            torch.testing.assert_close(logits[node + 1], alone)
        in_a_row = TextReader(model).read_draft(TEXT, NODES)
        torch.testing.assert_close(reader.read_draft(TEXT, NODES), in_a_row)


@pytest.mark.parametrize(
    ("kind", "node"),
    [*((kind, 4) for kind in KINDS), *((KINDS[2], node) for node in (-1, 2, 5))],
    ids=str,
)
def test_the_cache_keeps_the_path_alone(kind, node, make):
    model = make(**kind)
    reader, plain, seen = TreeReader(model), model.new_cache(), []
    reader.read_draft(TEXT, NODES, PARENTS)
    model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].tolist()))
    text = [*TEXT, *path_to(node), 7]
    logits = reader.read_draft(text, [], [])
    assert seen == [[[7]]]
    with torch.no_grad():
        expected = model(torch.tensor([text]), cache=plain)[0, -1:]
    torch.testing.assert_close(logits, expected)
    assert reader.cache.length == len(text)
    for layer, plain_layer in zip(reader.cache.layers, plain.layers, strict=True):
        for name in ("keys", "values"):
            ours, theirs = (
                getattr(x, name)[:, :, : len(text)] for x in (layer, plain_layer)
            )
            torch.testing.assert_close(ours, theirs)
    # And any other text is read as from its start.
    for other_text in ([*TEXT, 6, 6], TEXT[:2], [8, *text]):
        with torch.no_grad():
            expected = model(torch.tensor([other_text]))[0, -1:]
        torch.testing.assert_close(reader.read_draft(other_text, [], []), expected)


def test_a_tree_grows_as_far_as_there_is_room_and_saves_passes(make):
    model, alike = make(), make(sharp=0.9)
    for likeliest in (False, True):
        drafter = TreeDrafter(alike, (3, 2, 1), likeliest=likeliest)
        written = speculate(
            model,
            [3, 1, 4, 1, 5, 3, 1],
            drafter,
            max_new_tokens=17,
            probabilities=Sampling(temperature=0.0).probabilities,
            rng=RandomSource(0),
        )
        assert max(written.drafted) == 3 + 6 + 6
        # No more fit into a context of 24 tokens, nor levels than tokens wanted.
        assert written.drafted[-1] < 15
        assert len(written.accepted) < 17


def test_a_chain_is_what_the_small_model_alone_drafts(make):
    model, small = make(), make(1)
    texts = [
        speculate(model, [3, 1], drafter, max_new_tokens=20, rng=RandomSource(4))
        for drafter in (ModelDrafter(small), TreeDrafter(small, (1, 1, 1, 1)))
    ]
    assert texts[0] == texts[1]


def test_a_certain_drafter_has_one_child(make):
    model, greedy = make(), Sampling(temperature=0.0)
    drafter = TreeDrafter(model, (3, 2), probabilities=greedy.probabilities)
    assert drafter.draft([3, 1], 2, RandomSource(0)).parents == [-1, 0]
    assert drafter.draft([3, 1], 0, RandomSource(0)).tokens == []


def test_the_likeliest_children_are_sure(make):
    model = make()
    draft = TreeDrafter(model, (3, 2), likeliest=True).draft([3, 1], 2, RandomSource(0))
    with torch.no_grad():
        texts = ([3, 1], *([3, 1, token] for token in draft.tokens[:3]))
        tops = [model(torch.tensor([text]))[0, -1].topk(3).indices for text in texts]
    expected = [*tops[0].tolist(), *torch.stack(tops[1:])[:, :2].flatten().tolist()]
    assert (draft.tokens, draft.parents) == (expected, [-1] * 3 + [0, 0, 1, 1, 2, 2])
    assert (
        draft.probabilities.tolist()
        == torch.eye(model.config.vocab_size)[expected].tolist()
    )


def test_what_does_not_fit_is_refused(make, as_a_caller):
    for kind, name in (
        ({"windows": 5}, "windows"),
        ({"positions": "alibi"}, "positions='alibi'"),
        ({"smear": True}, "smear=True"),
        ({"attention": ChosenBlocks(), "positions": "none"}, "attention=ChosenBlocks"),
        ({"attention": DeltaRule(), "softmax_every": 2}, "attention=DeltaRule"),
    ):
        with pytest.raises(ValueError, match=f"^the model has {name}"):
            speculate(make(**kind), [1], TreeDrafter(make(), (2,)), max_new_tokens=2)
    with pytest.raises(ValueError, match=r"^branches\[1\]=0 must be positive"):
        TreeDrafter(make(), (2, 0))
    with pytest.raises(ValueError, match="must be a TreeReader; it is a TextReader"):
        ModelDrafter(make()).reader(make()).read_draft([1], [2], [-1])
