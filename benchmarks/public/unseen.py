"""The unseen set: attention modules that were not looked at before their first run.

They were chosen by others, who did not know the checks. Each was read, and its outputs
and gradients equaled those of a new implementation with its weights. The first run, of
2026-11-27, is the one that counts; since then some answers have been looked into.
"""

from benchmarks.public.modules import Module

__all__ = ["MODULES"]

_EINOPS = ("arogozhnikov/einops",)
_REARRANGE = "from einops import rearrange\n"
_GRID = "return layer(x.mT.unsqueeze(-1)).squeeze(-1).mT"
"""How to call a layer of images (B, C, H, W) with features."""

MODULES: dict[str, Module] = {
    # Language models
    "iVishalr/GPT": Module(
        repository="iVishalr/GPT",
        commit="fd26dc66cad4046eecebef26c9ba05d2158d575f",
        files={"gpt/sublayers.py": ("SelfAttention",)},
        names="from math import sqrt",
        make="SelfAttention("
        "SimpleNamespace(embd_size=20, n_heads=5, attn_drop=0.1, resid_drop=0.1, "
        "block_size=64))",
        given="style='causal'",
        mask="causal",
        notes="separate projections, a buffer for the mask",
    ),
    "baichuan-inc/Baichuan-7B": Module(
        repository="baichuan-inc/Baichuan-7B",
        commit="6f3ef4633a90c2d8a3e0763d0dec1b8dc11588f5",
        files={
            "models/modeling_baichuan.py": (
                "RotaryEmbedding",
                "rotate_half",
                "apply_rotary_pos_emb",
                "Attention",
            )
        },
        names="xops = SimpleNamespace(LowerTriangularMask=lambda: True,\n"
        "    memory_efficient_attention=lambda q, k, v, attn_bias:\n"
        "    F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)),\n"
        "    is_causal=attn_bias).transpose(1, 2))",
        make="Attention("
        "SimpleNamespace(hidden_size=20, num_attention_heads=5, "
        "max_position_embeddings=64))",
        mask="argument",
        notes="fused, rotary half; additive mask (B, 1, T, T), softmax in float32; "
        "ignores its mask in training and is causal",
    ),
    "google-deepmind/recurrentgemma": Module(
        repository="google-deepmind/recurrentgemma",
        commit="2efa84dac0e68e63547a27a18fa943c98f1c312e",
        files={
            "recurrentgemma/torch/modules.py": (
                "_MIN_LOGITS_VALUE",
                "_MAX_WAVELENGTH",
                "_apply_rope",
                "_compute_causal_mask",
                "_compute_forward_pass_mask",
                "LocalAttentionBlock",
            )
        },
        names="import einops\nat = SimpleNamespace(typed=lambda function: function)",
        make="LocalAttentionBlock(40, 5, 3)",
        adapter="positions = torch.arange(x.shape[1]).expand(len(x), -1)\n"
        "return layer(x, positions, return_cache=False)[0]",
        given="style='causal'",
        mask="causal",
        needs=_EINOPS,
        notes="one head of keys, window of 3 before each token, rotary half in part, "
        "softmax in float32",
        d_model=40,
    ),
    "allenai/OLMo": Module(
        repository="allenai/OLMo",
        commit="59a53e3f68e546330ca5a99ec626e58f9ab96494",
        files={
            "olmo/model.py": (
                "BufferCache",
                "_non_meta_init_device",
                "Dropout",
                "LayerNormBase",
                "RMSLayerNorm",
                "RotaryEmbedding",
                "Activation",
                "SwiGLU",
                "LayerNorm",
                "OLMoBlock",
                "OLMoSequentialBlock",
            )
        },
        names="from abc import abstractmethod\neinsum = torch.einsum\n"
        "LayerNormType = SimpleNamespace(default=0, low_precision=1, rms=2)\n"
        "ActivationType = SimpleNamespace(gelu=0, relu=1, swiglu=2)",
        make="OLMoSequentialBlock(0, "
        "SimpleNamespace(d_model=24, n_heads=6, effective_n_kv_heads=2, "
        "max_sequence_length=64, mlp_hidden_size=48, init_device='cpu', "
        "layer_norm_type=2, layer_norm_eps=1e-5, layer_norm_with_affine=True, "
        "attention_layer_norm=True, attention_layer_norm_with_affine=True, "
        "bias_for_layer_norm=False, include_bias=False, residual_dropout=0.1, "
        "attention_dropout=0.1, clip_qkv=None, activation_type=2, rope=True, "
        "rope_theta=10000, rope_full_precision=True, flash_attention=False), "
        "BufferCache())",
        adapter="q, k, v = layer.att_proj(layer.attn_norm(x)).split(layer.fused_dims, "
        "dim=-1)\nreturn layer.attention(q, k, v)[0]",
        given="style='causal'",
        mask="causal",
        notes="a method of a block; norm before, fused, grouped heads, RMS norms of "
        "queries and keys over all heads, rotary half in float32",
        d_model=24,
    ),
    "zphang/minimal-gpt-neox-20b": Module(
        repository="zphang/minimal-gpt-neox-20b",
        commit="1d485409c0c108d1c03831cb2498040a769e8460",
        files={
            "minimal20b/rotary.py": (
                "RotaryEmbedding",
                "rotate_half",
                "apply_rotary_pos_emb",
            ),
            "minimal20b/model.py": ("attention_mask_func", "SelfAttention"),
        },
        names="rotary = SimpleNamespace("
        "RotaryEmbedding=lambda *a, **k: RotaryEmbedding(*a, **k), "
        "apply_rotary_pos_emb=lambda *a, **k: apply_rotary_pos_emb(*a, **k))",
        make="SelfAttention(SimpleNamespace(hidden_size=40, num_attention_heads=5, "
        "rotary_pct=0.5, rotary_emb_base=10000))",
        given="batch_first=False",
        mask="argument",
        notes="sequence first, fused for each head, rotary half in part; a mask is "
        "required, True attends; returns a cache",
        d_model=40,
    ),
    "OpenLMLab/MOSS": Module(
        repository="OpenLMLab/MOSS",
        commit="c810e0b428bb209522dcde12f58daa318cf83027",
        files={
            "models/modeling_moss.py": (
                "create_sinusoidal_positions",
                "rotate_every_two",
                "apply_rotary_pos_emb",
                "MossAttention",
            )
        },
        make="MossAttention(SimpleNamespace(hidden_size=24, num_attention_heads=4, "
        "rotary_dim=4, max_position_embeddings=64, attn_pdrop=0.1, resid_pdrop=0.1))",
        adapter="return layer(x, position_ids=torch.arange(x.shape[1])[None])[0]",
        given="style='causal'",
        mask="causal",
        notes="fused as query, value, key in four blocks; rotary interleaved in part, "
        "places are required, softmax in float32",
        d_model=24,
    ),
    "OpenBMB/VoxCPM": Module(
        repository="OpenBMB/VoxCPM",
        commit="616d3d3e630a9c96c2853250eef91b0f39dcd5fa",
        files={
            "src/voxcpm/modules/minicpm4/model.py": (
                "rotate_half",
                "apply_rotary_pos_emb",
                "MiniCPMLongRoPE",
                "MiniCPMAttention",
            )
        },
        names="config = SimpleNamespace(hidden_size=24, num_attention_heads=6, "
        "num_key_value_heads=2, kv_channels=None, max_position_embeddings=64, "
        "rope_theta=10000.0, rope_scaling=SimpleNamespace(short_factor=[1.0, 1.2], "
        "long_factor=[1.0, 1.5], original_max_position_embeddings=32))",
        make="MiniCPMAttention(config, 0)",
        adapter="places = MiniCPMLongRoPE(config)(torch.arange(x.shape[1]))\n"
        "return layer(x, places, True)[0]",
        given="style='causal'",
        mask="causal",
        notes="speech; grouped heads, rotary half of a long context with a scale of "
        "its own; returns a cache",
        d_model=24,
    ),
    "shreydan/VisionGPT2": Module(
        repository="shreydan/VisionGPT2",
        commit="4c504889709dd8c82316460af699c2aa5e39e2c3",
        files={"model.py": ("GPT2Attention",)},
        make="GPT2Attention(SimpleNamespace(embed_dim=20, num_heads=5, seq_len=64, "
        "attention_dropout=0.1, residual_dropout=0.1))",
        given="style='causal'",
        mask="causal",
        notes="captions of images; GPT-2's, fused",
    ),
    "tanishqkumar/beyond-nanogpt": Module(
        repository="tanishqkumar/beyond-nanogpt",
        commit="cb1d7bc12e78ddb4e23d5565fd1fd147bc374d0d",
        files={"language-models/transformer.py": ("AttentionConfig", "Attention")},
        make="Attention(AttentionConfig(D=20, head_dim=4, device='cpu'))",
        given="style='causal'",
        mask="causal",
        notes="tutorial; separate projections, einsum",
    ),
    "wingedsheep/transformer": Module(
        repository="wingedsheep/transformer",
        commit="49ac0cbbf7f77f913ee5ea90ef0bfa33563d6814",
        files={"main.py": ("MaskedSelfAttention", "MaskedMultiHeadedSelfAttention")},
        make="MaskedMultiHeadedSelfAttention(20, 5)",
        given="mask_means='ones', num_heads=5",
        mask="argument",
        notes="tutorial; a list of heads; a mask of keys (B, T) is required",
    ),
    # Encoders, decoders and courses
    "dbiir/UER-py": Module(
        repository="dbiir/UER-py",
        commit="5743050cc41f0f21986c9f938db5ac1726052629",
        files={"uer/layers/multi_headed_attn.py": ("MultiHeadedAttention",)},
        make="MultiHeadedAttention(20, 5, 4, 0.1)",
        mask="argument",
        notes="key, value, query; a list of projections, softmax in float32; an "
        "additive mask (B, 1, T, T) is required",
    ),
    "lonePatient/albert_pytorch": Module(
        repository="lonePatient/albert_pytorch",
        commit="46de9ec6b54f4901f78cf8c19696a16ad4f04dbc",
        files={
            "model/modeling_albert.py": (
                "AlbertSelfAttention",
                "AlbertSelfOutput",
                "AlbertAttention",
            )
        },
        make="AlbertAttention("
        "SimpleNamespace(hidden_size=20, num_attention_heads=5, "
        "output_attentions=False, attention_probs_dropout_prob=0.1, "
        "hidden_dropout_prob=0.1))",
        mask="argument",
        notes="BERT's with projection of the output, additive mask; returns a pair in "
        "a pair",
    ),
    "JunnYu/RoFormer_pytorch": Module(
        repository="JunnYu/RoFormer_pytorch",
        commit="447aa8f6e6ddec28e0cffb06eeb12f2d33fb2724",
        files={
            "src/roformer/modeling_roformer.py": (
                "RoFormerSinusoidalPositionalEmbedding",
                "RoFormerSelfAttention",
            )
        },
        make="RoFormerSelfAttention("
        "SimpleNamespace(hidden_size=20, num_attention_heads=5, use_bias=True, "
        "attention_probs_dropout_prob=0.1, is_decoder=False, rotary_value=False))",
        adapter="sines = RoFormerSinusoidalPositionalEmbedding._init_weight("
        "nn.Parameter(torch.empty(x.shape[1], 4)))\n"
        "return layer(x, sinusoidal_pos=sines[None, None].chunk(2, dim=-1))[0]",
        given="style='both'",
        mask="argument",
        notes="BERT's, rotary interleaved, no projection of the output",
    ),
    "feather-ai/transformers-tutorial": Module(
        repository="feather-ai/transformers-tutorial",
        commit="64bfae21851333855862552e870a7ada3db99e7b",
        files={"layers/mha.py": ("MultiHeadAttention",)},
        names="import math as m",
        make="MultiHeadAttention(20, 5, 0.1)",
        given="num_heads=5",
        mask="argument",
        notes="tutorial; lists of a projection for each head; dropout of the output "
        "alone, returns weights",
    ),
    "krasserm/perceiver-io": Module(
        repository="krasserm/perceiver-io",
        commit="46c63250d93eb351bcd8ff8ba9113f5025941dd9",
        files={
            "perceiver/model/core/utils.py": ("ModuleOutput",),
            "perceiver/model/core/position.py": (
                "positions",
                "RotaryPositionEmbedding",
                "FrequencyPositionEncoding",
            ),
            "perceiver/model/core/modules.py": (
                "MultiHeadAttention",
                "SelfAttention",
            ),
        },
        names="from collections import OrderedDict\n"
        "from einops import rearrange, repeat",
        make="SelfAttention(5, 40, causal_attention=True, dropout=0.1)",
        adapter="places = FrequencyPositionEncoding(4)(positions(*x.shape[:2]))\n"
        "return layer(x, rot_pos_emb=RotaryPositionEmbedding(places, True))"
        ".last_hidden_state",
        given="style='causal'",
        mask="causal",
        needs=_EINOPS,
        notes="norm before, rotary interleaved in part; returns a dictionary",
        d_model=40,
    ),
    "warner-benjamin/commented-transformers": Module(
        repository="warner-benjamin/commented-transformers",
        commit="da3ec246b174670c13defa218e35a8e8001c1f6a",
        files={"layers/attention.py": ("BidirectionalAttention",)},
        make="BidirectionalAttention(20, 5)",
        given="mask_means='ignore'",
        mask="argument",
        notes="tutorial; fused, heads by one transpose; mask of keys (B, T), True "
        "ignores",
    ),
    "songlab-cal/tape": Module(
        repository="songlab-cal/tape",
        commit="6d345c2b2bbf52cd32cf179325c222afd92aec7e",
        files={"tape/models/modeling_bert.py": ("ProteinBertSelfAttention",)},
        make="ProteinBertSelfAttention(SimpleNamespace(hidden_size=20, "
        "num_attention_heads=5, attention_probs_dropout_prob=0.1, "
        "output_attentions=False))",
        mask="argument",
        notes="proteins; BERT's, no projection of the output, additive mask required",
    ),
    "Wan-Video/Wan2.1": Module(
        repository="Wan-Video/Wan2.1",
        commit="9737cba9c1c3c4d04b33fcad41c111989865d315",
        files={"wan/modules/t5.py": ("T5Attention",)},
        make="T5Attention(20, 30, 5)",
        mask="argument",
        notes="T5's: no scale, no biases, heads wider than the features; masks (B, T) "
        "or (B, T, T) of ones",
    ),
    # Images and points
    "Beckschen/TransUNet": Module(
        repository="Beckschen/TransUNet",
        commit="02ef0010b36eb8328b5e689eadaf613602edf9b8",
        files={"networks/vit_seg_modeling.py": ("Attention",)},
        names="from torch.nn import Dropout, Linear, Softmax",
        make="Attention("
        "SimpleNamespace(hidden_size=20, "
        "transformer={'num_heads': 5, 'attention_dropout_rate': 0.1}), True)",
        given="style='both'",
        mask="bidirectional",
        notes="medical images; separate projections, returns weights",
    ),
    "ChristophReich1996/Swin-Transformer-V2": Module(
        repository="ChristophReich1996/Swin-Transformer-V2",
        commit="7b74308bd560a5efabc0f9610d038dcf8e61226e",
        files={"swin_transformer_v2/model_parts.py": ("WindowMultiHeadAttention",)},
        make="WindowMultiHeadAttention(20, 8, 5, dropout_attention=0.1)",
        adapter="mask = x.new_zeros(1, 64, 64).index_fill("
        "2, torch.arange(x.shape[1], 64), -torch.inf)\n"
        "return layer(F.pad(x, (0, 0, 0, 64 - x.shape[1])).mT.unflatten(2, (8, 8)), "
        "mask).flatten(2).mT[:, : x.shape[1]]",
        given="style='both'",
        mask="argument",
        notes="takes windows (B, C, 8, 8); cosines with a learned temperature, a "
        "network for the bias of relative places; fused",
    ),
    "magicleap/SuperGluePretrainedNetwork": Module(
        repository="magicleap/SuperGluePretrainedNetwork",
        commit="ddcf11f42e7e0732a0c4607648f9448ea8d73590",
        files={"models/superglue.py": ("attention", "MultiHeadedAttention")},
        names="from copy import deepcopy",
        make="MultiHeadedAttention(5, 20)",
        adapter="return layer(x.mT, x.mT, x.mT).mT",
        given="style='both'",
        mask="bidirectional",
        notes="graph of keypoints (B, C, T); convolutions of 1 that begin equal, each "
        "head takes every fifth feature",
    ),
    "ViTAE-Transformer/ViTPose": Module(
        repository="ViTAE-Transformer/ViTPose",
        commit="c050ed29112da7704797cc1a65af0234b525010d",
        files={"mmpose/models/backbones/vit.py": ("Attention",)},
        make="Attention(20, 5, qkv_bias=True, attn_drop=0.1, attn_head_dim=6)",
        given="style='both'",
        mask="bidirectional",
        notes="poses; timm's, fused, heads wider than the features",
    ),
    "yformer/EfficientSAM": Module(
        repository="yformer/EfficientSAM",
        commit="d525f622e6f640acf5a0fc37c7ca1f243da5bde0",
        files={
            "efficient_sam/two_way_transformer.py": (
                "AttentionForTwoWayAttentionBlock",
            )
        },
        make="AttentionForTwoWayAttentionBlock(40, 5, downsample_rate=2)",
        given="style='both'",
        mask="bidirectional",
        notes="queries, keys and values; heads narrower than the features",
        d_model=40,
    ),
    "XPixelGroup/HAT": Module(
        repository="XPixelGroup/HAT",
        commit="1638a9a822581657811867bf670717f8371fc3e5",
        files={"hat/archs/hat_arch.py": ("WindowAttention",)},
        names="trunc_normal_ = nn.init.trunc_normal_\n"
        "row, column = torch.arange(64) // 8, torch.arange(64) % 8\n"
        "places = 15 * (row[:, None] - row + 7) + column[:, None] - column + 7",
        make="WindowAttention(20, (8, 8), 5, attn_drop=0.1)",
        adapter="mask = x.new_zeros(1, 64, 64).index_fill("
        "2, torch.arange(x.shape[1], 64), -torch.inf)\n"
        "return layer(F.pad(x, (0, 0, 0, 64 - x.shape[1])), places, mask)"
        "[:, : x.shape[1]]",
        given="style='both'",
        mask="argument",
        notes="super-resolution; takes windows of 64 tokens and their relative places, "
        "with a learned bias; fused",
    ),
    "qinzheng93/GeoTransformer": Module(
        repository="qinzheng93/GeoTransformer",
        commit="e7a135af4c318ff3b8d7f6c963df094d7e4ea540",
        files={
            "geotransformer/modules/layers/factory.py": ("build_dropout_layer",),
            "geotransformer/modules/transformer/vanilla_transformer.py": (
                "MultiHeadAttention",
                "AttentionLayer",
            ),
        },
        names=_REARRANGE,
        make="AttentionLayer(20, 5, dropout=0.1)",
        adapter="return layer(x, x)[0]",
        given="style='both'",
        mask="bidirectional",
        needs=_EINOPS,
        notes="points; states and those to attend to, residual inside and norm after",
    ),
    # Diffusion
    "abarankab/DDPM": Module(
        repository="abarankab/DDPM",
        commit="d159fbf2039088ea40b2fe7acffe7fb060aa0121",
        files={"ddpm/unet.py": ("get_norm", "AttentionBlock")},
        make="AttentionBlock(64)",
        adapter=_GRID,
        given="style='both', num_heads=1",
        mask="bidirectional",
        notes="images; one head, group norm before and residual inside, fused",
        d_model=64,
    ),
    "etched-ai/open-oasis": Module(
        repository="etched-ai/open-oasis",
        commit="f59deef2c019c212bd0c5a3a5b986a51f3701847",
        files={"attention.py": ("TemporalAxialAttention",)},
        names=_REARRANGE + "from rotary_embedding_torch import RotaryEmbedding",
        make="TemporalAxialAttention(20, 5, 4, RotaryEmbedding(4))",
        adapter="return layer(x[:, :, None, None])[:, :, 0, 0]",
        given="style='causal'",
        mask="causal",
        needs=("arogozhnikov/einops", "etched-ai/open-oasis"),
        notes="video (B, T, H, W, D), attends along time; fused, rotary interleaved",
    ),
    "yang-song/score_sde_pytorch": Module(
        repository="yang-song/score_sde_pytorch",
        commit="cb1f359f4aadf0ff9a5e122fe8fffc9451fd6e44",
        files={
            "models/layers.py": (
                "variance_scaling",
                "default_init",
                "_einsum",
                "contract_inner",
                "NIN",
            ),
            "models/layerspp.py": ("AttnBlockpp",),
        },
        names="import string",
        make="AttnBlockpp(20, skip_rescale=True)",
        adapter=_GRID,
        given="style='both', num_heads=1",
        mask="bidirectional",
        notes="images; one head, group norm before, residual inside, then a scale; "
        "weights of its own class, the last nearly zero at first",
    ),
    "Vchitect/Latte": Module(
        repository="Vchitect/Latte",
        commit="b27c24a17487e3c33ae4e92364521303d0f14845",
        files={"models/latte.py": ("Attention",)},
        make="Attention(20, 5, qkv_bias=True, attn_drop=0.1)",
        given="style='both'",
        mask="bidirectional",
        notes="video; timm's, fused",
    ),
    # Audio and speech
    "coqui-ai/TTS": Module(
        repository="coqui-ai/TTS",
        commit="dbf1a08a0d4e47fdad6172e433eeb34bc6b13b4e",
        files={
            "TTS/tts/layers/glow_tts/transformer.py": (
                "RelativePositionMultiHeadAttention",
            )
        },
        make="RelativePositionMultiHeadAttention("
        "20, 20, 5, rel_attn_window_size=4, dropout_p=0.1)",
        adapter="return layer(x.mT, x.mT).mT",
        given="style='both'",
        mask="argument",
        notes="(B, C, T), convolutions of 1; relative places within 4 added to keys "
        "and values",
    ),
    "enhuiz/vall-e": Module(
        repository="enhuiz/vall-e",
        commit="3476d393d2133fa9b50d5ad999ca13b95fc22060",
        files={"vall_e/vall_e/base.py": ("Attention",)},
        names=_REARRANGE + "from torch import einsum",
        make="Attention(20, 5, True)",
        adapter="return layer(x, x.new_ones(*x.shape[:2], 1))",
        given="style='causal'",
        mask="argument",
        needs=_EINOPS,
        notes="fused, heads last in scores; a mask of tokens (B, T, 1) is required",
    ),
    "shivammehta25/Matcha-TTS": Module(
        repository="shivammehta25/Matcha-TTS",
        commit="108906c603fad5055f2649b3fd71d2bbdf222eac",
        files={
            "matcha/models/components/text_encoder.py": (
                "RotaryPositionalEmbeddings",
                "MultiHeadAttention",
            )
        },
        names=_REARRANGE,
        make="MultiHeadAttention(40, 40, 5, p_dropout=0.1)",
        adapter="return layer(x.mT, x.mT).mT",
        given="style='both'",
        mask="argument",
        needs=_EINOPS,
        notes="takes (B, C, T), convolutions of 1, rotary half in part",
        d_model=40,
    ),
    "s3prl/s3prl": Module(
        repository="s3prl/s3prl",
        commit="ec8064b5889f81ca460fbe2c094ce576a6f120b7",
        files={
            "s3prl/upstream/wav2vec2/wav2vec2_model.py": ("ESPNETMultiHeadedAttention",)
        },
        make="ESPNETMultiHeadedAttention(20, 5, 0.1)",
        given="style='both', batch_first=False",
        mask="bidirectional",
        notes="sequence first; query, key, value; a mask of keys alone",
    ),
    "yl4579/StyleTTS2": Module(
        repository="yl4579/StyleTTS2",
        commit="5cedc71c333f8d8b8551ca59378bdcc7af4c9529",
        files={
            "Modules/diffusion/modules.py": (
                "RelativePositionBias",
                "AttentionBase",
                "Attention",
            )
        },
        names=_REARRANGE + "from math import log\nfrom torch import einsum\n"
        "def exists(x): return x is not None\n"
        "def default(x, y): return y if x is None else x\n"
        "def rearrange_many(each, *a, **k):\n"
        "    return [rearrange(t, *a, **k) for t in each]",
        make="Attention(20, head_features=4, num_heads=5, use_rel_pos=True, "
        "rel_pos_num_buckets=8, rel_pos_max_distance=16)",
        given="style='both'",
        mask="bidirectional",
        needs=_EINOPS,
        notes="norms of the features and of the context, a learned bias of relative "
        "places that is scaled, keys and values fused",
    ),
    "NVIDIA/NeMo": Module(
        repository="NVIDIA/NeMo",
        commit="8cfedd7203462cb251a914e700e5605444277561",
        files={
            "nemo/collections/asr/parts/submodules/multi_head_attention.py": (
                "INF_VAL",
                "PositionalEncoding",
                "RelPositionalEncoding",
                "MultiHeadAttention",
                "RelPositionMultiHeadAttention",
            )
        },
        names="from contextlib import nullcontext as avoid_float16_autocast_context\n"
        "def places_of(x):\n"
        "    places = RelPositionalEncoding(20, 0.0)\n"
        "    places.extend_pe(64, x.device, x.dtype)\n"
        "    return places(x)[1]",
        make="RelPositionMultiHeadAttention(5, 20, 0.1, None, None)",
        adapter="return layer(x, x, x, None, places_of(x))",
        given="style='both'",
        mask="argument",
        notes="Transformer-XL's relative places and two biases of queries, zero at "
        "first",
    ),
    # Time series, recommendation, reinforcement learning and questions on images
    "google-research/timesfm": Module(
        repository="google-research/timesfm",
        commit="3dae50b20d7a724981e8ea36cda75578f80dd2dc",
        files={
            "src/timesfm/torch/normalization.py": ("RMSNorm",),
            "src/timesfm/torch/transformer.py": (
                "make_attn_mask",
                "RotaryPositionalEmbedding",
                "_torch_dot_product_attention",
                "PerDimScale",
                "MultiHeadAttention",
            ),
        },
        make="MultiHeadAttention(5, 20)",
        given="style='causal'",
        mask="causal",
        notes="time series; rotary half, then RMS norms of queries and keys, zero at "
        "first; a learned scale for each feature of a head",
    ),
    "guoshnBJTU/ASTGNN": Module(
        repository="guoshnBJTU/ASTGNN",
        commit="9c2e19b98c4cedf1f35214d8789685b6381b3aad",
        files={
            "model/ASTGNN.py": (
                "clones",
                "subsequent_mask",
                "attention",
                "MultiHeadAttention",
            )
        },
        make="MultiHeadAttention(5, 20, 0.1)",
        adapter="mask, x = subsequent_mask(x.shape[1]), x.unsqueeze(1)\n"
        "return layer(x, x, x, mask).squeeze(1)",
        given="style='causal'",
        mask="argument",
        notes="traffic (B, N, T, D), attends along time; a list of projections",
    ),
    "asash/gSASRec-pytorch": Module(
        repository="asash/gSASRec-pytorch",
        commit="7e350285fb4721377c96e20ace7c74bf19bea57b",
        files={"transformer_decoder.py": ("MultiHeadAttention",)},
        make="MultiHeadAttention(20, 5, 0.1)",
        adapter="return layer(x, x, causality=True)[0]",
        given="style='causal'",
        mask="causal",
        notes="recommendation; no projection of the output, heads in the batch, tokens "
        "of zeros are ignored",
    ),
    "etaoxing/multigame-dt": Module(
        repository="etaoxing/multigame-dt",
        commit="2af29d3811bfa38c6cba03eecc81dc7d46578540",
        files={
            "multigame_dt_utils.py": ("variance_scaling_",),
            "multigame_dt.py": ("Attention", "CausalSelfAttention"),
        },
        make="CausalSelfAttention(20, 5, 1.0)",
        given="style='causal'",
        mask="causal",
        notes="reinforcement learning; fused, takes a mask and one of its own besides",
    ),
    "MILVLG/mcan-vqa": Module(
        repository="MILVLG/mcan-vqa",
        commit="6b165e9a88800e2a09ece4645a3c8261938897c6",
        files={"core/model/mca.py": ("MHAtt",)},
        make="MHAtt("
        "SimpleNamespace(HIDDEN_SIZE=20, MULTI_HEAD=5, HIDDEN_SIZE_HEAD=4, "
        "DROPOUT_R=0.1))",
        given="num_heads=5",
        mask="argument",
        notes="questions on images; value, key, query; a mask is required, True "
        "ignores",
    ),
    "sktime/pytorch-forecasting": Module(
        repository="sktime/pytorch-forecasting",
        commit="062aeb47b75d589dcce621c04572181e3584a301",
        files={
            "pytorch_forecasting/models/temporal_fusion_transformer/sub_modules.py": (
                "ScaledDotProductAttention",
                "InterpretableMultiHeadAttention",
            )
        },
        make="InterpretableMultiHeadAttention(5, 20, 0.1)",
        mask="argument",
        notes="time series; q, k, v; lists of heads of queries and keys, one of "
        "values, the mean of heads; True in a mask ignores",
    ),
    "reczoo/FuxiCTR": Module(
        repository="reczoo/FuxiCTR",
        commit="0245987fdc1d43c36164ea496a02324885a8557a",
        files={
            "fuxictr/pytorch/layers/attentions/dot_product_attention.py": (
                "ScaledDotProductAttention",
            ),
            "model_zoo/AutoInt/src/AutoInt.py": ("MultiHeadSelfAttention",),
        },
        make="MultiHeadSelfAttention(20, num_heads=5, dropout_rate=0.1)",
        given="style='both'",
        mask="bidirectional",
        notes="recommendation; no scale, no projection of the output, residual and "
        "ReLU after",
    ),
    "takuseno/d3rlpy": Module(
        repository="takuseno/d3rlpy",
        commit="38c34b6f99fde82875e2ad81d1ba1f7a7da34137",
        files={
            "d3rlpy/models/torch/transformers.py": (
                "create_attention_mask",
                "CausalSelfAttention",
            )
        },
        make="CausalSelfAttention(20, 5, 64, 0.1, 0.1)",
        adapter="return layer(x, x.new_zeros(x.shape[:2]))",
        given="style='causal'",
        mask="causal",
        notes="reinforcement learning; private names, a mask of keys (B, T) to ignore "
        "is required",
    ),
}
