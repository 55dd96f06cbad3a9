"""Today's model families against ``transformers``, both ways, from folders it wrote."""

import copy
import json
import re
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from tested_transformer.attentions import AdjustedSoftmax, Differential
from tested_transformer.checkpoints import (
    FAMILIES,
    CheckpointError,
    from_family,
    load_pretrained,
    to_family,
)
from tested_transformer.decoding import Sampling, generate
from tested_transformer.decoding.readers import pad_left
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.multihead import Softmax
from tested_transformer.rotary_scaling import yarn_rates

# Different sizes, so that no two axes can be mistaken for each other. The text is
# longer than the window.
V, LONGEST, D, D_FF, L, H, H_KV, D_K, B, T = 61, 44, 48, 24, 3, 8, 4, 10, 6, 23
WINDOW, EXPERTS, PICKED = 7, 5, 2
SIZES = {
    **{"vocab_size": V, "max_position_embeddings": LONGEST},
    **{"hidden_size": D, "intermediate_size": D_FF, "num_hidden_layers": L},
    **{"num_attention_heads": H, "num_key_value_heads": H_KV},
}
BASE = SIZES | dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))


def rope(kind: str, base: float, **more: Any) -> dict[str, Any]:
    return {"rope_type": kind, "rope_theta": base, **more}


LLAMA3 = rope(
    "llama3",
    1_000.0,
    factor=4.0,
    low_freq_factor=1.0,
    high_freq_factor=3.0,
    original_max_position_embeddings=19,
)
YARN = rope("yarn", 1_000.0, factor=4.0, original_max_position_embeddings=11)
HEAD, WINDOWED = {"head_dim": D_K}, {"sliding_window": WINDOW}
SLIDING = {"use_sliding_window": True, **WINDOWED}
PICKING = {"num_experts_per_tok": PICKED}
LOCAL = {**PICKING, "num_local_experts": EXPERTS, **WINDOWED}
QWEN_MOE = {"num_experts": EXPERTS, "moe_intermediate_size": 40, "norm_topk_prob": True}
GEMMA = {**HEAD, **WINDOWED, "query_pre_attn_scalar": 5}
CAPS = {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 20.0}
BASES = {
    "full_attention": rope("default", 500.0),
    "sliding_attention": rope("default", 50.0),
}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {**HEAD, "rope_parameters": LLAMA3},
    "smollm3": {"no_rope_layers": [1, 0, 1]},
    "mistral": WINDOWED,
    "mixtral": LOCAL,
    "qwen2": {**SLIDING, "max_window_layers": 1},
    "qwen3": {**SLIDING, "max_window_layers": 2, **HEAD},
    "qwen3_moe": {**PICKING, **SLIDING, **HEAD, **QWEN_MOE},
    "olmo2": {},
    "gemma2": {**GEMMA, **CAPS},
    "gemma3_text": {**GEMMA, "sliding_window_pattern": 2, "rope_parameters": BASES},
    "gpt_oss": {**LOCAL, **HEAD, "rope_parameters": YARN | {"truncate": False}},
    "phi3": WINDOWED,
}


def config_of(name: str, **changes: Any) -> Any:
    from transformers import AutoConfig

    return AutoConfig.for_model(name, **{**BASE, **MODELS[name], **changes})


def theirs(name: str, **changes: Any) -> Any:
    """Make a model of the ``transformers`` package, of which every weight matters."""
    from transformers import AutoModelForCausalLM

    config = config_of(name, **changes)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    generator = torch.Generator().manual_seed(len(name))
    for key, weight in model.named_parameters():
        gain = weight.ndim == 1
        wide = 3.0 if name == "gpt_oss" and "gate_up" in key else 1.0  # it clamps
        nn.init.normal_(weight, 0.5 * gain, 0.3 * wide, generator=generator)
    return model.eval()


def saved(model: Any, folder: Path, **options: Any) -> Path:
    from transformers.utils import logging

    logging.disable_progress_bar()
    model.save_pretrained(folder, **options)
    return folder


def settings_of(name: str, **changes: Any) -> dict[str, Any]:
    """Return what a file of settings would hold."""
    return json.loads(config_of(name, **changes).to_json_string())


def check_close(actual: Tensor, expected: Tensor, *, gap: float = 2e-5) -> None:
    assert (actual - expected).abs().max() <= gap * expected.abs().max()


@pytest.fixture(params=MODELS)
def name(request):
    return request.param


def gradients(logits: Tensor, tokens: Tensor, model: nn.Module) -> dict[str, Tensor]:
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    named = dict(model.named_parameters())
    return dict(zip(named, torch.autograd.grad(loss, [*named.values()]), strict=True))


