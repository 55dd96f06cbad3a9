"""The learning set: attention modules that may be used to improve the checks.

The owners' names begin with a to k. The other sets are ``held_out`` and ``unseen``.
"""

from benchmarks.public.modules import Module

__all__ = ["MODULES"]

_GPT = (
    "config = SimpleNamespace(n_embd=20, n_head=5, block_size=64, bias=True, "
    "dropout=0.1, attn_pdrop=0.1, resid_pdrop=0.1)"
)
_EINOPS = ("arogozhnikov/einops",)
_NO_FUSED = """
def use_fused_attn():
    return False
torch.fx.wrap = register_notrace_function = lambda each: each
"""
_TRANSFORMERS = """
from transformers.models.{0} import modeling_{0} as there
globals().update(vars(there))
"""
_HUGGING = (
    "vocab_size=7, hidden_size=40, num_attention_heads=4, attention_dropout=0.1, "
    "attn_implementation='eager', num_key_value_heads=2"
)
_IMAGES = "x = x.mT.unsqueeze(-1)\nreturn layer(x).squeeze(-1).mT"
_TURNS = """
def turns(length):
    angles = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(5) / 5))
    return torch.polar(torch.ones_like(angles), angles)
"""

MODULES: dict[str, Module] = {
    "karpathy/nanoGPT": Module(
        repository="karpathy/nanoGPT",
        commit="3adf61e154c3fe3fca428ad6bc3818b27a3b8291",
        files={"model.py": ("CausalSelfAttention",)},
        names=_GPT,
        make="CausalSelfAttention(config)",
        given="style='causal'",
        mask="causal",
        notes="one projection to queries, keys and values",
    ),
    "karpathy/minGPT": Module(
        repository="karpathy/minGPT",
        commit="37baab71b9abea1b76ab957409a1cc2fbfba8a26",
        files={"mingpt/model.py": ("CausalSelfAttention",)},
        names=_GPT,
        make="CausalSelfAttention(config)",
        given="style='causal'",
        mask="causal",
        notes="one projection to queries, keys and values; mask in a buffer",
    ),
    "karpathy/ng-video-lecture": Module(
        repository="karpathy/ng-video-lecture",
        commit="52201428ed7b46804849dea0b3ccf0de9df1a5c3",
        files={"gpt.py": ("Head", "MultiHeadAttention")},
        names="n_embd, block_size, dropout = 20, 64, 0.1",
        make="MultiHeadAttention(5, 4)",
        given="style='causal'",
        mask="causal",
        notes="a module for each head",
    ),
    "karpathy/build-nanogpt": Module(
        repository="karpathy/build-nanogpt",
        commit="6104ab1b53920f6e2159749676073ff7d815c1fa",
        files={"train_gpt2.py": ("CausalSelfAttention",)},
        names=_GPT,
        make="CausalSelfAttention(config)",
        given="style='causal'",
        mask="causal",
        notes="one projection to queries, keys and values; fused",
    ),
    "karpathy/llama2.c": Module(
        repository="karpathy/llama2.c",
        commit="350e04fe35433e6d2941dce5a1f53308f87058eb",
        files={
            "model.py": (
                *("precompute_freqs_cis", "reshape_for_broadcast"),
                *("apply_rotary_emb", "repeat_kv", "Attention"),
            )
        },
        make="Attention(SimpleNamespace("
        "dim=40, n_heads=4, n_kv_heads=2, dropout=0.1, max_seq_len=64))",
        adapter="return layer(x, *precompute_freqs_cis(10, x.shape[1]))",
        d_model=40,
        given="style='causal'",
        mask="causal",
        notes="rotary interleaved; grouped heads",
    ),
    "karpathy/nanochat": Module(
        repository="karpathy/nanochat",
        commit="92d63d4e8bb4df75c3b71618f31ddde2378b2bcd",
        files={
            "nanochat/gpt.py": (
                *("norm", "Linear", "has_ve", "apply_rotary_emb"),
                "CausalSelfAttention",
            )
        },
        names="""
class flash_attn:
    def flash_attn_func(q, k, v, causal, window_size):
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
        return o.transpose(1, 2)

def angles(x):
    turned = torch.outer(torch.arange(x.shape[1]), 10000.0 ** (-torch.arange(5) / 5))
    return turned.cos()[None, :, None].to(x), turned.sin()[None, :, None].to(x)
""",
        make="CausalSelfAttention("
        "SimpleNamespace(n_embd=40, n_head=4, n_kv_head=2, n_layer=3), 1)",
        adapter="return layer(x, None, angles(x), (-1, 0), None)",
        d_model=40,
        given="style='causal'",
        mask="causal",
        notes="rotary half; grouped heads; queries and keys normed",
    ),
    "jadore801120/attention-is-all-you-need-pytorch": Module(
        repository="jadore801120/attention-is-all-you-need-pytorch",
        commit="132907dd272e2cc92e3c10e6c4e783a87ff8893d",
        files={
            "transformer/Modules.py": ("ScaledDotProductAttention",),
            "transformer/SubLayers.py": ("MultiHeadAttention",),
        },
        make="MultiHeadAttention(5, 20, 4, 4)",
        mask="argument",
        notes="adds its input and norms the sum",
    ),
    "harvardnlp/annotated-transformer": Module(
        repository="harvardnlp/annotated-transformer",
        commit="debc9fd747bb2123160a98046ad1c2d4da44a567",
        files={
            "the_annotated_transformer.py": (
                *("clones", "attention", "MultiHeadedAttention"),
            )
        },
        make="MultiHeadedAttention(5, 20)",
        mask="argument",
        notes="projections in a list",
    ),
    "hyunwoongko/transformer": Module(
        repository="hyunwoongko/transformer",
        commit="63286547b9cd174a6cfc204832271814d685181f",
        files={
            "models/layers/scale_dot_product_attention.py": (
                "ScaleDotProductAttention",
            ),
            "models/layers/multi_head_attention.py": ("MultiHeadAttention",),
        },
        make="MultiHeadAttention(20, 5)",
        mask="argument",
        notes="fills with -10000",
    ),
    "codertimo/BERT-pytorch": Module(
        repository="codertimo/BERT-pytorch",
        commit="d10dc4f9d5a6f2ca74380f62039526eb7277c671",
        files={
            "bert_pytorch/model/attention/single.py": ("Attention",),
            "bert_pytorch/model/attention/multi_head.py": ("MultiHeadedAttention",),
        },
        make="MultiHeadedAttention(5, 20)",
        mask="argument",
        notes="three projections in a list, and one beside it",
    ),
    "cuhksz-nlp/R2Gen": Module(
        repository="cuhksz-nlp/R2Gen",
        commit="5a2e63f6d8da670725b1926317b4bfd1393ec51b",
        files={
            "modules/encoder_decoder.py": (
                *("clones", "attention", "MultiHeadedAttention"),
            )
        },
        make="MultiHeadedAttention(5, 20)",
        mask="argument",
        notes="a mask of three axes",
    ),
    "dandelin/ViLT": Module(
        repository="dandelin/ViLT",
        commit="762fd3975c180db6fc88f577cf39549983fa373a",
        files={"vilt/modules/vision_transformer.py": ("Attention",)},
        make="Attention(20, num_heads=5, qkv_bias=True, attn_drop=0.1)",
        adapter="return layer(x)[0]",
        given="style='both'",
        mask="bidirectional",
        notes="a mask of keys alone",
    ),
    "dhlee347/pytorchic-bert": Module(
        repository="dhlee347/pytorchic-bert",
        commit="fefcbd988bc3bcdd2cd67072101a3d94ef362f7e",
        files={
            "utils.py": ("split_last", "merge_last"),
            "models.py": ("MultiHeadedSelfAttention",),
        },
        make="MultiHeadedSelfAttention("
        "SimpleNamespace(dim=20, n_heads=5, p_drop_attn=0.1))",
        adapter="return layer(x, None)",
        given="style='both'",
        mask="bidirectional",
        notes="no last projection; a mask of keys alone",
    ),
    "facebookresearch/dino": Module(
        repository="facebookresearch/dino",
        commit="7c446df5b9f45747937fb0d72314eb9f7b66930a",
        files={"vision_transformer.py": ("Attention",)},
        make="Attention(20, num_heads=5, qkv_bias=True, attn_drop=0.1)",
        given="style='both'",
        mask="bidirectional",
    ),
    "facebookresearch/deit": Module(
        repository="facebookresearch/deit",
        commit="7e160fe43f0252d17191b71cbb5826254114ea5b",
        files={"models_v2.py": ("Attention",)},
        make="Attention(20, num_heads=5, attn_drop=0.1)",
        given="style='both'",
        mask="bidirectional",
    ),
    "facebookresearch/deit:Attention_talking_head": Module(
        repository="facebookresearch/deit",
        commit="7e160fe43f0252d17191b71cbb5826254114ea5b",
        files={"cait_models.py": ("Attention_talking_head",)},
        make="Attention_talking_head(20, num_heads=5, qkv_bias=True)",
        given="style='both'",
        mask="bidirectional",
        notes="heads are mixed before and after the softmax",
    ),
    "facebookresearch/dinov2": Module(
        repository="facebookresearch/dinov2",
        commit="b8931f7bf91576930313be2c6d6af376033b35f0",
        files={"dinov2/layers/attention.py": ("Attention",)},
        make="Attention(20, num_heads=5, qkv_bias=True, attn_drop=0.1)",
        adapter="return layer(x, is_causal=True)",
        given="style='causal'",
        mask="causal",
        notes="a flag for causal attention, and no mask",
    ),
    "facebookresearch/XLM": Module(
        repository="facebookresearch/XLM",
        commit="cd281d32612d145c6742b4d3f048f80df8669c30",
        files={"xlm/model/transformer.py": ("Linear", "MultiHeadAttention")},
        names="import itertools",
        make="MultiHeadAttention(5, 20, 0.1)",
        mask="argument",
        notes="functions in the forward; a mask has to be given",
    ),
    "facebookresearch/esm": Module(
        repository="facebookresearch/esm",
        commit="2b369911bb5b4b0dda914521b9475cad1656b2ac",
        files={"esm/esmfold/v1/misc.py": ("Attention",)},
        names="from einops import rearrange, repeat",
        make="Attention(20, 5, 4, gated=True)",
        adapter="return layer(x)[0]",
        given="style='both'",
        mask="bidirectional",
        needs=_EINOPS,
        notes="gated; each head's queries, keys and values side by side",
    ),
    "facebookresearch/esm:RowSelfAttention": Module(
        repository="facebookresearch/esm",
        commit="2b369911bb5b4b0dda914521b9475cad1656b2ac",
        files={"esm/axial_attention.py": ("RowSelfAttention",)},
        make="RowSelfAttention(20, 5, dropout=0.1)",
        adapter="return layer(x.transpose(0, 1)[None])[0][0].transpose(0, 1)",
        given="style='both'",
        mask="bidirectional",
        notes="rows of an alignment share their weights; called with one row",
    ),
    "facebookresearch/segment-anything": Module(
        repository="facebookresearch/segment-anything",
        commit="dca509fe793f601edb92606367a655c15ac00fdf",
        files={"segment_anything/modeling/transformer.py": ("Attention",)},
        make="Attention(20, 5)",
        given="style='both'",
        mask="bidirectional",
        notes="three sequences, no mask",
    ),
    "gordicaleksa/pytorch-original-transformer": Module(
        repository="gordicaleksa/pytorch-original-transformer",
        commit="d5b29a41c5c3f68e1bcd0c528a58281632fa9d6d",
        files={
            "models/definitions/transformer_model.py": (
                *("get_clones", "MultiHeadedAttention"),
            )
        },
        make="MultiHeadedAttention(20, 5, 0.1, False)",
        mask="argument",
    ),
    "graykode/gpt-2-Pytorch": Module(
        repository="graykode/gpt-2-Pytorch",
        commit="401078fde5e85475590dc04c9ed11b79332b8717",
        files={"GPT2/model.py": ("Conv1D", "Attention")},
        names="from torch.nn.parameter import Parameter\n" + _GPT,
        make="Attention(20, 64, config, scale=True)",
        given="style='causal'",
        mask="causal",
        notes="weights stand the other way; forbidden scores are subtracted from",
    ),
    "graykode/nlp-tutorial": Module(
        repository="graykode/nlp-tutorial",
        commit="d05e31ec81d56d70c1db89b99ab07e948f7ebc11",
        files={
            "5-1.Transformer/Transformer.py": (
                *("ScaledDotProductAttention", "MultiHeadAttention"),
            )
        },
        names="d_model, n_heads, d_k, d_v = 20, 5, 4, 4",
        make="MultiHeadAttention()",
        given="mask_means='ignore'",
        mask="argument",
        notes="sizes are global names; adds its input and norms the sum",
    ),
    "hila-chefer/Transformer-Explainability": Module(
        repository="hila-chefer/Transformer-Explainability",
        commit="c3e578f76b954e8528afeaaee26de3f07e3fe559",
        files={"baselines/ViT/ViT_new.py": ("Attention",)},
        names="from einops import rearrange",
        make="Attention(20, num_heads=5, qkv_bias=True, attn_drop=0.1)",
        given="style='both'",
        mask="bidirectional",
        needs=_EINOPS,
    ),
    "hkproj/pytorch-stable-diffusion": Module(
        repository="hkproj/pytorch-stable-diffusion",
        commit="6e6900078372af15eb1b13e73068cd563784f377",
        files={"sd/attention.py": ("SelfAttention",)},
        make="SelfAttention(5, 20)",
        adapter="return layer(x, causal_mask=True)",
        given="style='causal'",
        mask="causal",
        notes="an argument with the name of a mask is a flag",
    ),
    "hkproj/pytorch-stable-diffusion:CrossAttention": Module(
        repository="hkproj/pytorch-stable-diffusion",
        commit="6e6900078372af15eb1b13e73068cd563784f377",
        files={"sd/attention.py": ("CrossAttention",)},
        make="CrossAttention(5, 20, 20)",
        adapter="return layer(x, x)",
        given="style='both'",
        mask="bidirectional",
        notes="attends to another sequence",
    ),
    "hkproj/pytorch-transformer": Module(
        repository="hkproj/pytorch-transformer",
        commit="3beddd2604bfa5e0fbd53f52361bd887dc027a8c",
        files={"model.py": ("MultiHeadAttentionBlock",)},
        make="MultiHeadAttentionBlock(20, 5, 0.1)",
        mask="argument",
        notes="no biases",
    ),
    "jankrepl/mildlyoverfitted": Module(
        repository="jankrepl/mildlyoverfitted",
        commit="22f0ecc67cef14267ee91ff2e4df6bf9f6d65bc2",
        files={"github_adventures/vision_transformer/custom.py": ("Attention",)},
        make="Attention(20, n_heads=5, attn_p=0.1)",
        given="style='both'",
        mask="bidirectional",
    ),
    "jannerm/trajectory-transformer": Module(
        repository="jannerm/trajectory-transformer",
        commit="8834a6ed04ceeab8fdb9465e145c6e041c05d71b",
        files={"trajectory/models/transformers.py": ("CausalSelfAttention",)},
        names=_GPT + "\nconfig.observation_dim, config.action_dim = 60, 10",
        make="CausalSelfAttention(config)",
        given="style='causal'",
        mask="causal",
        notes="reinforcement learning",
    ),
    "jaywalnut310/glow-tts": Module(
        repository="jaywalnut310/glow-tts",
        commit="13e997689d643410f5d9f1f9a73877ae85e19bc2",
        files={"attentions.py": ("MultiHeadAttention",)},
        make="MultiHeadAttention(20, 20, 5, p_dropout=0.1)",
        adapter="x = x.transpose(1, 2)\nreturn layer(x, x).transpose(1, 2)",
        given="style='both', d_model=20",
        mask="bidirectional",
        notes="features (B, D, T); projections are convolutions",
    ),
    "jaywalnut310/vits": Module(
        repository="jaywalnut310/vits",
        commit="2e561ba58618d021b5b8323d3765880f7e0ecfdb",
        files={
            "commons.py": ("convert_pad_shape",),
            "attentions.py": ("MultiHeadAttention",),
        },
        names="commons = SimpleNamespace("
        "convert_pad_shape=lambda shape: convert_pad_shape(shape))",
        make="MultiHeadAttention(20, 20, 5, p_dropout=0.1, window_size=4)",
        adapter="x = x.transpose(1, 2)\nreturn layer(x, x).transpose(1, 2)",
        given="style='both', d_model=20",
        mask="bidirectional",
        notes="features (B, D, T); learned distances added to scores and values",
    ),
    "jeonsworld/ViT-pytorch": Module(
        repository="jeonsworld/ViT-pytorch",
        commit="460a162767de1722a014ed2261463dbbc01196b6",
        files={"models/modeling.py": ("Attention",)},
        names="from torch.nn import Dropout, Linear, Softmax",
        make="Attention(SimpleNamespace(hidden_size=20, "
        "transformer=dict(num_heads=5, attention_dropout_rate=0.1)), False)",
        given="style='both'",
        mask="bidirectional",
    ),
    "jingyaogong/minimind": Module(
        repository="jingyaogong/minimind",
        commit="d65ef2c00ebc6082f9df11541e1b191655eddb00",
        files={
            "model/model_minimind.py": (
                *("RMSNorm", "precompute_freqs_cis", "apply_rotary_pos_emb"),
                *("repeat_kv", "Attention"),
            )
        },
        make="Attention(SimpleNamespace(num_attention_heads=4, num_key_value_heads=2, "
        "head_dim=10, hidden_size=40, rms_norm_eps=1e-6, dropout=0.1, "
        "flash_attn=False))",
        adapter="return layer(x, precompute_freqs_cis(10, x.shape[1]))[0]",
        d_model=40,
        given="style='causal'",
        mask="causal",
        notes="rotary half; grouped heads; queries and keys normed",
    ),
    "jquesnelle/yarn": Module(
        repository="jquesnelle/yarn",
        commit="995db5b575e75230b3384d658f8b944c9662f775",
        files={
            "scaled_rope/modeling_llama_yarn.py": (
                *("rotate_half", "apply_rotary_pos_emb", "repeat_kv"),
                *("LlamaRotaryEmbedding", "LlamaAttention"),
            )
        },
        names="""
config = SimpleNamespace(
    attention_dropout=0.1, hidden_size=40, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64, rope_theta=1e4,
    attention_bias=False, rope_scaling=None, pretraining_tp=1,
)
""",
        make="LlamaAttention(config, 0)",
        d_model=40,
        mask="argument",
        notes="rotary half; grouped heads; a mask to add",
    ),
    "kaituoxu/Speech-Transformer": Module(
        repository="kaituoxu/Speech-Transformer",
        commit="43d83eab2e4e25a4250ddff702aa0a2d4dffe4e6",
        files={
            "src/transformer/attention.py": (
                *("ScaledDotProductAttention", "MultiHeadAttention"),
            )
        },
        make="MultiHeadAttention(5, 20, 4, 4)",
        given="mask_means='ignore'",
        mask="argument",
        notes="speech; adds its input and norms the sum",
    ),
    "kzl/decision-transformer": Module(
        repository="kzl/decision-transformer",
        commit="e2d82e68f330c00f763507b3b01d774740bee53f",
        files={"gym/decision_transformer/models/trajectory_gpt2.py": ("Attention",)},
        names="from transformers.pytorch_utils import Conv1D\n" + _GPT,
        make="Attention(20, 64, config, scale=True)",
        adapter="return layer(x)[0]",
        given="style='causal'",
        mask="causal",
        notes="weights stand the other way; fills with -10000; returns a list",
    ),
    "kzl/decision-transformer:atari": Module(
        repository="kzl/decision-transformer",
        commit="e2d82e68f330c00f763507b3b01d774740bee53f",
        files={"atari/mingpt/model_atari.py": ("CausalSelfAttention",)},
        names=_GPT,
        make="CausalSelfAttention(config)",
        given="style='causal'",
        mask="causal",
        notes="reinforcement learning",
    ),
    "affjljoo3581/GPT2": Module(
        repository="affjljoo3581/GPT2",
        commit="7b159669f6225231ee75f5ea110c1be69f4ce8ef",
        files={
            "src/gpt2/modeling/attention.py": (
                *("BaseAttention", "MultiHeadAttention", "AttentionLayer"),
            )
        },
        make="AttentionLayer(5, 20)",
        given="mask_means='ignore'",
        mask="argument",
        notes="True means ignore; -10000 is added",
    ),
    "baofff/U-ViT": Module(
        repository="baofff/U-ViT",
        commit="ce551708dc9cde9818d2af7d84dfadfeb7bd9034",
        files={"libs/uvit.py": ("Attention",)},
        names="import einops\nATTENTION_MODE = 'math'",
        make="Attention(20, num_heads=5, attn_drop=0.1)",
        given="style='both'",
        mask="bidirectional",
        needs=_EINOPS,
        notes="diffusion",
    ),
    "dreamgonfly/transformer-pytorch": Module(
        repository="dreamgonfly/transformer-pytorch",
        commit="c31e163ed57321e405771ef7fb556d4d92fd5efb",
        files={"models.py": ("MultiHeadAttention",)},
        make="MultiHeadAttention(5, 20, 0.1)",
        given="mask_means='ignore'",
        mask="argument",
        notes="True means ignore; a mask of three axes",
    ),
    "eladhoffer/seq2seq.pytorch": Module(
        repository="eladhoffer/seq2seq.pytorch",
        commit="769c9995594ea0059075280f49a86ac4dace28bd",
        files={
            "seq2seq/models/modules/attention.py": (
                *("SDPAttention", "MultiHeadAttentionV2"),
            ),
        },
        # Its own does not run on today's PyTorch.
        names="def Linear(a, b, bias=True, groups=1): return nn.Linear(a, b, bias)",
        make="MultiHeadAttentionV2(20, 20, 5, dropout=0.1)",
        given="style='both'",
        mask="bidirectional",
        notes="heads one by one; returns a list of weights",
    ),
    "eloialonso/iris": Module(
        repository="eloialonso/iris",
        commit="24326aaaa283c527f42b89b44cfdecf2665a7a16",
        files={"src/models/transformer.py": ("SelfAttention",)},
        names="from einops import rearrange",
        make="SelfAttention(SimpleNamespace(embed_dim=20, num_heads=5, "
        "attention='causal', attn_pdrop=0.1, resid_pdrop=0.1, max_tokens=64, "
        "tokens_per_block=4, max_blocks=16))",
        given="style='causal'",
        mask="causal",
        needs=_EINOPS,
        notes="a world model",
    ),
    "CompVis/stable-diffusion": Module(
        repository="CompVis/stable-diffusion",
        commit="21f890f9da3cfbeaba8e2ac3c425ee9e998d5229",
        files={"ldm/modules/attention.py": ("exists", "default", "CrossAttention")},
        names="from einops import rearrange, repeat\nfrom torch import einsum\n"
        "from inspect import isfunction",
        make="CrossAttention(20, heads=5, dim_head=4, dropout=0.1)",
        adapter="return layer(x)",
        given="style='both'",
        mask="bidirectional",
        needs=_EINOPS,
        notes="diffusion; a mask of keys alone",
    ),
    "CompVis/stable-diffusion:SpatialSelfAttention": Module(
        repository="CompVis/stable-diffusion",
        commit="21f890f9da3cfbeaba8e2ac3c425ee9e998d5229",
        files={"ldm/modules/attention.py": ("Normalize", "SpatialSelfAttention")},
        names="from einops import rearrange",
        make="SpatialSelfAttention(64)",
        adapter="x = x.transpose(1, 2).unsqueeze(-1)\n"
        "return layer(x).squeeze(-1).transpose(1, 2)",
        given="style='both', d_model=64",
        d_model=64,
        mask="bidirectional",
        needs=_EINOPS,
        notes="features (B, D, rows, columns); norms its input and adds it; one head",
    ),
    "FoundationVision/LlamaGen": Module(
        repository="FoundationVision/LlamaGen",
        commit="ce98ec41803a74a90ce68c40ababa9eaeffeb4ec",
        files={"autoregressive/models/gpt.py": ("apply_rotary_emb", "Attention")},
        names="""
def angles(length):
    turned = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(5) / 5))
    return torch.stack([turned.cos(), turned.sin()], dim=-1)
""",
        make="Attention(SimpleNamespace(dim=40, n_head=4, n_kv_head=2, "
        "attn_dropout_p=0.1, resid_dropout_p=0.1))",
        adapter="return layer(x, angles(x.shape[1]))",
        d_model=40,
        given="style='causal'",
        mask="causal",
        notes="rotary interleaved; grouped heads in one projection",
    ),
    "FoundationVision/VAR": Module(
        repository="FoundationVision/VAR",
        commit="78b95394fc5896192e3a003e4b295f8ea743c48f",
        files={"models/basic_var.py": ("SelfAttention",)},
        names="flash_attn_func = memory_efficient_attention = None\n"
        "slow_attn = F.scaled_dot_product_attention",
        make="SelfAttention(0, 20, 5, attn_drop=0.1, attn_l2_norm=True)",
        adapter="return layer(x, None)",
        given="style='both'",
        mask="bidirectional",
        notes="queries and keys normed, with a factor for each head; no bias of keys",
    ),
    "black-forest-labs/flux": Module(
        repository="black-forest-labs/flux",
        commit="802fb4713906133fcbd0d8dc5351620ca4773036",
        files={
            "src/flux/math.py": ("rope", "apply_rope", "attention"),
            "src/flux/modules/layers.py": ("RMSNorm", "QKNorm", "SelfAttention"),
        },
        names="from einops import rearrange",
        make="SelfAttention(20, num_heads=5)",
        adapter="places = torch.arange(x.shape[1])[None].double()\n"
        "return layer(x, rope(places, 4, 10000)[:, None])",
        given="style='both'",
        mask="bidirectional",
        needs=_EINOPS,
        notes="rotary interleaved; queries and keys normed",
    ),
    "google/gemma_pytorch": Module(
        repository="google/gemma_pytorch",
        commit="014acb7ac4563a5f77c76d7ff98f31b568c16508",
        files={"gemma/siglip_vision/siglip_vision_model.py": ("SiglipAttention",)},
        make="SiglipAttention(20, 5, 4)",
        given="style='both'",
        mask="bidirectional",
    ),
    "idiap/fast-transformers": Module(
        repository="idiap/fast-transformers",
        commit="2ad36b97e64cb93862937bd21fcc9568d989561f",
        files={
            "fast_transformers/masking.py": (
                *("BaseMask", "FullMask", "LengthMask", "TriangularCausalMask"),
            ),
            "fast_transformers/attention/full_attention.py": ("FullAttention",),
            "fast_transformers/attention/attention_layer.py": ("AttentionLayer",),
        },
        names="""
from math import sqrt
from torch.nn import Dropout, Linear, Module
AttentionEvent = QKVEvent = lambda *arguments: None
silent = SimpleNamespace(dispatch=lambda event: None)
EventDispatcher = SimpleNamespace(get=lambda name: silent)
""",
        make="AttentionLayer(FullAttention(), 20, 5)",
        adapter="whole = LengthMask(torch.full((len(x),), x.shape[1]))\n"
        "return layer(x, x, x, TriangularCausalMask(x.shape[1]), whole, whole)",
        given="style='causal'",
        mask="causal",
        notes="masks are objects",
    ),
    "huggingface/pytorch-image-models": Module(
        repository="huggingface/pytorch-image-models",
        commit="aa4b5850c1543fa488abf260f18390eda46cf85d",
        files={
            "timm/layers/attention.py": (
                *("maybe_add_mask", "resolve_self_attn_mask", "Attention"),
            )
        },
        names=_NO_FUSED,
        make="Attention(20, num_heads=5, qkv_bias=True, attn_drop=0.1)",
        mask="argument",
        notes="a mask and a flag as PyTorch's function has them",
    ),
    "huggingface/pytorch-image-models:beit": Module(
        repository="huggingface/pytorch-image-models",
        commit="aa4b5850c1543fa488abf260f18390eda46cf85d",
        files={"timm/models/beit.py": ("Attention",)},
        names=_NO_FUSED,
        make="Attention(20, num_heads=5, qkv_bias=True, attn_drop=0.1)",
        adapter="return layer(x)",
        given="style='both'",
        mask="bidirectional",
        notes="biases beside the projection, and none of keys",
    ),
    "huggingface/pytorch-image-models:eva": Module(
        repository="huggingface/pytorch-image-models",
        commit="aa4b5850c1543fa488abf260f18390eda46cf85d",
        files={
            "timm/layers/attention.py": (
                *("maybe_add_mask", "resolve_self_attn_mask"),
            ),
            "timm/models/eva.py": ("EvaAttention",),
        },
        names=_NO_FUSED,
        make="EvaAttention(20, num_heads=5, qkv_fused=False, attn_drop=0.1, "
        "scale_norm=False)",
        mask="argument",
        notes="no bias of keys",
    ),
    "huawei-noah/Pretrained-Language-Model": Module(
        repository="huawei-noah/Pretrained-Language-Model",
        commit="0598f02d7fc4eaa7b4cbc1e9d7ab18bc875c24f9",
        files={"TinyBERT/transformer/modeling.py": ("BertSelfAttention",)},
        make="BertSelfAttention(SimpleNamespace(hidden_size=20, "
        "num_attention_heads=5, attention_probs_dropout_prob=0.1))",
        mask="argument",
        notes="no last projection; a mask to add has to be given",
    ),
    "huggingface/transformers:llama": Module(
        repository="huggingface/transformers",
        commit="transformers==5.23.0",
        files={
            "transformers/models/llama/modeling_llama.py": (
                *("rotate_half", "apply_rotary_pos_emb", "repeat_kv"),
                *("eager_attention_forward", "LlamaAttention"),
            )
        },
        names=_TRANSFORMERS.format("llama")
        + f"config = LlamaConfig({_HUGGING})\nangles = LlamaRotaryEmbedding(config)",
        make="LlamaAttention(config, 0)",
        adapter="causal = torch.full(2 * x.shape[1:2], -torch.inf).triu(1)\n"
        "return layer(x, angles(x, torch.arange(x.shape[1])[None]), causal)[0]",
        d_model=40,
        mask="argument",
        notes="rotary half; grouped heads; a mask to add",
    ),
    "huggingface/transformers:gpt2": Module(
        repository="huggingface/transformers",
        commit="transformers==5.23.0",
        files={
            "transformers/models/gpt2/modeling_gpt2.py": (
                *("eager_attention_forward", "GPT2Attention"),
            )
        },
        names=_TRANSFORMERS.format("gpt2"),
        make="GPT2Attention(GPT2Config("
        "n_embd=20, n_head=5, attn_implementation='eager'), layer_idx=0)",
        mask="argument",
        notes="weights stand the other way; a mask to add",
    ),
    "huggingface/transformers:bert": Module(
        repository="huggingface/transformers",
        commit="transformers==5.23.0",
        files={
            "transformers/models/bert/modeling_bert.py": (
                *("eager_attention_forward", "BertSelfAttention"),
            )
        },
        names=_TRANSFORMERS.format("bert"),
        make="BertSelfAttention(BertConfig(hidden_size=20, num_attention_heads=5, "
        "attn_implementation='eager'))",
        mask="argument",
        notes="no last projection; a mask to add",
    ),
    "joeynmt/joeynmt": Module(
        repository="joeynmt/joeynmt",
        commit="cdc4d03d430a1b0f29793a0d95743c5e72ae2f6c",
        files={"joeynmt/transformer_layers.py": ("MultiHeadedAttention",)},
        make="MultiHeadedAttention(5, 20)",
        mask="argument",
        notes="translation; keys come first; a mask of three axes",
    ),
    "CompVis/taming-transformers": Module(
        repository="CompVis/taming-transformers",
        commit="3ba01b241669f5ade541ce990f7650a3b8f65318",
        files={"taming/modules/transformer/mingpt.py": ("CausalSelfAttention",)},
        names=_GPT,
        make="CausalSelfAttention(config)",
        given="style='causal'",
        mask="causal",
        notes="images as tokens; returns keys and values",
    ),
    "Janspiry/Image-Super-Resolution-via-Iterative-Refinement": Module(
        repository="Janspiry/Image-Super-Resolution-via-Iterative-Refinement",
        commit="01d27a7cbfa8502be1d8dbd4ee02fcbd5e44389d",
        files={"model/sr3_modules/unet.py": ("SelfAttention",)},
        make="SelfAttention(20, norm_groups=4)",
        adapter=_IMAGES,
        given="style='both', d_model=20",
        mask="bidirectional",
        notes="diffusion; images; norms its input and adds it; one head",
    ),
    "crowsonkb/k-diffusion": Module(
        repository="crowsonkb/k-diffusion",
        commit="4601bf085320592473f681a62808ed873d17fad5",
        files={"k_diffusion/layers.py": ("ConditionedModule", "SelfAttention2d")},
        names="""
class Plain(nn.GroupNorm):
    def forward(self, x, cond):
        return super().forward(x)
""",
        make="SelfAttention2d(20, 5, lambda width: Plain(4, width))",
        adapter="x = x.transpose(1, 2).unsqueeze(-1)\n"
        "return layer(x, {}).squeeze(-1).transpose(1, 2)",
        given="style='both', d_model=20",
        mask="bidirectional",
        notes="diffusion; images; norms its input and adds it; ends with zeros",
    ),
    "ermongroup/ddim": Module(
        repository="ermongroup/ddim",
        commit="e8df66cf02e457719930748b5c26e37e3126dfdd",
        files={"models/diffusion.py": ("Normalize", "AttnBlock")},
        make="AttnBlock(64)",
        adapter=_IMAGES,
        given="style='both', d_model=64",
        d_model=64,
        mask="bidirectional",
        notes="diffusion; images; norms its input and adds it; one head",
    ),
    "burchim/EfficientConformer": Module(
        repository="burchim/EfficientConformer",
        commit="612ef0b39c5df842b0bbbfe16943f271f1369e0a",
        files={
            "models/layers.py": ("Linear",),
            "models/attentions.py": ("MultiHeadAttention",),
        },
        make="MultiHeadAttention(20, 5)",
        given="mask_means='ignore'",
        mask="argument",
        notes="speech; adds the mask times -1e9",
    ),
    "burchim/EfficientConformer:RelPosMultiHeadSelfAttention": Module(
        repository="burchim/EfficientConformer",
        commit="612ef0b39c5df842b0bbbfe16943f271f1369e0a",
        files={
            "models/layers.py": ("Linear",),
            "models/attentions.py": (
                *("MultiHeadAttention", "RelativeSinusoidalPositionalEncoding"),
                "RelPosMultiHeadSelfAttention",
            ),
        },
        make="RelPosMultiHeadSelfAttention(20, 5, False, 64)",
        given="mask_means='ignore'",
        mask="argument",
        notes="speech; relative positions as in Transformer-XL",
    ),
    "jw9730/tokengt": Module(
        repository="jw9730/tokengt",
        commit="bb767583c8036e018a7055263dc0458ed4c445b7",
        files={
            "large-scale-regression/tokengt/modules/multihead_attention.py": (
                "MultiheadAttention",
            )
        },
        names="""
def quant_noise(module, *others): return module
def FairseqDropout(p, module_name): return nn.Dropout(p)
utils = SimpleNamespace(softmax=lambda x, dim, onnx_trace: F.softmax(x, dim))
""",
        make="MultiheadAttention(20, 5, attention_dropout=0.1, self_attention=True)",
        adapter="x = x.transpose(0, 1)\n"
        "return layer(x, x, x, None, need_weights=False)[0].transpose(0, 1)",
        given="style='both'",
        mask="bidirectional",
        notes="graphs; (T, B, D); uses only the first of its three inputs",
    ),
    "kakaobrain/minDALL-E": Module(
        repository="kakaobrain/minDALL-E",
        commit="e5480076b9634e9dc097e1892157ed2cf15a2f86",
        files={"dalle/models/stage2/layers.py": ("MultiHeadSelfAttention",)},
        make="MultiHeadSelfAttention(64, 20, 5, 0.1, 0.1, True)",
        given="style='causal'",
        mask="causal",
        notes="images as tokens; heads and batch in one axis; a cache",
    ),
    "kentaroy47/vision-transformers-cifar10": Module(
        repository="kentaroy47/vision-transformers-cifar10",
        commit="5bb83d36018b314c3020558541015bb01bce15bc",
        files={"models/simplevit.py": ("Attention",)},
        names="from einops import rearrange",
        make="Attention(20, heads=5, dim_head=4)",
        given="style='both'",
        mask="bidirectional",
        needs=_EINOPS,
        notes="norms its input",
    ),
    "AlirezaKamyab/SimpleGPT": Module(
        repository="AlirezaKamyab/SimpleGPT",
        commit="738ddaef1dd9a1eb20f718f440dc9bd814e602a8",
        files={"models/attention.py": ("SelfAttention",)},
        make="SelfAttention(d_model=20, num_heads=5)",
        adapter="return layer(x, 'causal')",
        given="style='causal'",
        mask="causal",
        notes="around nn.MultiheadAttention; the mask may be a word; norms the sum",
    ),
    "JonasGeiping/cramming": Module(
        repository="JonasGeiping/cramming",
        commit="196c9912d8c5b06a05e9a58edd1521e3d38f7c0c",
        files={
            "cramming/architectures/attention.py": (
                *("TorchSoftmax", "LegacySeqFirstSelfAttention"),
                "SeqFirstSelfAttention",
            )
        },
        make="SeqFirstSelfAttention(20, SimpleNamespace("
        "num_attention_heads=5, qkv_bias=True, rotary_embedding=False, "
        "sequence_op='torch-softmax', seq_op_in_fp32=False, dropout_prob=0.1))",
        given="batch_first=False, mask_means='add'",
        mask="argument",
        notes="(T, B, D); each head's queries, keys and values side by side; "
        "no last projection",
    ),
    "gentaiscool/end2end-asr-pytorch": Module(
        repository="gentaiscool/end2end-asr-pytorch",
        commit="2f78c6bd15b4026c8ddecd428800fcaa4331f6ad",
        files={
            "models/common_layers.py": (
                *("ScaledDotProductAttention", "MultiHeadAttention"),
            )
        },
        make="MultiHeadAttention(5, 20, 4, 4)",
        given="mask_means='ignore'",
        mask="argument",
        notes="speech; adds its input and norms the sum",
    ),
    "hirofumi0810/neural_sp": Module(
        repository="hirofumi0810/neural_sp",
        commit="b91877c6d2a11f06026480ab422176274d88cbf2",
        files={
            "neural_sp/models/modules/multihead_attention.py": (
                "MultiheadAttentionMechanism",
            )
        },
        make="MultiheadAttentionMechanism(20, 20, 20, 20, 5, 0.1)",
        mask="argument",
        notes="speech; keys come first; heads in the last axis of the scores",
    ),
    "fishaudio/fish-speech": Module(
        repository="fishaudio/fish-speech",
        commit="3dd1f85c402ee6f0a17c2971d3b0dd8d881ca139",
        files={
            "fish_speech/models/dac/modded_dac.py": (
                *("precompute_freqs_cis", "apply_rotary_emb", "Attention"),
            )
        },
        names="""
def angles(length):
    return precompute_freqs_cis(length, 10, dtype=torch.float32)
""",
        make="Attention(SimpleNamespace(dim=40, n_head=4, n_local_heads=4, "
        "head_dim=10, attn_dropout_rate=0.1, pos_embed_type='rope'))",
        adapter="causal = torch.ones(2 * x.shape[1:2]).tril().bool()\n"
        "return layer(x, angles(x.shape[1]), causal)",
        d_model=40,
        given="style='causal'",
        mask="argument",
        notes="speech; rotary interleaved; a table and a mask have to be given",
    ),
    "cloneofsimo/minRF": Module(
        repository="cloneofsimo/minRF",
        commit="4fc10e0cc8ba976152c7936a1af9717209f03e18",
        files={"dit.py": ("Attention",)},
        names=_TURNS,
        make="Attention(40, 4)",
        adapter="return layer(x, turns(x.shape[1]))",
        d_model=40,
        given="style='both'",
        mask="bidirectional",
        notes="diffusion; rotary interleaved; norms over all heads of queries and keys",
    ),
    "EugenHotaj/pytorch-generative": Module(
        repository="EugenHotaj/pytorch-generative",
        commit="d1f0a5ce45195fed3e2787be86ad87c7c8229481",
        files={
            "pytorch_generative/nn/attention.py": (
                *("_get_causal_mask", "CausalAttention"),
            )
        },
        names="import functools",
        make="CausalAttention(20, n_heads=5)",
        adapter=_IMAGES,
        given="style='causal', d_model=20",
        mask="causal",
        notes="images; causal in the order of the pixels; one projection to keys and "
        "values",
    ),
    "huggingface/pytorch-openai-transformer-lm": Module(
        repository="huggingface/pytorch-openai-transformer-lm",
        commit="bfd8e0989c684b79b800a49f8d9b74e559298ec2",
        files={"model_pytorch.py": ("Conv1D", "Attention")},
        names="from torch.nn import Parameter\n" + _GPT,
        make="Attention(20, 64, config, scale=True)",
        given="style='causal'",
        mask="causal",
        notes="weights stand the other way and are named w and b; multiplies forbidden "
        "scores by 0 and adds -1e9",
    ),
    "JackHunt/transformer-experiments": Module(
        repository="JackHunt/transformer-experiments",
        commit="5f756c63614059d54581045867b5d849b8c0b923",
        files={
            "transformer/multi_head_attention.py": (
                *("scaled_dot_product", "MultiHeadAttention"),
            )
        },
        make="MultiHeadAttention(20, 5)",
        mask="argument",
        notes="attributes with underscores; the function is an attribute",
    ),
    "aqlaboratory/openfold": Module(
        repository="aqlaboratory/openfold",
        commit="ce0029e1199b65fd834fe822be50d936cfe57fd4",
        files={
            "openfold/utils/tensor_utils.py": (
                *("permute_final_dims", "flatten_final_dims"),
            ),
            "openfold/model/primitives.py": (
                *("glorot_uniform_init_", "gating_init_", "final_init_", "Linear"),
                *("softmax_no_cast", "_attention", "Attention"),
            ),
        },
        names="deepspeed_is_installed, DEFAULT_LMA_Q_CHUNK_SIZE = False, 1024\n"
        "DEFAULT_LMA_KV_CHUNK_SIZE, is_fp16_enabled = 4096, lambda: False",
        make="Attention(20, 20, 20, 4, 5)",
        adapter="return layer(x, x)",
        given="style='both'",
        mask="bidirectional",
        notes="proteins; gated; masks are in a list of biases",
    ),
    "ai-forever/ru-dalle": Module(
        repository="ai-forever/ru-dalle",
        commit="0255cec528ad936f54f79962db9b46429e80dad6",
        files={
            "rudalle/dalle/utils.py": (
                *("ensure_divisibility", "divide", "split_tensor_along_last_dim"),
            ),
            "rudalle/dalle/transformer.py": ("DalleSelfAttention",),
        },
        make="DalleSelfAttention(20, 5, 0.1, 0.1)",
        given="mask_means='ones'",
        mask="argument",
        notes="images as tokens; multiplies forbidden scores by 0 and subtracts 10000",
    ),
    "apple/ml-cvnets": Module(
        repository="apple/ml-cvnets",
        commit="77717569ab4a852614dae01f010b32b820cb33bb",
        files={
            "cvnets/layers/base_layer.py": ("BaseLayer",),
            "cvnets/layers/linear_layer.py": ("LinearLayer",),
            "cvnets/layers/multi_head_attention.py": ("MultiHeadAttention",),
        },
        names="from torch.nn import Dropout",
        make="MultiHeadAttention(20, 5, attn_dropout=0.1)",
        adapter="return layer(x)",
        given="style='both'",
        mask="bidirectional",
        notes="computes the softmax in single precision; masks of both kinds",
    ),
    "huggingface/diffusers": Module(
        repository="huggingface/diffusers",
        commit="58eb52c0803ea9af3abec60841c2a093bdf1f951",
        files={
            "src/diffusers/models/attention_processor.py": (
                *("AttnProcessor", "Attention"),
            )
        },
        names="""
import inspect, sys
maybe_allow_in_graph = lambda each: each
__package__ = "standin"
sys.modules["standin.normalization"] = SimpleNamespace(
    FP32LayerNorm=None, LpNorm=None, RMSNorm=None
)
""",
        make="Attention(20, heads=5, dim_head=4, processor=AttnProcessor())",
        adapter="return layer(x)",
        given="style='both'",
        mask="bidirectional",
        notes="diffusion; another object computes; attends to another sequence",
    ),
    "keonlee9420/Comprehensive-Transformer-TTS": Module(
        repository="keonlee9420/Comprehensive-Transformer-TTS",
        commit="dca252cae50a18464ce2410aa85a21c557c72d7a",
        files={
            "model/transformers/blocks.py": ("LinearNorm",),
            "model/transformers/transformer.py": (
                *("ScaledDotProductAttention", "MultiHeadAttention"),
            ),
        },
        make="MultiHeadAttention(5, 20, 4, 4)",
        given="mask_means='ignore'",
        mask="argument",
        notes="speech; projections inside other modules; a mask has to be given",
    ),
    "deepseek-ai/Janus": Module(
        repository="deepseek-ai/Janus",
        commit="1daa72fa409002d40931bd7b36a9280362469ead",
        files={"janus/models/siglip_vit.py": ("Attention",)},
        make="Attention(20, num_heads=5, qkv_bias=True, qk_norm=True, attn_drop=0.1)",
        given="style='both'",
        mask="bidirectional",
        notes="queries and keys normed; fused",
    ),
    "dhruvramani/Transformers-RL": Module(
        repository="dhruvramani/Transformers-RL",
        commit="85e64e075cbe62294b4e02194f7539b3eb80cd68",
        files={"layers.py": ("PositionalEmbedding", "MultiHeadAttentionXL")},
        names="""
def rest(x):
    places = PositionalEmbedding(20)(torch.arange(x.shape[0] - 1, -1, -1))
    u = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)).to(x)
    later = torch.ones(2 * x.shape[:1]).triu(1).bool()[..., None]
    return places.to(x), x[:0], u, u.flip(0), later
""",
        make="MultiHeadAttentionXL(20, 4, n_heads=5)",
        adapter="x = x.transpose(0, 1)\nreturn layer(x, *rest(x)).transpose(0, 1)",
        given="style='causal'",
        mask="argument",
        notes="reinforcement learning; Transformer-XL with a memory; (T, B, D)",
    ),
    "huggingface/picotron": Module(
        repository="huggingface/picotron",
        commit="59714b1bf25541dbeb6f5a721ed15f6d0768e786",
        files={"picotron/model.py": ("apply_rotary_pos_emb", "Attention")},
        names="""
os = SimpleNamespace(getenv=lambda name, otherwise: "0")
pgm = SimpleNamespace(process_group_manager=SimpleNamespace(tp_world_size=1))
def angles(length):
    turned = torch.outer(torch.arange(length), 500000.0 ** (-torch.arange(5) / 5))
    return turned.cos().repeat(1, 2), turned.sin().repeat(1, 2)
""",
        make="Attention(SimpleNamespace(hidden_size=40, num_attention_heads=4, "
        "num_key_value_heads=2), 0)",
        adapter="return layer(x, *angles(x.shape[1]))",
        d_model=40,
        given="style='causal'",
        mask="causal",
        notes="rotary half; grouped heads; takes a mask without using it",
    ),
    "facebookresearch/lingua": Module(
        repository="facebookresearch/lingua",
        commit="437d680e521873bb5971067148a69587790da853",
        files={
            "lingua/transformer.py": (
                *("precompute_freqs_cis", "reshape_for_broadcast"),
                *("apply_rotary_emb", "repeat_kv", "Attention"),
            )
        },
        make="Attention(40, 10, 4, 2, 1e4)",
        adapter="return layer(x, precompute_freqs_cis(10, x.shape[1]), mask='causal')",
        d_model=40,
        given="style='causal'",
        mask="argument",
        notes="rotary interleaved, by matrices; grouped heads; the mask may be a word",
    ),
    "Alpha-VLLM/Lumina-T2X": Module(
        repository="Alpha-VLLM/Lumina-T2X",
        commit="1c606962f95899da711633ee3a333d21c753e2d9",
        files={"lumina_next_t2i_mini/models/nextdit.py": ("Attention",)},
        names=_TURNS,
        make="Attention(40, 4, 2, True, 0)",
        adapter="ones = torch.ones(x.shape[:2])\n"
        "return layer(x, ones, turns(x.shape[1])[None], None, None)",
        d_model=40,
        given="style='both'",
        mask="bidirectional",
        notes="diffusion; rotary interleaved; grouped heads; norms over all heads; "
        "a mask of keys has to be given",
    ),
    "AILab-CVC/VideoCrafter": Module(
        repository="AILab-CVC/VideoCrafter",
        commit="11bcd76fc62fb98b9715b994afe45b4fa081120c",
        files={"lvdm/modules/attention.py": ("CrossAttention",)},
        names="""
from einops import rearrange, repeat
from torch import einsum
XFORMERS_IS_AVAILBLE = False
def exists(each): return each is not None
def default(each, other): return other if each is None else each
""",
        make="CrossAttention(20, heads=5, dim_head=4)",
        mask="argument",
        needs=_EINOPS,
        notes="diffusion; attends to another sequence; a mask of three axes",
    ),
    "KellerJordan/modded-nanogpt": Module(
        repository="KellerJordan/modded-nanogpt",
        commit="f411b3d346aa52d3504324ca93c230fd84c6c07f",
        files={
            "records/track_1_short/2024-10-14_ModernArch/train_gpt2.py": (
                *("Rotary", "apply_rotary_emb", "CausalSelfAttention"),
            )
        },
        make="CausalSelfAttention(SimpleNamespace(n_embd=40, n_head=4))",
        d_model=40,
        given="style='causal'",
        mask="causal",
        notes="rotary half, backwards, from angles in half precision; queries and keys "
        "normed",
    ),
    "alibaba-damo-academy/FunASR": Module(
        repository="alibaba-damo-academy/FunASR",
        commit="dfcc5d47587d3e793cbfec2e9509c0e9a9e1732c",
        files={"funasr/models/sanm/attention.py": ("MultiHeadedAttention",)},
        make="MultiHeadedAttention(5, 20, 0.1)",
        mask="argument",
        notes="speech; a mask of three axes has to be given; empty rows become zeros",
    ),
    "GlaIZier/transformer-implementation": Module(
        repository="GlaIZier/transformer-implementation",
        commit="80598a9b56508c0647e8598f0e4b102eeee5fa38",
        files={
            "transformer/mask.py": ("reshape_mask",),
            "transformer/attention.py": ("self_attention", "MHSA"),
        },
        make="MHSA(20, 5)",
        mask="argument",
        notes="names of one letter; masks of four axes or of keys alone",
    ),
    "Justin900429/vision-transformer": Module(
        repository="Justin900429/vision-transformer",
        commit="4874948435ac9c33def58e539ad5a6c5411ced07",
        files={"layers/attention.py": ("Attention",)},
        names="import einops",
        make="Attention(20, 5, attn_drop=0.1)",
        given="style='both'",
        mask="bidirectional",
        needs=_EINOPS,
    ),
    "BjarniHaukur/PyGPT": Module(
        repository="BjarniHaukur/PyGPT",
        commit="dd77b7edbde2a313ca6964962e6778caf6eefda2",
        files={"modules/attention.py": ("PyMultiheadAttention",)},
        make="PyMultiheadAttention(20, 5, 0.1)",
        given="style='causal'",
        mask="causal",
        notes="three sequences, always causal",
    ),
    "Jackksonns/pytorch-deep-learning-examples": Module(
        repository="Jackksonns/pytorch-deep-learning-examples",
        commit="fc668d97a1f4cb9238f263d11cb483ec23e1af48",
        files={"transformer/attention.py": ("MultiHeadAttention",)},
        make="MultiHeadAttention(20, 20, 20, 20, 5, 0.1)",
        given="style='both'",
        mask="bidirectional",
        notes="around nn.MultiheadAttention; takes lengths, not a mask",
    ),
    "acforvs/transformer": Module(
        repository="acforvs/transformer",
        commit="436ba3dd91426951026df8066296ba73dd54c8ab",
        files={
            "transformer/model/helpers.py": ("get_deep_clones",),
            "transformer/model/attention.py": ("MultiHeadedAttention",),
        },
        make="MultiHeadedAttention(20, 5)",
        mask="argument",
        notes="three projections in a list, and one beside it",
    ),
}
