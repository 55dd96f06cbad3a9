"""The held-out set: attention modules that measured the checks before improving them.

Until 2026-11-25 they only measured. Since then, modules that were refused or not known
and bugs that passed have been looked into; ``unseen`` measures without that.

The owners' names begin with l to z; ``learn`` has the others. Each module was read, and
its outputs and gradients equaled those of a new implementation with its weights.
"""

from benchmarks.public.modules import Module

__all__ = ["MODULES"]

_EINOPS = ("arogozhnikov/einops",)
_REARRANGE = "from einops import rearrange\n"
_GRID = "return layer(x.mT.unsqueeze(-1)).squeeze(-1).mT"
"""How to call a layer of images (B, C, H, W) with features."""

MODULES: dict[str, Module] = {
    # Language models
    "rasbt/LLMs-from-scratch": Module(
        repository="rasbt/LLMs-from-scratch",
        commit="28c65cdfbc3338e2e040016eea4b7fdf556e4d57",
        files={"ch04/01_main-chapter-code/gpt.py": ("MultiHeadAttention",)},
        make="MultiHeadAttention(20, 20, 64, 0.1, 5)",
        given="style='causal'",
        mask="causal",
        notes="separate projections, no biases but the last",
    ),
    "rasbt/LLMs-from-scratch:heads": Module(
        repository="rasbt/LLMs-from-scratch",
        commit="28c65cdfbc3338e2e040016eea4b7fdf556e4d57",
        files={
            "pkg/llms_from_scratch/ch03.py": (
                "CausalAttention",
                "MultiHeadAttentionWrapper",
            )
        },
        make="MultiHeadAttentionWrapper(20, 4, 64, 0.1, 5)",
        given="style='causal', num_heads=5",
        mask="causal",
        notes="a list of heads, no projection of the output",
    ),
    "rasbt/LLMs-from-scratch:qwen3": Module(
        repository="rasbt/LLMs-from-scratch",
        commit="28c65cdfbc3338e2e040016eea4b7fdf556e4d57",
        files={
            "pkg/llms_from_scratch/qwen3.py": (
                "compute_rope_params",
                "apply_rope",
                "RMSNorm",
                "GroupedQueryAttention",
            )
        },
        make="GroupedQueryAttention(24, 6, 2, qk_norm=True)",
        adapter="mask = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()\n"
        "return layer(x, mask, *compute_rope_params(4, context_length=x.shape[1]))",
        given="style='causal'",
        mask="argument",
        notes="grouped heads, rotary half, RMS norm of queries and keys",
        d_model=24,
    ),
    "Lightning-AI/litgpt": Module(
        repository="Lightning-AI/litgpt",
        commit="26857050fe3ff627cd714fe92f5838f51a3d5efa",
        files={
            "litgpt/model.py": ("build_rope_cache", "apply_rope", "CausalSelfAttention")
        },
        make="CausalSelfAttention("
        "SimpleNamespace(n_embd=24, n_head=6, n_query_groups=2, "
        "head_size=4, rope_n_elem=4, bias=False, attn_bias=False, norm_qk=False, "
        "sliding_window_size=None, sliding_window_indices=None, rope_adjustments=None, "
        "rope_interleave=False, attention_scores_scalar=None, "
        "attention_logit_softcapping=None), 0)",
        adapter="cos, sin = build_rope_cache(x.shape[1], 4)\n"
        "return layer(x, cos[None], sin[None])",
        given="style='causal'",
        mask="causal",
        notes="fused, grouped heads, rotary half",
        d_model=24,
    ),
    "Lightning-AI/litgpt:window": Module(
        repository="Lightning-AI/litgpt",
        commit="26857050fe3ff627cd714fe92f5838f51a3d5efa",
        files={
            "litgpt/model.py": (
                "build_rope_cache",
                "apply_rope",
                "do_softcapping",
                "CausalSelfAttention",
            )
        },
        make="CausalSelfAttention("
        "SimpleNamespace(n_embd=24, n_head=6, n_query_groups=3, "
        "head_size=8, rope_n_elem=8, bias=False, attn_bias=False, norm_qk=False, "
        "sliding_window_size=3, sliding_window_indices=[1], rope_adjustments=None, "
        "rope_interleave=False, attention_scores_scalar=6, "
        "attention_logit_softcapping=50.0), 0)",
        adapter="cos, sin = build_rope_cache(x.shape[1], 8)\n"
        "return layer(x, cos[None], sin[None])",
        given="style='causal'",
        mask="causal",
        notes="window of 3, soft cap, a scale of its own, wide heads, rotary half",
        d_model=24,
    ),
    "pytorch-labs/gpt-fast": Module(
        repository="pytorch-labs/gpt-fast",
        commit="32971d3129541c5bfb4f715abc33d1c5f408d204",
        files={
            "model.py": (
                "find_multiple",
                "ModelArgs",
                "precompute_freqs_cis",
                "apply_rotary_emb",
                "Attention",
            )
        },
        make="Attention(ModelArgs(n_head=6, dim=24, n_local_heads=2))",
        adapter="mask = torch.ones(x.shape[1], x.shape[1]).tril().bool()\n"
        "return layer(x, precompute_freqs_cis(x.shape[1], 4, dtype=x.dtype), mask)",
        given="style='causal'",
        mask="argument",
        notes="fused, grouped heads, rotary interleaved",
        d_model=24,
    ),
    "pytorch/torchtune": Module(
        repository="pytorch/torchtune",
        commit="bd2a0fc7c31430972728494fa01aaeeb0ebf1ba1",
        files={
            "torchtune/modules/attention_utils.py": ("_sdpa_or_flex_attention",),
            "torchtune/modules/attention.py": ("MultiHeadAttention",),
        },
        names="_SUPPORTS_FLEX_ATTENTION = False",
        make="MultiHeadAttention(embed_dim=24, num_heads=6, num_kv_heads=3, "
        "head_dim=4, q_proj=nn.Linear(24, 24), k_proj=nn.Linear(24, 12), "
        "v_proj=nn.Linear(24, 12), output_proj=nn.Linear(24, 24), "
        "q_norm=nn.RMSNorm(4), k_norm=nn.RMSNorm(4))",
        adapter="return layer(x, x)",
        given="style='causal'",
        mask="causal",
        notes="grouped heads, norms of queries and keys; takes y to attend to",
        d_model=24,
    ),
    "mosaicml/llm-foundry": Module(
        repository="mosaicml/llm-foundry",
        commit="8c8dd48f72168c5d51e2f7b151595892a8fba43d",
        files={
            "llmfoundry/models/layers/attention.py": (
                "repeat_kv_for_gqa",
                "scaled_multihead_dot_product_attention",
                "GroupedQueryAttention",
            )
        },
        names=_REARRANGE + "attention_classes = SimpleNamespace("
        "register_class=lambda name: lambda layer: layer)\n"
        "attention_implementations = {'torch': lambda *a, **k: "
        "scaled_multihead_dot_product_attention(*a, **k)}\n"
        "fc_type_defaults = {'name': 'torch'}\n"
        "def build_fc(name, in_features, out_features, fc_kwargs):\n"
        "    return nn.Linear(in_features, out_features, fc_kwargs['bias'])",
        make="GroupedQueryAttention(24, 6, 2, attn_impl='torch', attn_pdrop=0.1)",
        given="style='causal'",
        mask="causal",
        needs=_EINOPS,
        notes="fused, grouped heads; attention_mask is of keys",
        d_model=24,
    ),
    "mosaicml/llm-foundry:norms": Module(
        repository="mosaicml/llm-foundry",
        commit="8c8dd48f72168c5d51e2f7b151595892a8fba43d",
        files={
            "llmfoundry/models/layers/attention.py": (
                "scaled_multihead_dot_product_attention",
                "GroupedQueryAttention",
                "MultiheadAttention",
            )
        },
        names=_REARRANGE + "attention_classes = SimpleNamespace("
        "register_class=lambda name: lambda layer: layer)\n"
        "attention_implementations = {'torch': lambda *a, **k: "
        "scaled_multihead_dot_product_attention(*a, **k)}\n"
        "fc_type_defaults = {'name': 'torch'}\n"
        "def build_fc(name, in_features, out_features, fc_kwargs):\n"
        "    return nn.Linear(in_features, out_features, fc_kwargs['bias'])\n"
        "def build_norm(name, normalized_shape, eps, device):\n"
        "    return nn.LayerNorm(normalized_shape, eps)",
        make="MultiheadAttention(20, 5, attn_impl='torch', qk_ln=True, clip_qkv=6.0, "
        "fused_qkv=False)",
        given="style='causal'",
        mask="causal",
        needs=_EINOPS,
        notes="norms of queries and keys over all heads, projections clipped at 6",
    ),
    "salesforce/CodeGen": Module(
        repository="salesforce/CodeGen",
        commit="6f09e495f41e006375055239e4bcb18539f3a38b",
        files={
            "codegen1/jaxformer/hf/codegen/modeling_codegen.py": (
                "fixed_pos_embedding",
                "rotate_every_two",
                "apply_rotary_pos_emb",
                "CodeGenAttention",
            )
        },
        make="CodeGenAttention(SimpleNamespace(hidden_size=24, num_attention_heads=4, "
        "rotary_dim=4, max_position_embeddings=64, attn_pdrop=0.1, resid_pdrop=0.1))",
        given="style='causal'",
        mask="causal",
        notes="fused as query, value, key in four blocks; rotary interleaved in part",
        d_model=24,
    ),
    "microsoft/LoRA": Module(
        repository="microsoft/LoRA",
        commit="c4593f060e6a368d7bb5af5273b8e42810cdef90",
        files={
            "loralib/layers.py": ("LoRALayer", "MergedLinear"),
            "examples/NLG/src/model.py": ("Conv1D", "Attention"),
        },
        names="from torch.nn import Parameter\n"
        "lora = SimpleNamespace(MergedLinear=lambda *a, **k: MergedLinear(*a, **k))",
        make="Attention(20, 64, "
        "SimpleNamespace(n_head=5, lora_attn_dim=2, lora_attn_alpha=4, "
        "lora_dropout=0.1), scale=True)",
        given="style='causal'",
        mask="causal",
        notes="Conv1D of GPT-2, low-rank changes to queries and values",
    ),
    "suno-ai/bark": Module(
        repository="suno-ai/bark",
        commit="f4f32d4cd480dfec1c245d258174bc9bde3c2148",
        files={"bark/model.py": ("GPTConfig", "CausalSelfAttention")},
        make="CausalSelfAttention(GPTConfig(64, n_head=5, n_embd=20))",
        given="style='causal'",
        mask="causal",
        notes="speech; nanoGPT's, fused; returns a cache",
    ),
    "suno-ai/bark:fine": Module(
        repository="suno-ai/bark",
        commit="f4f32d4cd480dfec1c245d258174bc9bde3c2148",
        files={
            "bark/model.py": ("GPTConfig",),
            "bark/model_fine.py": ("NonCausalSelfAttention",),
        },
        make="NonCausalSelfAttention(GPTConfig(64, n_head=5, n_embd=20))",
        given="style='both'",
        mask="bidirectional",
        notes="speech; fused",
    ),
    # Encoders, decoders and courses
    "SamLynnEvans/Transformer": Module(
        repository="SamLynnEvans/Transformer",
        commit="49e01800aab01dcd83403a056c059f429a7d7512",
        files={"Sublayers.py": ("attention", "MultiHeadAttention")},
        make="MultiHeadAttention(5, 20, 0.1)",
        mask="argument",
        notes="tutorial of encoder and decoder",
    ),
    "naokishibuya/simple_transformer": Module(
        repository="naokishibuya/simple_transformer",
        commit="4582917ea43f242876e1b4c31d32df9597aa83f2",
        files={
            "simple_transformer/modules/attention.py": (
                "MultiHeadAttention",
                "attention",
            )
        },
        make="MultiHeadAttention(5, 20, 0.1)",
        adapter="return layer(x, x)",
        given="style='both'",
        mask="argument",
        notes="takes queries' features and those to attend to",
    ),
    "sgrvinod/a-PyTorch-Tutorial-to-Transformers": Module(
        repository="sgrvinod/a-PyTorch-Tutorial-to-Transformers",
        commit="3e09136cc1bde6bba73ca5813a3f6c982cd5555a",
        files={"model.py": ("MultiHeadAttention",)},
        names="device = torch.device('cpu')",
        make="MultiHeadAttention(20, 5, 4, 4, 0.1, in_decoder=True)",
        adapter="return layer(x, x, torch.full((len(x),), x.shape[1]))",
        given="style='causal'",
        mask="causal",
        notes="norm before, residual inside, keys and values fused, lengths",
    ),
    "labmlai/annotated_deep_learning_paper_implementations": Module(
        repository="labmlai/annotated_deep_learning_paper_implementations",
        commit="e6b3c8a6a2cdae4071bcde1abeaaf9a2bc37bd53",
        files={
            "labml_nn/transformers/mha.py": (
                "PrepareForMultiHeadAttention",
                "MultiHeadAttention",
            )
        },
        names="tracker = SimpleNamespace(debug=lambda *a: None)",
        make="MultiHeadAttention(5, 20, 0.1)",
        adapter="x = x.transpose(0, 1)\n"
        "return layer(query=x, key=x, value=x).transpose(0, 1)",
        given="style='both'",
        mask="argument",
        notes="sequence first, arguments by name alone",
    ),
    "labmlai/annotated_deep_learning_paper_implementations:alibi": Module(
        repository="labmlai/annotated_deep_learning_paper_implementations",
        commit="e6b3c8a6a2cdae4071bcde1abeaaf9a2bc37bd53",
        files={
            "labml_nn/transformers/mha.py": (
                "PrepareForMultiHeadAttention",
                "MultiHeadAttention",
            ),
            "labml_nn/transformers/alibi/__init__.py": (
                "get_slopes",
                "get_alibi_biases",
                "AlibiMultiHeadAttention",
            ),
        },
        make="AlibiMultiHeadAttention(5, 20, 0.1)",
        adapter="x, mask = x.transpose(0, 1), torch.ones(2 * x.shape[1:2]).tril()\n"
        "return layer(query=x, key=x, value=x, mask=mask[..., None]).transpose(0, 1)",
        given="style='causal'",
        mask="argument",
        notes="ALiBi, sequence first, a mask is required",
    ),
    "labmlai/annotated_deep_learning_paper_implementations:neox": Module(
        repository="labmlai/annotated_deep_learning_paper_implementations",
        commit="e6b3c8a6a2cdae4071bcde1abeaaf9a2bc37bd53",
        files={"labml_nn/neox/model.py": ("RoPE", "AttentionLayer")},
        names="from contextlib import nullcontext\n"
        "autocast = lambda **k: nullcontext()\nget_cache = dict",
        make="AttentionLayer(40, 5, 0.5)",
        given="style='causal'",
        mask="causal",
        notes="fused for each head, rotary half in part",
        d_model=40,
    ),
    "pbloem/former": Module(
        repository="pbloem/former",
        commit="ad9cc703b0b82a24a12e777f5946296f352c9d11",
        files={
            "former/util/util.py": ("mask_",),
            "former/modules.py": ("SelfAttentionWide",),
        },
        make="SelfAttentionWide(20, 5, mask=True)",
        given="style='causal', num_heads=5",
        mask="causal",
        notes="each head as wide as the features",
    ),
    "pbloem/former:norms": Module(
        repository="pbloem/former",
        commit="ad9cc703b0b82a24a12e777f5946296f352c9d11",
        files={"former/modules.py": ("SelfAttention",)},
        make="SelfAttention(20, 5, kqnorm=True)",
        given="style='both'",
        mask="bidirectional",
        notes="layer norms of queries and keys",
    ),
    "pbloem/former:queries": Module(
        repository="pbloem/former",
        commit="ad9cc703b0b82a24a12e777f5946296f352c9d11",
        files={"former/modules.py": ("Attention",)},
        make="Attention(20, 5)",
        given="style='both'",
        mask="bidirectional",
        notes="queries, keys and values; both scaled by a fourth root",
    ),
    "OpenNMT/OpenNMT-py": Module(
        repository="OpenNMT/OpenNMT-py",
        commit="97111d97551c24857076a4102eabdb468b35cff4",
        files={
            "onmt/modules/multi_headed_attn.py": (
                "rotaryembeddings",
                "apply_rotary_emb",
                "shape",
                "unshape",
                "MultiHeadedAttention",
            )
        },
        names="from importlib import import_module\nfrom math import sqrt\n"
        "from torch.nn import Linear\n"
        "def skip_init(layer, **k): return layer(**k)",
        make="MultiHeadedAttention(6, 24, 0.1, max_relative_positions=-1, num_kv=2)",
        mask="argument",
        notes="key, value, query; grouped heads, rotary interleaved; True ignores",
        d_model=24,
    ),
    "OpenNMT/OpenNMT-py:alibi": Module(
        repository="OpenNMT/OpenNMT-py",
        commit="97111d97551c24857076a4102eabdb468b35cff4",
        files={
            "onmt/modules/alibi_position_bias.py": (
                "pad_at_dim",
                "AlibiPositionalBias",
            ),
            "onmt/modules/multi_headed_attn.py": (
                "shape",
                "unshape",
                "MultiHeadedAttention",
            ),
        },
        names="from importlib import import_module\nfrom math import sqrt\n"
        "def skip_init(layer, **k): return layer(**k)",
        make="MultiHeadedAttention(5, 20, 0.1, max_relative_positions=-2, "
        "add_qkvbias=True)",
        mask="argument",
        notes="key, value, query; ALiBi to both sides, True in a mask ignores",
    ),
    "microsoft/torchscale": Module(
        repository="microsoft/torchscale",
        commit="4d1e0e82e5adf86dd424f1463192635b73fc8efc",
        files={
            "torchscale/component/multiway_network.py": ("MultiwayWrapper",),
            "torchscale/component/multihead_attention.py": ("MultiheadAttention",),
        },
        names=_REARRANGE + "LayerNorm = nn.LayerNorm",
        make="MultiheadAttention("
        "SimpleNamespace(flash_attention=False, multiway=False, "
        "xpos_rel_pos=False, layernorm_eps=1e-5), 20, 5, 0.1, self_attention=True, "
        "subln=True)",
        mask="argument",
        needs=_EINOPS,
        notes="norm between heads and the last projection; additive mask",
    ),
    # Images
    "lucidrains/vit-pytorch": Module(
        repository="lucidrains/vit-pytorch",
        commit="69d24fe9e3024c0d4b02761123b8583a24ebed1e",
        files={"vit_pytorch/vit.py": ("Attention",)},
        names=_REARRANGE + "from torch.nn import Module",
        make="Attention(20, heads=5, dim_head=4, dropout=0.1)",
        given="style='both'",
        mask="bidirectional",
        needs=_EINOPS,
        notes="norm before, fused, einops",
    ),
    "lucidrains/vit-pytorch:vivit": Module(
        repository="lucidrains/vit-pytorch",
        commit="69d24fe9e3024c0d4b02761123b8583a24ebed1e",
        files={"vit_pytorch/vivit.py": ("exists", "Attention")},
        names=_REARRANGE + "from torch.nn import Module",
        make="Attention(20, heads=5, dim_head=6, dropout=0.1, use_flash_attn=False)",
        mask="argument",
        needs=_EINOPS,
        notes="video; norm before, heads wider than the features, mask of keys (B, T)",
    ),
    "lucidrains/vit-pytorch:cait": Module(
        repository="lucidrains/vit-pytorch",
        commit="69d24fe9e3024c0d4b02761123b8583a24ebed1e",
        files={"vit_pytorch/cait.py": ("exists", "Attention")},
        names=_REARRANGE + "from torch import einsum",
        make="Attention(20, heads=5, dim_head=4, dropout=0.1)",
        given="style='both'",
        mask="bidirectional",
        needs=_EINOPS,
        notes="norm before, talking heads: mixed before and after the softmax",
    ),
    "tintn/vision-transformer-from-scratch": Module(
        repository="tintn/vision-transformer-from-scratch",
        commit="52c59c6e52f66f9265e799457c9dcedc020fd483",
        files={"vit.py": ("AttentionHead", "MultiHeadAttention")},
        make="MultiHeadAttention({'hidden_size': 20, 'num_attention_heads': 5, "
        "'qkv_bias': True, 'attention_probs_dropout_prob': 0.1, "
        "'hidden_dropout_prob': 0.1})",
        given="style='both', num_heads=5",
        mask="bidirectional",
        notes="a list of heads",
    ),
    "tintn/vision-transformer-from-scratch:fused": Module(
        repository="tintn/vision-transformer-from-scratch",
        commit="52c59c6e52f66f9265e799457c9dcedc020fd483",
        files={"vit.py": ("FasterMultiHeadAttention",)},
        make="FasterMultiHeadAttention({'hidden_size': 20, 'num_attention_heads': 5, "
        "'qkv_bias': True, 'attention_probs_dropout_prob': 0.1, "
        "'hidden_dropout_prob': 0.1})",
        given="style='both'",
        mask="bidirectional",
        notes="fused",
    ),
    "lukemelas/PyTorch-Pretrained-ViT": Module(
        repository="lukemelas/PyTorch-Pretrained-ViT",
        commit="8ec2cab38b2dfae6386f37d4879a325f552eb791",
        files={
            "pytorch_pretrained_vit/transformer.py": (
                "split_last",
                "merge_last",
                "MultiHeadedSelfAttention",
            )
        },
        make="MultiHeadedSelfAttention(20, 5, 0.1)",
        adapter="return layer(x, None)",
        given="style='both'",
        mask="argument",
        notes="no projection of the output; mask of keys (B, T)",
    ),
    "s-chh/PyTorch-Scratch-Vision-Transformer-ViT": Module(
        repository="s-chh/PyTorch-Scratch-Vision-Transformer-ViT",
        commit="5d66670b8ac7d70f89bce7823c332958edd6de57",
        files={"model.py": ("SelfAttention",)},
        make="SelfAttention(20, 5)",
        given="style='both'",
        mask="bidirectional",
        notes="separate projections",
    ),
    "SHI-Labs/Compact-Transformers": Module(
        repository="SHI-Labs/Compact-Transformers",
        commit="cd11f0912749d376f7465cb83534e768b6701d7d",
        files={"src/utils/transformers.py": ("MaskedAttention",)},
        names="from torch.nn import Dropout, Linear, Module",
        make="MaskedAttention(20, 5, 0.1, 0.1)",
        mask="argument",
        notes="fused; mask (B, T) of queries and of keys",
    ),
    "MCG-NJU/VideoMAE": Module(
        repository="MCG-NJU/VideoMAE",
        commit="14ef8d856287c94ef1f985fe30f958eb4ec2c55d",
        files={"modeling_finetune.py": ("Attention",)},
        make="Attention(20, 5, qkv_bias=True, attn_drop=0.1)",
        given="style='both'",
        mask="bidirectional",
        notes="video; fused, biases of queries and values alone",
    ),
    "zczcwh/PoseFormer": Module(
        repository="zczcwh/PoseFormer",
        commit="a908b29adca354b2e0acd36606229ca19b6a5e3c",
        files={"common/model_poseformer.py": ("Attention",)},
        make="Attention(20, 5, qkv_bias=True, attn_drop=0.1)",
        given="style='both'",
        mask="bidirectional",
        notes="poses; timm's, fused",
    ),
    "NVlabs/SegFormer": Module(
        repository="NVlabs/SegFormer",
        commit="65fa8cfa9b52b6ee7e8897a98705abf8570f9e32",
        files={"mmseg/models/backbones/mix_transformer.py": ("Attention",)},
        names="trunc_normal_ = nn.init.trunc_normal_",
        make="Attention(20, 5, qkv_bias=True, attn_drop=0.1)",
        adapter="return layer(x, 1, x.shape[1])",
        given="style='both'",
        mask="bidirectional",
        notes="takes height and width; keys not reduced",
    ),
    "sail-sg/metaformer": Module(
        repository="sail-sg/metaformer",
        commit="64c534ab8f65105fd21713b38e3393a449ca742d",
        files={"metaformer_baselines.py": ("Attention",)},
        make="Attention(20, head_dim=4, attn_drop=0.1)",
        adapter="return layer(x.unsqueeze(1)).squeeze(1)",
        given="style='both'",
        mask="bidirectional",
        notes="takes (B, H, W, C), fused, no biases",
    ),
    "microsoft/Swin-Transformer": Module(
        repository="microsoft/Swin-Transformer",
        commit="f82860bfb5225915aca09c3227159ee9e1df874d",
        files={"models/swin_transformer.py": ("WindowAttention",)},
        names="trunc_normal_ = nn.init.trunc_normal_",
        make="WindowAttention(20, (8, 8), 5, attn_drop=0.1)",
        adapter="mask = x.new_zeros(1, 64, 64).index_fill("
        "2, torch.arange(x.shape[1], 64), -torch.inf)\n"
        "return layer(F.pad(x, (0, 0, 0, 64 - x.shape[1])), mask)[:, : x.shape[1]]",
        given="style='both'",
        mask="argument",
        notes="takes windows of 64 tokens; a learned bias of relative places; fused",
    ),
    "mlfoundations/open_clip": Module(
        repository="mlfoundations/open_clip",
        commit="89fb801f1e6087880e951fc8354b8a2077b79c6d",
        files={"src/open_clip/transformer.py": ("Attention",)},
        names="LayerNormFp32 = nn.LayerNorm",
        make="Attention(20, 5, qk_norm=True, inner_norm=True, scale_heads=True, "
        "attn_drop=0.1)",
        mask="argument",
        notes="norms of queries, keys and all heads; a weight for each head",
    ),
    "mlfoundations/open_clip:cosine": Module(
        repository="mlfoundations/open_clip",
        commit="89fb801f1e6087880e951fc8354b8a2077b79c6d",
        files={"src/open_clip/transformer.py": ("Attention",)},
        names="LayerNormFp32 = nn.LayerNorm",
        make="Attention(20, 5, scaled_cosine=True, attn_drop=0.1)",
        mask="argument",
        notes="cosines with a learned scale; fused parameters",
    ),
    "salesforce/BLIP": Module(
        repository="salesforce/BLIP",
        commit="056a169437371659074aa2732649d5de3bffb4a8",
        files={"models/med.py": ("BertSelfAttention",)},
        make="BertSelfAttention(SimpleNamespace(hidden_size=20, num_attention_heads=5, "
        "attention_probs_dropout_prob=0.1), False)",
        mask="argument",
        notes="BERT's, no projection of the output, additive mask; returns a cache",
    ),
    "OFA-Sys/Chinese-CLIP": Module(
        repository="OFA-Sys/Chinese-CLIP",
        commit="31863c707501bf1605d36842f43deb78793dbc5d",
        files={"cn_clip/clip/modeling_bert.py": ("BertSelfAttention",)},
        make="BertSelfAttention(SimpleNamespace(hidden_size=20, num_attention_heads=5, "
        "attention_probs_dropout_prob=0.1, output_attentions=False))",
        mask="argument",
        notes="BERT's, no projection of the output, additive mask",
    ),
    "xmu-xiaoma666/External-Attention-pytorch": Module(
        repository="xmu-xiaoma666/External-Attention-pytorch",
        commit="d75848e40233ed56fa503c888472bab8b17c568c",
        files={"model/attention/SelfAttention.py": ("ScaledDotProductAttention",)},
        names="from torch.nn import init",
        make="ScaledDotProductAttention(20, 4, 6, 5, 0.1)",
        mask="argument",
        notes="values wider than keys, tiny first weights; True in a mask ignores",
    ),
    "lucidrains/flamingo-pytorch": Module(
        repository="lucidrains/flamingo-pytorch",
        commit="10913abbc8b2ceabb2320560d7d9b85fcb85eee3",
        files={
            "flamingo_pytorch/flamingo_pytorch.py": ("exists", "MaskedCrossAttention")
        },
        names="from einops import rearrange, repeat\nfrom torch import einsum\n"
        "def rearrange_many(each, *a, **k):\n"
        "    return [rearrange(t, *a, **k) for t in each]",
        make="MaskedCrossAttention(dim=20, dim_head=4, heads=5)",
        adapter="return layer(x, x.unsqueeze(1))",
        given="style='both'",
        mask="bidirectional",
        needs=_EINOPS,
        notes="text to images; norm of the queries' features alone",
    ),
    # Diffusion
    "lucidrains/denoising-diffusion-pytorch": Module(
        repository="lucidrains/denoising-diffusion-pytorch",
        commit="faed4db28e724735323fa91c70aa9b28a6e1cbac",
        files={
            "denoising_diffusion_pytorch/attend.py": (
                "exists",
                "default",
                "AttentionConfig",
                "Attend",
            ),
            "denoising_diffusion_pytorch/denoising_diffusion_pytorch.py": (
                "RMSNorm",
                "Attention",
            ),
        },
        names="from collections import namedtuple\nfrom torch import einsum\n"
        "from einops import rearrange, repeat\nfrom torch.nn import Module\n"
        "from torch.nn.attention import SDPBackend",
        make="Attention(20, heads=5, dim_head=4)",
        adapter=_GRID,
        given="style='both'",
        mask="bidirectional",
        needs=_EINOPS,
        notes="images; norm before, convolutions of 1, four keys and values in memory",
    ),
    "openai/guided-diffusion": Module(
        repository="openai/guided-diffusion",
        commit="22e0df8183507e13a7813f8d38d51b072ca1e67c",
        files={
            "guided_diffusion/nn.py": ("conv_nd",),
            "guided_diffusion/unet.py": (
                "QKVAttentionLegacy",
                "QKVAttention",
                "AttentionBlock",
            ),
        },
        names="th = torch\nzero_module = lambda layer: layer\n"
        "normalization = partial(nn.GroupNorm, 32)\n"
        "checkpoint = lambda function, inputs, *rest: function(*inputs)",
        make="AttentionBlock(64, num_heads=4)",
        adapter="return layer(x.mT).mT",
        given="style='both'",
        mask="bidirectional",
        notes="images; group norm before and residual inside, fused for each head; "
        "its last projection, zero at first, as if trained",
        d_model=64,
    ),
    "Stability-AI/generative-models": Module(
        repository="Stability-AI/generative-models",
        commit="0ad7de9a5cb53fd63d6d30a4f385485e72e08597",
        files={"sgm/modules/attention.py": ("CrossAttention",)},
        names="from contextlib import nullcontext\n"
        + _REARRANGE
        + "sdp_kernel, BACKEND_MAP = nullcontext, {None: {}}\n"
        "def default(x, y): return y if x is None else x",
        make="CrossAttention(20, heads=5, dim_head=6, dropout=0.1)",
        mask="argument",
        needs=_EINOPS,
        notes="heads wider than the features, context",
    ),
    "Stability-AI/generative-models:spatial": Module(
        repository="Stability-AI/generative-models",
        commit="0ad7de9a5cb53fd63d6d30a4f385485e72e08597",
        files={"sgm/modules/diffusionmodules/model.py": ("Normalize", "AttnBlock")},
        names=_REARRANGE,
        make="AttnBlock(64)",
        adapter=_GRID,
        given="style='both', num_heads=1",
        mask="bidirectional",
        needs=_EINOPS,
        notes="images; one head, group norm before and residual inside",
        d_model=64,
    ),
    "LTH14/mar": Module(
        repository="LTH14/mar",
        commit="fe470ac24afbee924668d8c5c83e9fec60af3a73",
        files={"models/vae.py": ("Normalize", "AttnBlock")},
        make="AttnBlock(64)",
        adapter=_GRID,
        given="style='both', num_heads=1",
        mask="bidirectional",
        notes="images; one head, group norm before, residual inside, open products",
        d_model=64,
    ),
    "openai/point-e": Module(
        repository="openai/point-e",
        commit="fc8a607c08a3ea804cc82bf1ef8628f88a3a5d2f",
        files={
            "point_e/models/transformer.py": (
                "init_linear",
                "QKVMultiheadAttention",
                "MultiheadAttention",
            )
        },
        names="checkpoint = lambda function, inputs, *rest: function(*inputs)",
        make="MultiheadAttention(device=None, dtype=None, n_ctx=64, width=20, heads=5, "
        "init_scale=0.25)",
        given="style='both'",
        mask="bidirectional",
        notes="points; fused for each head, softmax in float32",
    ),
    # Audio and speech
    "openai/whisper": Module(
        repository="openai/whisper",
        commit="c0d2f624c09dc18e709e37c2ad90c039a4eb72a2",
        files={"whisper/model.py": ("Linear", "MultiHeadAttention")},
        names="SDPA_AVAILABLE = False",
        make="MultiHeadAttention(20, 5)",
        mask="argument",
        notes="as in timestamps of words; no bias of keys, softmax in float32, "
        "additive mask",
    ),
    "wenet-e2e/wenet": Module(
        repository="wenet-e2e/wenet",
        commit="015469960db73eb19c49a48c020d5ac9db69bae5",
        files={"wenet/models/transformer/attention.py": ("MultiHeadedAttention",)},
        make="MultiHeadedAttention(6, 24, 0.1, n_kv_head=2, head_dim=4)",
        names="T_CACHE = tuple",
        mask="argument",
        notes="grouped heads, softmax in float32; returns a cache",
        d_model=24,
    ),
    "wenet-e2e/wenet:shaw": Module(
        repository="wenet-e2e/wenet",
        commit="015469960db73eb19c49a48c020d5ac9db69bae5",
        files={
            "wenet/models/transformer/attention.py": (
                "MultiHeadedAttention",
                "ShawRelPositionMultiHeadedAttention",
            )
        },
        make="ShawRelPositionMultiHeadedAttention(5, 20, 0.1)",
        mask="argument",
        notes="relative places added to keys, softmax in float32; returns a cache",
    ),
    "SWivid/F5-TTS": Module(
        repository="SWivid/F5-TTS",
        commit="2ae2c9bd9b64dab2cb069c4b97e5e7673c521e01",
        files={
            "src/f5_tts/model/modules.py": ("RMSNorm", "AttnProcessor", "Attention")
        },
        names="import warnings",
        make="Attention(AttnProcessor(attn_mask_enabled=True), 20, 5, 4, "
        "qk_norm='rms_norm')",
        mask="argument",
        notes="RMS norms of queries and keys; mask of keys (B, T), zeros where False",
    ),
    "neonbjb/tortoise-tts": Module(
        repository="neonbjb/tortoise-tts",
        commit="8a2563ecabe93c4fb626f876dd0c52c966edef2f",
        files={
            "tortoise/models/xtransformers.py": (
                "DEFAULT_DIM_HEAD",
                "Intermediates",
                "exists",
                "default",
                "max_neg_value",
                "Attention",
            )
        },
        names="from collections import namedtuple\nfrom inspect import isfunction\n"
        "from einops import rearrange, repeat\nfrom torch import einsum",
        make="Attention(20, dim_head=4, heads=5, causal=True, dropout=0.1)",
        given="style='causal'",
        mask="causal",
        needs=_EINOPS,
        notes="x-transformers of its time; returns parts and a cache",
    ),
    "ming024/FastSpeech2": Module(
        repository="ming024/FastSpeech2",
        commit="d4e79eb52e8b01d24703b2dfc0385544092958f3",
        files={
            "transformer/Modules.py": ("ScaledDotProductAttention",),
            "transformer/SubLayers.py": ("MultiHeadAttention",),
        },
        make="MultiHeadAttention(5, 20, 4, 4, 0.1)",
        adapter="mask = torch.zeros(len(x), x.shape[1], x.shape[1]).bool()\n"
        "return layer(x, x, x, mask=mask)[0]",
        given="style='both'",
        mask="argument",
        notes="residual inside and norm after; a mask is required, True ignores",
    ),
    # Time series, tables, recommendation and reinforcement learning
    "zhouhaoyi/Informer2020": Module(
        repository="zhouhaoyi/Informer2020",
        commit="29f2a739226a509202a092b464163da81fa74960",
        files={"models/attn.py": ("FullAttention", "AttentionLayer")},
        names="from math import sqrt",
        make="AttentionLayer(FullAttention(False, attention_dropout=0.1), 20, 5)",
        adapter="return layer(x, x, x, None)[0]",
        given="style='both'",
        mask="bidirectional",
        notes="time series",
    ),
    "thuml/Time-Series-Library": Module(
        repository="thuml/Time-Series-Library",
        commit="4e938a1767106324dd753b2a44832bf870a0252e",
        files={
            "utils/masking.py": ("TriangularCausalMask",),
            "layers/SelfAttention_Family.py": ("FullAttention", "AttentionLayer"),
        },
        names="from math import sqrt",
        make="AttentionLayer(FullAttention(True, attention_dropout=0.1), 20, 5, 4, 6)",
        adapter="return layer(x, x, x, None)[0]",
        given="style='causal'",
        mask="causal",
        notes="time series; values wider than keys",
    ),
    "yuqinie98/PatchTST": Module(
        repository="yuqinie98/PatchTST",
        commit="204c21efe0b39603ad6e2ca640ef5896646ab1a9",
        files={
            "PatchTST_supervised/layers/PatchTST_backbone.py": (
                "_ScaledDotProductAttention",
                "_MultiheadAttention",
            )
        },
        make="_MultiheadAttention(20, 5, attn_dropout=0.1)",
        mask="argument",
        notes="time series; arguments Q, K, V; True in masks ignores",
    ),
    "yandex-research/rtdl": Module(
        repository="yandex-research/rtdl",
        commit="4ca77be57aae445648df63e9ef3a5566b1f0a835",
        files={"rtdl/modules.py": ("MultiheadAttention",)},
        names="def _all_or_none(values): return len({v is None for v in values}) < 2",
        make="MultiheadAttention(d_token=20, n_heads=5, dropout=0.1, bias=True, "
        "initialization='kaiming')",
        adapter="return layer(x, x, None, None)[0]",
        given="style='both'",
        mask="bidirectional",
        notes="tables; keys and values not compressed",
    ),
    "RUCAIBox/RecBole": Module(
        repository="RUCAIBox/RecBole",
        commit="7b02be5ec80a88310f2d04a27a82adfcbb5dc211",
        files={"recbole/model/layers.py": ("MultiHeadAttention",)},
        make="MultiHeadAttention(5, 20, 0.1, 0.1, 1e-12)",
        mask="argument",
        notes="recommendation; residual, norm after; an additive mask is required",
    ),
    "nikhilbarhate99/min-decision-transformer": Module(
        repository="nikhilbarhate99/min-decision-transformer",
        commit="d6694248b48c57c84fc7487e6e8017dcca861b02",
        files={"decision_transformer/model.py": ("MaskedCausalAttention",)},
        make="MaskedCausalAttention(20, 64, 5, 0.1)",
        given="style='causal'",
        mask="causal",
        notes="reinforcement learning; separate projections",
    ),
    "opendilab/DI-engine": Module(
        repository="opendilab/DI-engine",
        commit="d0b21d065b2d80317cc16b28a95301be8871d950",
        files={"ding/torch_utils/network/transformer.py": ("Attention",)},
        names="fc_block = nn.Linear",
        make="Attention(20, 4, 20, 5, nn.Dropout(0.1))",
        mask="argument",
        notes="reinforcement learning; fused",
    ),
    "opendilab/LightZero": Module(
        repository="opendilab/LightZero",
        commit="9f717c80c86d5c69b39a56d8ade18e684ce6311a",
        files={
            "lzero/model/unizero_world_models/transformer.py": (
                "_maybe_wrap_linear",
                "TransformerConfig",
                "SelfAttention",
            )
        },
        names=_REARRANGE,
        make="SelfAttention("
        "TransformerConfig(4, 16, 'causal', 1, 5, 20, 0.1, 0.1, 0.1))",
        given="style='causal'",
        mask="causal",
        needs=_EINOPS,
        notes="reinforcement learning; separate projections",
    ),
}