def test_logits_and_gradients_are_those_of_transformers(name, tmp_path):
    assert MODELS.keys() == FAMILIES.keys()
    tied = [*MODELS].index(name) % 2 == 0
    model = theirs(name, tie_word_embeddings=tied)
    parts = {"max_shard_size": "20KB"} if name in ("mixtral", "gemma2") else {}
    ours = load_pretrained(saved(model, tmp_path, **parts))
    assert len([*tmp_path.glob("*.safetensors")]) > 1 or not parts
    assert (ours.config.tie_head, ours.config.num_layers) == (tied, L)
    tokens = torch.randint(V, (B, T))
    logits, their_logits = ours(tokens), model(tokens).logits
    assert their_logits.std() > 1.0
    check_close(logits, their_logits)
    result = gradients(logits, tokens, ours)
    # What maps weights adds a constant where gains are stored as differences from 1.
    mapped = partial(FAMILIES[name].theirs, config=ours.config)
    shifts = dict(mapped({key: torch.zeros_like(result[key]) for key in result}))
    back = {key: tensor - shifts[key] for key, tensor in mapped(result)}
    # Some experts are stored together, and by other names than the module has.
    expected = theirs_by_name(
        model, gradients(their_logits, tokens, model), tmp_path / "g"
    )
    assert back.keys() == expected.keys()
    for key, gradient in back.items():
        assert gradient.abs().max() > 0, key
        largest = expected[key].abs().max()
        torch.testing.assert_close(
            gradient, expected[key], rtol=0, atol=1e-4 * largest.item() + 2e-7
        )


def theirs_by_name(
    model: Any, tensors: dict[str, Tensor], folder: Path
) -> dict[str, Tensor]:
    """Put tensors in the place of a model's weights, and return what it saves."""
    from safetensors.torch import load_file

    for key, parameter in model.named_parameters():
        parameter.data = tensors[key]
    return load_file(saved(model, folder) / "model.safetensors")


@pytest.mark.parametrize("name", ["smollm3", "qwen2", "gemma3_text", "gpt_oss"])
def test_greedy_tokens_are_those_of_transformers(name, tmp_path):
    """With and without a cache, of prompts with padding on the left."""
    model = theirs(name)
    ours = load_pretrained(saved(model, tmp_path))
    prompts = [torch.randint(V, (length,)).tolist() for length in (T, 3, 11, 1)]
    tokens, positions, mask = pad_left(prompts)
    assert positions is not None
    assert mask is not None
    seen = mask[:, 0, 0]
    their_logits = model(
        tokens, attention_mask=seen.long(), position_ids=positions
    ).logits
    check_close(ours(tokens, positions=positions, mask=mask)[seen], their_logits[seen])
    options = {"max_new_tokens": 9, "do_sample": False, "pad_token_id": 0}
    expected = model.generate(tokens, attention_mask=seen.long(), **options)[:, T:]
    how = {"max_new_tokens": 9, "sampling": Sampling(temperature=0.0)}
    for use_cache in (True, False):
        answers = generate(ours, prompts, use_cache=use_cache, **how)
        assert answers == expected.tolist()


@pytest.mark.parametrize("name", ["gemma2", "gpt_oss"])
def test_sixteen_bits_are_as_close_to_the_truth(name, tmp_path):
    tokens = torch.randint(V, (B, T))
    model = theirs(name).bfloat16()
    logits = load_pretrained(saved(model, tmp_path))(tokens)
    assert logits.dtype == torch.bfloat16
    usual = model(tokens).logits
    truth = model.float()(tokens).logits
    # Of most tokens: where two experts are nearly tied, the other one may win.
    ours, theirs_ = ((x - truth).norm(dim=-1).median() for x in (logits, usual))
    assert ours <= 1.2 * theirs_


# Other forms of the same settings, and rules of rotary positions.


def older(settings: dict[str, Any]) -> dict[str, Any]:
    """Rewrite settings as version 4 of ``transformers`` wrote them."""
    settings = {**settings}
    rule = settings.pop("rope_parameters")
    if "full_attention" in rule:
        settings["rope_local_base_freq"] = rule["sliding_attention"]["rope_theta"]
        rule = rule["full_attention"]
    settings["rope_theta"] = rule["rope_theta"]
    rest = {key: value for key, value in rule.items() if key != "rope_theta"}
    settings["rope_scaling"] = None if rest["rope_type"] == "default" else rest
    for key in ("layer_types", "_sliding_window_pattern"):
        settings.pop(key, None)
    return settings


