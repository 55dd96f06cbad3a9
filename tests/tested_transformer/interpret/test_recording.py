"""What is recorded is what the pass computed."""

import torch

from tested_transformer import merge_heads
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.interpret import prune_heads, record_heads

CONFIG = GPTConfig(vocab_size=13, max_seq_len=11, d_model=15, num_heads=3, num_layers=2)


def test_weights_and_outputs_are_those_of_the_pass() -> None:
    model = GPT(CONFIG).eval()
    caught: list[torch.Tensor] = []
    o_proj = model.blocks[1].attention.o_proj
    hook = o_proj.register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0]))
    tokens = torch.randint(13, (2, 7))
    recording = record_heads(model, tokens)
    hook.remove()
    assert [tuple(each.shape) for each in recording.outputs] == [(2, 3, 7, 5)] * 2
    assert [tuple(each.shape) for each in recording.weights] == [(2, 3, 7, 7)] * 2
    (merged,) = caught
    assert torch.equal(merge_heads(recording.outputs[1]), merged)
    logits, weights = model(tokens, return_weights=True)
    assert torch.equal(recording.logits, logits)
    assert all(map(torch.equal, recording.weights, weights))
    assert not recording.logits.requires_grad
    assert not o_proj._forward_pre_hooks


def test_layers_may_have_different_numbers_of_heads() -> None:
    model = prune_heads(GPT(CONFIG).eval(), [(0, 1)])
    outputs = record_heads(model, torch.randint(13, (2, 7))).outputs
    assert [tuple(each.shape) for each in outputs] == [(2, 2, 7, 5), (2, 3, 7, 5)]