WINDOWS = {"llama": "...", "smollm3": "...", "olmo2": "...", "qwen2": ".ww"}
WINDOWS |= {
    "qwen3": "..w",
    **dict.fromkeys(("gemma2", "gemma3_text", "gpt_oss"), "w.w"),
}


def test_older_settings_and_those_in_full_are_read_the_same(name):
    settings, family = settings_of(name), FAMILIES[name]
    config = family.config(settings, "new")
    assert family.config(older(settings), "old") == config
    full = json.loads(config_of(name).to_json_string(use_diff=False))
    assert full.keys() > settings.keys()
    # Version 4 also wrote how to generate.
    full |= {"max_length": 20, "temperature": 1.0, "top_k": 50, "num_beams": 1}
    assert family.config({**full, "tokenizer_class": "X"}, "full") == config
    expected = [{".": None, "w": WINDOW}[kind] for kind in WINDOWS.get(name, "www")]
    assert [*map(config.window_of, range(L))] == expected


def test_what_a_config_leaves_out_means_the_same(name):
    """Or it is refused. Without head_dim, the weights would not fit."""
    complete, kind = settings_of(name), type(config_of(name))
    refused = set[str]()
    for settings in (complete, older(complete)):
        for left_out in settings.keys() - {"model_type", "head_dim", *BASE}:
            rest = {key: settings[key] for key in settings.keys() - {left_out}}
            filled = json.loads(kind.from_dict(copy.deepcopy(rest)).to_json_string())
            try:
                result = FAMILIES[name].config(rest, name)
            except CheckpointError:
                refused.add(left_out)
            else:
                assert result == FAMILIES[name].config(filled, name), left_out
    assert refused <= {
        *("sliding_window", "attn_logit_softcapping", "final_logit_softcapping"),
        *("num_local_experts", "num_experts_per_tok", "moe_intermediate_size"),
        *("norm_topk_prob", "rope_parameters", "rope_scaling"),
    }


def test_the_base_and_sizes_may_be_left_out():
    settings = {
        key: value for key, value in settings_of("llama").items() if key in BASE
    }
    del settings["num_key_value_heads"]
    config = FAMILIES["llama"].config(settings, "tiny")
    assert (config.num_kv_heads, config.d_k, config.rotary_base) == (H, D // H, 10_000)
    assert (config.norm_eps, config.tie_head, config.rotary_rates) == (
        1e-6,
        False,
        None,
    )


LONG = {"short_factor": [1.0, 1.5, 2.0, 3.0, 5.0], "long_factor": [9.0] * 5}
RULES: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 3.0},
    "llama3": LLAMA3,
    "yarn": YARN,
    "yarn, not whole": {"factor": 4.0, "truncate": False, "beta_fast": 2.0},
    "yarn, as sharp": {"factor": 4.0, "attention_factor": 1.0, "beta_slow": 0.5},
    "longrope": LONG,
    "longrope, sharper": {**LONG, "attention_factor": 1.25},
}


@pytest.mark.parametrize("rule", RULES)
def test_rules_of_rotary_positions(rule, tmp_path):
    settings = RULES[rule] | rope(rule.partition(",")[0], 100.0)
    model = theirs("llama", num_hidden_layers=1, rope_parameters=settings)
    ours = load_pretrained(saved(model, tmp_path))
    tokens = torch.randint(V, (2, LONGEST))
    check_close(ours(tokens), model(tokens).logits)


# What cannot be read.

ROPE = "rope_parameters of tiny"
LINEAR = {"rope_type": "linear"}
LONGER = rope("longrope", 10_000.0, **LONG)
TRAINED = {"original_max_position_embeddings": 11}
UNREADABLE: list[tuple[str, dict[str, Any], str]] = [
    ("llama", {"clip_qkv": 8.0}, "tiny has clip_qkv=8.0, which this library does not "),
    ("llama", {"mlp_bias": True}, "tiny has mlp_bias=True; only mlp_bias=False can"),
    ("llama", {"hidden_act": "relu"}, "tiny has hidden_act='relu'; only silu, gelu_"),
    ("gpt_oss", {"swiglu_limit": 6.0}, "tiny has swiglu_limit=6.0; only swiglu_limit"),
    ("mixtral", {"num_experts_per_tok": 1}, "tiny has num_experts_per_tok=1; it must "),
    ("mixtral", {"num_local_experts": 0}, "tiny has num_local_experts=0; it must be "),
    ("qwen3_moe", {"norm_topk_prob": False}, "tiny has norm_topk_prob=False; only nor"),
    ("qwen3_moe", {"mlp_only_layers": [1]}, "tiny has mlp_only_layers=[1]; only mlp_"),
    ("qwen3", {"layer_types": ["linear"] * L}, "tiny has layer_types=['linear', 'line"),
    ("phi3", {"partial_rotary_factor": 0.5}, "tiny has partial_rotary_factor=0.5; on"),
    ("llama", {"num_attention_heads": 7}, "tiny has settings that do not fit: num_"),
    ("qwen3", {"num_hidden_layers": 10**12}, "tiny has num_hidden_layers=10000000000"),
    ("gemma2", {"head_dim": 10**12}, "tiny has head_dim=1000000000000; at most 1677"),
    ("llama", {"model_type": "gpt_neox"}, "tiny has model_type='gpt_neox'; only gpt2"),
    # Phi-3 with long texts says outside of its rule how long it was trained.
    (
        "phi3",
        {"rope_parameters": LONGER, **TRAINED},
        f"{ROPE} has original_max_position_embeddings=11, less than max_positi",
    ),
    *(
        (name, {"rope_parameters": rule}, message)
        for name, rule, message in (
            ("llama", 3, f"{ROPE} must be settings by name, not 3"),
            ("llama", {"rope_type": "dynamic"}, "tiny has rope_type='dynamic'; only "),
            ("llama", {**LLAMA3, "mscale": 2.0}, f"{ROPE} has mscale=2.0, which this "),
            (
                "llama",
                LONGER | TRAINED,
                f"{ROPE} has original_max_position_embeddings=",
            ),
            ("llama", LINEAR, f"{ROPE} does not say factor"),
            ("llama", {**LINEAR, "factor": "two"}, f"{ROPE}: could not convert"),
            (
                "gemma3_text",
                {"rope_theta": 1.0},
                f"{ROPE} does not say sliding_attention",
            ),
            (
                "gemma3_text",
                {"sliding_attention": LINEAR},
                f"sliding_attention of {ROPE} has rope_type='linear'; only rope_type='",
            ),
        )
    ),
]


@pytest.mark.usefixtures("as_a_caller")
def test_what_cannot_be_read_is_refused_by_name():
    for name, changes, message in UNREADABLE:
        with pytest.raises(CheckpointError) as refused:
            from_family({}, {**settings_of(name), **changes}, origin="tiny")
        assert str(refused.value).startswith(message)
        assert "\n" not in str(refused.value)


def test_no_setting_breaks_more_than_the_reading(name):
    settings = settings_of(name)
    for changed, value in product(settings, (0, "x", 10**12)):
        with pytest.raises(CheckpointError):  # for it, or for the missing weights
            from_family({}, {**settings, changed: value})


def test_what_programs_note_about_themselves_changes_nothing():
    settings = settings_of("llama")
    noted = {"is_llama_config": True, "rope_interleaved": False}  # as in SmolLM 2
    noted |= {"transformers.js_config": {"dtype": "q4"}, "unsloth_version": "2025.1"}
    config = FAMILIES["llama"].config({**settings, **noted}, "tiny")
    assert config == FAMILIES["llama"].config(settings, "tiny")
    with pytest.raises(CheckpointError, match="has rope_interleaved=True, which this"):
        FAMILIES["llama"].config({**settings, "rope_interleaved": True}, "tiny")


def test_weights_that_do_not_fit_are_named():
    model = theirs("llama", tie_word_embeddings=True)
    weights, settings = model.state_dict(), settings_of("llama")
    tied = {**settings, "tie_word_embeddings": True}
    rotary = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(5)}
    from_family({**weights, **rotary}, tied)  # as files of version 4 have it
    weights["lm_head.weight"] = 2 * weights["lm_head.weight"]
    with pytest.raises(CheckpointError, match=r"^tiny ties the head to the token emb"):
        from_family(weights, tied, origin="tiny")
    last = f"model.layers.{L}.mlp.up_proj.weight"
    weights[last] = weights.pop("model.layers.1.mlp.up_proj.weight")
    with pytest.raises(CheckpointError) as refused:
        from_family(weights, settings, origin="tiny")
    assert str(refused.value) == (
        "tiny does not have the weights that its settings require: "
        f"model.layers.1.mlp.up_proj.weight is missing; {last} is unknown"
    )


# And back.


@pytest.mark.parametrize("stretched", [False, True])
def test_transformers_opens_ours(name, stretched, tmp_path):
    from transformers import AutoModelForCausalLM

    config = FAMILIES[name].config(settings_of(name), name)
    changes: dict[str, Any] = {"rotary_base": 30.0, "rotary_rates": None}
    changes["rotary_attention_factor"] = 1.0
    if stretched:
        rates = yarn_rates(config.d_k, factor=3.0, trained_length=11)
        changes = {"rotary_rates": rates.tolist(), "rotary_attention_factor": 1.2}
    if name in ("qwen2", "qwen3", "gemma2", "gemma3_text", "gpt_oss"):
        changes["windows"] = (None, WINDOW, None)
    changes |= {"tie_head": not stretched, "norm_eps": 1e-4, "dropout": 0.1}
    config = replace(config, **changes)
    model = GPT(config).eval()
    for weight in model.parameters():
        nn.init.normal_(weight, 0.5 * (weight.ndim == 1), 0.3)
    weights, settings = to_family(model, name)
    tensors = {key: weight.contiguous() for key, weight in weights.items()}
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text(json.dumps(settings))
    opened, report = AutoModelForCausalLM.from_pretrained(
        tmp_path, attn_implementation="eager", output_loading_info=True
    )
    assert not any(report[f"{kind}_keys"] for kind in ("missing", "unexpected"))
    assert type(opened).__name__ == FAMILIES[name].architecture
    tokens = torch.randint(V, (B, T))
    check_close(opened.eval()(tokens).logits, model(tokens))
    again = load_pretrained(tmp_path)
    check_close(again(tokens), model(tokens))
    expected = {**vars(config), "dropout": 0.0}
    if stretched:
        expected["rotary_rates"] = pytest.approx(config.rotary_rates)
    assert vars(again.config) == expected


OURS = GPTConfig(
    vocab_size=V,
    max_seq_len=LONGEST,
    d_model=D,
    num_heads=H,
    num_layers=L,
    positions="rotary",
    norm="rms",
    activation="swiglu",
    bias=False,
)
UNWRITABLE: list[tuple[str, dict[str, Any], str]] = [
    ("llama", {"smear": True, "logit_cap": 30.0}, "no logit_cap=30.0, smear=True"),
    ("llama", {"positions": "alibi"}, "no positions='alibi'"),
    ("llama", {"bias": True}, "no bias=True, qkv_bias=True"),
    ("llama", {"norm_place": "after"}, "no norm_place='after'"),
    ("llama", {"windows": 7, "qk_norm": "heads"}, "no windows=7, qk_norm='heads'"),
    ("llama", {"num_experts": 4}, "no num_experts=4, experts_per_token=2"),
    ("llama", {"attention": Differential()}, "no attention=Differential()"),
    ("llama", {"kept_heads": [[0]] * L}, f"no kept_heads={((0,),) * L}"),
    ("mistral", {"windows": (None, 7, 7)}, "no windows=(None, 7, 7)"),
    ("qwen2", {"windows": (5, 7, 7), "qkv_bias": True}, "no windows=(5, 7, 7)"),
    ("qwen3", {"qk_norm": True}, "no qk_norm=True"),
    ("phi3", {"head_dim": D_K}, f"no head_dim={D_K}"),
    ("mixtral", {"num_experts": 0}, "num_local_experts=0; it must be at least 1"),
    (
        "mixtral",
        {"num_experts": 4, "experts_per_token": 1},
        "num_experts_per_tok=1; it must be at least 2",
    ),
]


def test_what_a_family_lacks_is_named():
    for name, changes, message in UNWRITABLE:
        model = GPT(replace(OURS, **changes), device="meta")
        message = re.escape(f"{FAMILIES[name].architecture} has {message}")
        with pytest.raises(ValueError, match=f"^{message}$"):
            to_family(model, name)
    model = GPT(replace(OURS, dropout=0.3))  # which is no obstacle
    to_family(model, "llama")
    with pytest.raises(ValueError, match=r"^name='bert' must be one of llama, "):
        to_family(model, "bert")


def test_gemma_has_a_whole_number_for_the_scale_and_two_bases():
    family = FAMILIES["gemma3_text"]
    config = family.config(settings_of("gemma3_text"), "tiny")
    usual = family.settings(replace(config, attention=Softmax()))
    assert usual["query_pre_attn_scalar"] == D_K
    lost = replace(config, attention=AdjustedSoftmax(scale=0.3))
    with pytest.raises(ValueError, match="has no attention=AdjustedSoftmax"):
        family.settings(lost)
    for windows in (None, config.windows):  # without a local base, all have the same
        free = replace(config, windows=windows, local_rotary_base=None)
        assert family.config(family.settings(free), "tiny").rotary_base == 500.0
