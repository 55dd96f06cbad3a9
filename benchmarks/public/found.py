"""Attention in public projects, right or wrong: what do the checks find?

They are of other projects than those of ``learn``, ``held_out`` and ``unseen``. Nobody
has shown them to be correct.
"""

from benchmarks.public.modules import Module

__all__ = ["MODULES"]

_EINOPS = ("arogozhnikov/einops",)
_REARRANGE = "from einops import rearrange"
_SDPA = "from torch.nn.functional import scaled_dot_product_attention"
_GPT = (
    "config = SimpleNamespace(n_embd=20, n_head=5, block_size=64, sequence_length=64, "
    "bias=True, dropout=0.1, attn_pdrop=0.1, resid_pdrop=0.1)"
)
_LLAMA = (
    "SimpleNamespace(dim=40, n_heads=4, n_kv_heads=2, dropout=0.1, max_seq_len=64, "
    "max_batch_size=8, device='cpu')"
)
_ROTARY = (
    *("precompute_freqs_cis", "reshape_for_broadcast"),
    *("apply_rotary_emb", "repeat_kv", "Attention"),
)
_NO_POSITIONS = """
def without(layer):
    for each in (layer.{}, layer.{}):
        nn.init.zeros_(each)
    return layer
"""
_TRANSFORMER = (
    "scaled_dot_product",
    "MultiHeadAttention",
)

MODULES: dict[str, Module] = {
    "649453932/Chinese-Text-Classification-Pytorch": Module(
        repository="649453932/Chinese-Text-Classification-Pytorch",
        commit="6cb26819af7b646275aff8a4693676f2849e67f6",
        files={
            "models/Transformer.py": (
                *("Scaled_Dot_Product_Attention", "Multi_Head_Attention"),
            )
        },
        make="Multi_Head_Attention(20, 5)",
        given="style='both'",
        mask="bidirectional",
        notes="adds its input and norms the sum",
    ),
    "ai4co/rl4co:causal": Module(
        repository="ai4co/rl4co",
        commit="7a1539678b6a81cc68b4069440aa5e98f6931f6c",
        files={"rl4co/models/nn/attention.py": ("MultiHeadAttention",)},
        names=f"{_REARRANGE}\n{_SDPA}",
        needs=_EINOPS,
        make="MultiHeadAttention(40, 5, causal=True)",
        given="style='causal'",
        d_model=40,
        mask="causal",
    ),
    "ai4co/rl4co:dropout": Module(
        repository="ai4co/rl4co",
        commit="7a1539678b6a81cc68b4069440aa5e98f6931f6c",
        files={"rl4co/models/nn/attention.py": ("MultiHeadAttention",)},
        names=f"{_REARRANGE}\n{_SDPA}",
        needs=_EINOPS,
        make="MultiHeadAttention(40, 5, attention_dropout=0.1)",
        given="style='both'",
        d_model=40,
        mask="argument",
    ),
    "Andras7/gpt2-pytorch": Module(
        repository="Andras7/gpt2-pytorch",
        commit="55ba29d13f0b2750ad8080841c42ecbfdda99eb4",
        files={"model.py": ("ScaledDotProductAttention", "MultiHeadAttention")},
        names="from torch.nn.init import kaiming_normal_",
        make="MultiHeadAttention(20, 5).float()",
        adapter="q, k, v = (layer.split_heads(getattr(layer, f'{name}_trans')(x)) "
        "for name in ('query', 'keys', 'value'))\n"
        "return layer.projection(layer.merge_heads(layer.attn(q, k, v)[0].view_as(q)))",
        given="style='causal'",
        mask="causal",
        notes="partly in half precision, which is switched off here; refuses one token",
    ),
    "AnswerDotAI/ModernBERT": Module(
        repository="AnswerDotAI/ModernBERT",
        commit="8c57a0f01c12c4953ead53d398a36f81a4ba9e38",
        files={
            "src/bert_layers/attention.py": (
                *("FlexBertAttentionBase", "FlexBertPaddedAttention"),
            )
        },
        names="""
IMPL_USE_FLASH2 = False
_attend = F.scaled_dot_product_attention
class F:
    def scaled_dot_product_attention(q, k, v, **rest):
        heads = _attend(q, k, v, **rest)
        return heads.transpose(1, 2).contiguous().transpose(1, 2)
""",
        make="FlexBertPaddedAttention(SimpleNamespace(hidden_size=20, "
        "num_attention_heads=5, attention_probs_dropout_prob=0.1, attn_qkv_bias=True, "
        "attn_out_bias=True, attn_out_dropout_prob=0.1, use_fa2=False, "
        "deterministic_fa2=False, use_sdpa_attn_mask=True, "
        "global_attn_every_n_layers=-1, sliding_window=-1))",
        adapter="return layer(x, torch.ones(x.shape[:2]))",
        given="style='both'",
        mask="argument",
        notes="heads laid out as on a GPU; on a CPU, a view fails if dropout is used",
    ),
    "BlinkDL/minGPT-tuned": Module(
        repository="BlinkDL/minGPT-tuned",
        commit="aa6287aac75477b8dd3b643cbd03db6ab1bc627c",
        files={"mingpt/model.py": ("CausalSelfAttention",)},
        names=_GPT,
        make="CausalSelfAttention(config)",
        given="style='causal'",
        mask="causal",
        notes="weights times a learned table; half of the features from a token before",
    ),
    "CyberZHG/torch-multi-head-attention": Module(
        repository="CyberZHG/torch-multi-head-attention",
        commit="66f6ae801a6d2aea8994ef00af06fdfc67ec2026",
        files={
            "torch_multi_head_attention/multi_head_attention.py": (
                *("ScaledDotProductAttention", "MultiHeadAttention"),
            )
        },
        make="MultiHeadAttention(20, 5, activation=None)",
        mask="argument",
        notes="ReLU after each projection by default, switched off here",
    ),
    "DLLXW/baby-llama2-chinese": Module(
        repository="DLLXW/baby-llama2-chinese",
        commit="98a20dbb35e686a62188f61f479809cb2d4f8d6e",
        files={"model.py": _ROTARY},
        make=f"Attention({_LLAMA})",
        adapter="return layer(x, *precompute_freqs_cis(10, x.shape[1]))",
        given="style='causal'",
        d_model=40,
        mask="causal",
    ),
    "FareedKhan-dev/create-million-parameter-llm-from-scratch": Module(
        repository="FareedKhan-dev/create-million-parameter-llm-from-scratch",
        commit="0aa4d42268c2eb85744db829bc191027a21fa6ef",
        files={
            "code.ipynb": (
                "get_rotary_matrix",
                *("RoPEMaskedAttentionHead", "RoPEMaskedMultiheadAttention"),
            )
        },
        names="MASTER_CONFIG = {}",
        make="RoPEMaskedMultiheadAttention("
        "{'d_model': 20, 'n_heads': 2, 'context_window': 64})",
        given="style='causal'",
        mask="causal",
        notes="every head as wide as the model",
    ),
    "FareedKhan-dev/train-llm-from-scratch": Module(
        repository="FareedKhan-dev/train-llm-from-scratch",
        commit="98f808c4ea9c4e83e16050358e80288642d0cd80",
        files={"src/models/attention.py": ("Head", "MultiHeadAttention")},
        make="MultiHeadAttention(5, 20, 64)",
        given="style='causal'",
        mask="causal",
    ),
    "FrancescoSaverioZuppichini/ViT": Module(
        repository="FrancescoSaverioZuppichini/ViT",
        commit="5c448827c34c3092848336cf6ae2df4fee7612dc",
        files={"README.ipynb": ("MultiHeadAttention",)},
        names=_REARRANGE,
        needs=_EINOPS,
        make="MultiHeadAttention(20, 5)",
        given="style='both'",
        mask="argument",
    ),
    "Huffon/pytorch-transformer-kor-eng": Module(
        repository="Huffon/pytorch-transformer-kor-eng",
        commit="93eea77b9562941813856f117aad7b2e4d3c01e8",
        files={
            "model/ops.py": ("init_weight",),
            "model/attention.py": ("SelfAttention", "MultiHeadAttention"),
        },
        make="MultiHeadAttention(SimpleNamespace("
        "hidden_dim=20, n_head=5, dropout=0.1, device='cpu'))",
        mask="argument",
        given="mask_means='ignore'",
    ),
    "KimMeen/Time-LLM": Module(
        repository="KimMeen/Time-LLM",
        commit="0045cde1ae0a7e7960b8f2273404eabac0f9c5da",
        files={
            "utils/masking.py": ("TriangularCausalMask",),
            "layers/SelfAttention_Family.py": ("FullAttention", "AttentionLayer"),
        },
        names="from math import sqrt",
        make="AttentionLayer(FullAttention(), 20, 5)",
        adapter="return layer(x, x, x, None)[0]",
        given="style='causal'",
        mask="causal",
    ),
    "MarcoMeter/episodic-transformer-memory-ppo": Module(
        repository="MarcoMeter/episodic-transformer-memory-ppo",
        commit="acc5cb2e0cdc87bd7b5ce857d270a72a66146e0b",
        files={"transformer.py": ("MultiHeadAttention",)},
        make="MultiHeadAttention(20, 5)",
        adapter="return layer(x, x, x, None)[0]",
        given="style='both'",
        mask="argument",
    ),
    "Nielspace/ViT-Pytorch": Module(
        repository="Nielspace/ViT-Pytorch",
        commit="fddaa741efedb1e05288eef65e6e9d21852ad39b",
        files={"source/attention.py": ("Attention",)},
        names="from torch.nn import Dropout, Linear",
        make="Attention(5, 20, 0.1)",
        given="style='both'",
        mask="bidirectional",
    ),
    **{
        f"ShivamRajSharma/Transformer-Architectures-From-Scratch:{file}": Module(
            repository="ShivamRajSharma/Transformer-Architectures-From-Scratch",
            commit="f7f24cb5146c09e6cf38a41e5e5ef721389803c1",
            files={f"{file}.py": (name,)},
            make=f"{name}(20, 5{rest})",
            given="d_model=20, num_heads=5",
            mask="argument",
            notes="one projection that all heads share",
        )
        for file, name, rest in (
            ("TRANSFORMERS", "Attention", ""),
            ("BERT", "SelfAttention", ""),
            ("GPT_1", "SelfAttention", ""),
            ("VisionImageTransformer", "SelfAttention", ", 0.1"),
        )
    },
    "ShivamRajSharma/Transformer-Architectures-From-Scratch:GPT_2": Module(
        repository="ShivamRajSharma/Transformer-Architectures-From-Scratch",
        commit="f7f24cb5146c09e6cf38a41e5e5ef721389803c1",
        files={"GPT_2.py": ("SelfAttention",)},
        make="SelfAttention(20, 5)",
        adapter="keep = torch.ones(x.shape[1], x.shape[1]).tril()\n"
        "return layer(x, keep, None)[0]",
        given="style='causal'",
        mask="argument",
    ),
    "The-AI-Summer/self-attention-cv": Module(
        repository="The-AI-Summer/self-attention-cv",
        commit="5246e550ecb674f60df76a6c1011fde30ded7f44",
        files={
            "self_attention_cv/transformer_vanilla/mhsa.py": (
                *("compute_mhsa", "MultiHeadSelfAttention"),
            )
        },
        names=_REARRANGE,
        needs=_EINOPS,
        make="MultiHeadSelfAttention(20, 5)",
        mask="argument",
        given="mask_means='ignore'",
    ),
    "vwxyzjn/cleanrl": Module(
        repository="vwxyzjn/cleanrl",
        commit="fe8d8a03c41a7ef5b523e2e354bd01c363e786bb",
        files={"cleanrl/ppo_trxl/ppo_trxl.py": ("MultiHeadAttention",)},
        make="MultiHeadAttention(20, 5)",
        adapter="return layer(x, x, x, None)[0]",
        given="style='both', d_model=20, num_heads=5",
        mask="argument",
        notes="one projection that all heads share",
    ),
    "Whiax/BERT-Transformer-Pytorch": Module(
        repository="Whiax/BERT-Transformer-Pytorch",
        commit="3a06ed2f9c15d2d1acdf2df14c95b85f31c72345",
        files={"train.py": ("attention", "MultiHeadAttention")},
        make="MultiHeadAttention(5, 20)",
        mask="argument",
        notes="fills with -1000",
    ),
    "ajhalthor/Transformer-Neural-Network:script": Module(
        repository="ajhalthor/Transformer-Neural-Network",
        commit="9ad642b12927714928105a78be24a1494fb7b6f6",
        files={"transformer.py": _TRANSFORMER},
        make="MultiHeadAttention(20, 5)",
        given="mask_means='add'",
        mask="argument",
        notes="a mask that is added, with a batch axis in front of three",
    ),
    "ajhalthor/Transformer-Neural-Network:encoder": Module(
        repository="ajhalthor/Transformer-Neural-Network",
        commit="9ad642b12927714928105a78be24a1494fb7b6f6",
        files={"Transformer_Encoder_EXPLAINED!.ipynb": _TRANSFORMER},
        names="print = lambda *words: None",
        make="MultiHeadAttention(20, 5)",
        mask="argument",
    ),
    "ajhalthor/Transformer-Neural-Network:decoder": Module(
        repository="ajhalthor/Transformer-Neural-Network",
        commit="9ad642b12927714928105a78be24a1494fb7b6f6",
        files={"Transformer_Decoder_EXPLAINED!.ipynb": _TRANSFORMER},
        names="print = lambda *words: None",
        make="MultiHeadAttention(20, 5)",
        mask="argument",
    ),
    "alan-cooney/transformer-from-scratch": Module(
        repository="alan-cooney/transformer-from-scratch",
        commit="da0429425e3715917c65bd8ef7219ffa0ae17f03",
        files={
            "transformer_from_scratch/components/attention.py": ("MultiHeadAttention",)
        },
        names="""
import einops
from einops import rearrange
def einsum(pattern, *tensors):
    return einops.einsum(*tensors, pattern)
""",
        needs=_EINOPS,
        make="MultiHeadAttention(SimpleNamespace(d_model=20, d_head=4, n_ctx=64))",
        given="style='causal', d_model=20, num_heads=5",
        mask="causal",
    ),
    "asyml/vision-transformer-pytorch": Module(
        repository="asyml/vision-transformer-pytorch",
        commit="2d8828948e7ab122f5db11fd67cb7b46c6bb6823",
        files={"src/model.py": ("LinearGeneral", "SelfAttention")},
        make="SelfAttention(20, 5)",
        given="style='both', d_model=20, num_heads=5",
        mask="bidirectional",
    ),
    "bentrevett/pytorch-seq2seq": Module(
        repository="bentrevett/pytorch-seq2seq",
        commit="b3cd54c72cd6e4e63f672d334c795b4fe744ef92",
        files={
            "legacy/6 - Attention is All You Need.ipynb": ("MultiHeadAttentionLayer",)
        },
        make="MultiHeadAttentionLayer(20, 5, 0.1, 'cpu')",
        mask="argument",
    ),
    "bkitano/llama-from-scratch": Module(
        repository="bkitano/llama-from-scratch",
        commit="ce3e52f4f154ce16345927c4f2c5082b5ecfea13",
        files={
            "llama.ipynb": (
                "get_rotary_matrix",
                *("RoPEMaskedAttentionHead", "RoPEMaskedMultiheadAttention"),
            )
        },
        names="MASTER_CONFIG = {}",
        make="RoPEMaskedMultiheadAttention("
        "{'d_model': 20, 'n_heads': 2, 'context_window': 64})",
        given="style='causal'",
        mask="causal",
        notes="every head as wide as the model",
    ),
    "brandokoch/attention-is-all-you-need-paper": Module(
        repository="brandokoch/attention-is-all-you-need-paper",
        commit="0ff17617e29e9d80219380665ae23772c81e9cd5",
        files={
            "src/architectures/multi_head_attention.py": (
                *("ScaledDotProductAttention", "MultiHeadAttention"),
            )
        },
        make="MultiHeadAttention(20, 5)",
        mask="argument",
        notes="the projections to queries, keys and values are in the block",
    ),
    "d2l-ai/d2l-en": Module(
        repository="d2l-ai/d2l-en",
        commit="23d7a5aecceee57d1292c56e90cce307f183bb0a",
        files={
            "d2l/torch.py": (
                *("masked_softmax", "DotProductAttention", "MultiHeadAttention"),
            )
        },
        names="""
class d2l:
    Module = nn.Module
    def DotProductAttention(p):
        return DotProductAttention(p)
def called(layer):
    layer(*[torch.zeros(1, 2, 20)] * 3, None)
    return layer
""",
        make="called(MultiHeadAttention(20, 5, 0.1))",
        adapter="return layer(x, x, x, None)",
        given="style='both'",
        mask="argument",
        notes="lengths in place of a mask; made whole by its first call",
    ),
    "datawhalechina/happy-llm:transformer": Module(
        repository="datawhalechina/happy-llm",
        commit="f115ef3788bf8726b6ff65e823e03a538f270e6b",
        files={"docs/chapter2/code/transformer.py": ("MultiHeadAttention",)},
        make="MultiHeadAttention(SimpleNamespace("
        "dim=20, n_embd=20, n_heads=5, dropout=0.1, max_seq_len=64), is_causal=True)",
        adapter="return layer(x, x, x)",
        given="style='causal'",
        mask="causal",
    ),
    "datawhalechina/happy-llm:llama": Module(
        repository="datawhalechina/happy-llm",
        commit="f115ef3788bf8726b6ff65e823e03a538f270e6b",
        files={"docs/chapter5/code/k_model.py": _ROTARY},
        make=f"Attention({_LLAMA})",
        adapter="return layer(x, *precompute_freqs_cis(10, x.shape[1]))",
        given="style='causal'",
        d_model=40,
        mask="causal",
    ),
    "datawhalechina/tiny-universe": Module(
        repository="datawhalechina/tiny-universe",
        commit="25c84e1addf6bac0db1ed80ffb457bb8a060acf2",
        files={
            "content/TinyTransformer/tiny_transformer.py": ("MultiHeadAttention",),
        },
        names=_GPT,
        make="MultiHeadAttention(config, is_causal=True)",
        adapter="return layer(x, x, x)",
        given="style='causal'",
        mask="causal",
    ),
    "devjwsong/transformer-translator-pytorch": Module(
        repository="devjwsong/transformer-translator-pytorch",
        commit="1e95679d541388d15751aba83b6c3816b6d2a647",
        files={"src/layers.py": ("MultiheadAttention",)},
        names="d_model, num_heads, d_k, drop_out_rate = 20, 5, 4, 0.1",
        make="MultiheadAttention()",
        mask="argument",
    ),
    "dodoseung/transformer-pytorch": Module(
        repository="dodoseung/transformer-pytorch",
        commit="8db187082be7883a364d71bc8e474fef5f5a8686",
        files={"transformer.py": ("MultiHeadAttention",)},
        make="MultiHeadAttention(20, 5)",
        mask="argument",
    ),
    "dome272/MaskGIT-pytorch": Module(
        repository="dome272/MaskGIT-pytorch",
        commit="cff485ad3a14b6ed5f3aa966e045ea2bc8c68ad8",
        files={"bidirectional_transformer.py": ("Attention", "MultiHeadAttention")},
        make="MultiHeadAttention(20, 5)",
        given="style='both'",
        mask="bidirectional",
        notes="the model calls PyTorch's in its place",
    ),
    "dreamgonfly/BERT-pytorch": Module(
        repository="dreamgonfly/BERT-pytorch",
        commit="645a3945101bb2f454566d5e49f96a20e9db33dc",
        files={"bert/train/model/transformer.py": ("MultiHeadAttention",)},
        make="MultiHeadAttention(5, 20, 0.1)",
        mask="argument",
        given="mask_means='ignore'",
    ),
    "epfml/llm-baselines:base": Module(
        repository="epfml/llm-baselines",
        commit="c8a5105d8125a49e5263daec9f7313471e72612e",
        files={"src/models/base.py": ("CausalSelfAttention",)},
        names=_GPT,
        make="CausalSelfAttention(config)",
        given="style='causal'",
        mask="causal",
    ),
    "evintunador/minGemma": Module(
        repository="evintunador/minGemma",
        commit="e2e4d258e0a1bd00c2b0b0afbae77002b90c0152",
        files={"minGemma.ipynb": ("apply_rotary_emb", "GemmaAttention")},
        names="GemmaConfig = None",
        make="GemmaAttention(SimpleNamespace(hidden_size=40, num_attention_heads=4, "
        "num_key_value_heads=2, head_dim=10, rope_theta=10000.0, "
        "max_position_embeddings=64, device='cpu'))",
        given="style='causal'",
        d_model=40,
        mask="causal",
    ),
    "evintunador/minLlama3": Module(
        repository="evintunador/minLlama3",
        commit="6e2f4903b51ab5112435b4ff25eb6156b4ab369a",
        files={"model.py": _ROTARY},
        names="params = SimpleNamespace(device='cpu')",
        make=f"Attention({_LLAMA})",
        adapter="keep = torch.full((x.shape[1],) * 2, float('-inf')).triu(1)\n"
        "return layer(x, precompute_freqs_cis(10, x.shape[1]), keep)",
        given="style='causal'",
        d_model=40,
        mask="argument",
    ),
    "explainingai-code/DiT-PyTorch": Module(
        repository="explainingai-code/DiT-PyTorch",
        commit="ed9c0bd29f2c2b2a64fad8c5b759b834f8c1c4c5",
        files={"model/attention.py": ("Attention",)},
        names=_REARRANGE,
        needs=_EINOPS,
        make="Attention({'num_heads': 5, 'hidden_size': 20, 'head_dim': 4})",
        given="style='both'",
        mask="bidirectional",
    ),
    "explainingai-code/VIT-Pytorch": Module(
        repository="explainingai-code/VIT-Pytorch",
        commit="95f32bfba3e233eb70d812f57200a474d9a1c6b9",
        files={"model/attention.py": ("Attention",)},
        names=_REARRANGE,
        needs=_EINOPS,
        make="Attention({'n_heads': 5, 'emb_dim': 20, 'head_dim': 4, 'dropout': 0.1})",
        given="style='both'",
        mask="bidirectional",
    ),
    "fawazsammani/chatbot-transformer": Module(
        repository="fawazsammani/chatbot-transformer",
        commit="fee7e71547f8b04f4b5061b6193673c4f53ef61f",
        files={"models.py": ("MultiHeadAttention",)},
        make="MultiHeadAttention(5, 20)",
        mask="argument",
    ),
    "fkodom/grouped-query-attention-pytorch": Module(
        repository="fkodom/grouped-query-attention-pytorch",
        commit="5267b1a6f39742e19a0e08ae6ab5854762cc0382",
        files={
            "grouped_query_attention_pytorch/attention.py": (
                *("scaled_dot_product_gqa", "MultiheadGQA"),
            )
        },
        names="from einops import einsum, rearrange",
        needs=_EINOPS,
        make="MultiheadGQA(32, 4, 2, layer_norm=False)",
        adapter="return layer(x, x, x, is_causal=True)[0]",
        given="style='causal'",
        d_model=32,
        mask="argument",
    ),
    "fkodom/simple-bert-pytorch": Module(
        repository="fkodom/simple-bert-pytorch",
        commit="81cc17243fb0b09dc28b85fa3607b3d4c2d66454",
        files={"simple_bert_pytorch/modules.py": ("SelfAttention",)},
        make="SelfAttention(20, 5)",
        mask="argument",
        notes="no last projection, which is in the next module",
    ),
    "foamliu/Speech-Transformer": Module(
        repository="foamliu/Speech-Transformer",
        commit="cf917db8c219e837e9392177a5d385c9f2b60b0d",
        files={
            "transformer/attention.py": (
                *("ScaledDotProductAttention", "MultiHeadAttention"),
            )
        },
        make="MultiHeadAttention(5, 20, 4, 4)",
        mask="argument",
        given="mask_means='ignore'",
        notes="adds its input and norms the sum",
    ),
    "gazelle93/Transformer-Various-Positional-Encoding": Module(
        repository="gazelle93/Transformer-Various-Positional-Encoding",
        commit="19fbcb6077baadfa99ca4536414f04275493ede0",
        files={"attentions.py": ("ScaledDotProductAttention", "MultiHeadAttention")},
        make="MultiHeadAttention(20, 5)",
        adapter="return layer(x, x, x)[0]",
        given="style='both'",
        mask="argument",
    ),
    "gpauloski/BERT-PyTorch": Module(
        repository="gpauloski/BERT-PyTorch",
        commit="eb22480c0488edc73e329804ff524cc320b144b2",
        files={"src/modeling.py": ("BertSelfAttention",)},
        make="BertSelfAttention(SimpleNamespace(hidden_size=20, "
        "num_attention_heads=5, attention_probs_dropout_prob=0.1))",
        mask="argument",
        given="mask_means='add'",
        notes="a mask that is added; no last projection",
    ),
    "guglielmocamporese/visual-transformer-pytorch": Module(
        repository="guglielmocamporese/visual-transformer-pytorch",
        commit="e439ef2ab3e01150ce583be307e9e4f4d413a475",
        files={
            "models/transformer.py": ("attention", "Head", "MultiHeadAttention"),
        },
        make="MultiHeadAttention(20, 5)",
        mask="argument",
    ),
    "guyjacoby/original-transformer-pytorch": Module(
        repository="guyjacoby/original-transformer-pytorch",
        commit="ec12a8c5232b2605ce2dc20da0ee26d12ffa8d71",
        files={"src/models/transformer.py": ("MultiHeadAttention",)},
        make="MultiHeadAttention(20, 5, 0.1)",
        mask="argument",
    ),
    "hemingkx/ChineseNMT": Module(
        repository="hemingkx/ChineseNMT",
        commit="1af1034fe4eb15ae5437ec9d82deb70baf59815b",
        files={"model.py": ("clones", "attention", "MultiHeadedAttention")},
        make="MultiHeadedAttention(5, 20)",
        mask="argument",
    ),
    "hkproj/pytorch-llama": Module(
        repository="hkproj/pytorch-llama",
        commit="067f8a37fe36ac8b52dca9cc6f2a2e8d6aa372d6",
        files={
            "model.py": (
                *("precompute_theta_pos_frequencies", "apply_rotary_embeddings"),
                *("repeat_kv", "SelfAttention"),
            )
        },
        names="ModelArgs = None",
        make=f"SelfAttention({_LLAMA})",
        adapter="t = precompute_theta_pos_frequencies(10, x.shape[1], 'cpu').split(1)\n"
        "return torch.cat([layer(x[:, [i]], i, t[i]) for i in range(len(t))], 1)",
        given="style='causal'",
        d_model=40,
        mask="causal",
        notes="one token a call, with a cache",
    ),
    "hskimim/pytorch-transformer-implementation:transformer": Module(
        repository="hskimim/pytorch-transformer-implementation",
        commit="8b5539c4d75870a6e640ea4ff7482be290184f64",
        files={
            "transformer/attention/mult_head_attn.py": ("MultiHeadAttention",),
            "transformer/attention/sdp.py": ("ScaledDotProductAttention",),
        },
        names="""
class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = MultiHeadAttention(20, 5)
        self.rest = ScaledDotProductAttention(20)

    def forward(self, x, mask=None):
        return self.rest(*self.heads(x), mask)
""",
        make="Both()",
        mask="argument",
    ),
    "jason9693/MusicTransformer-pytorch": Module(
        repository="jason9693/MusicTransformer-pytorch",
        commit="fe296678c99030adb073768112b54ee6cebef907",
        files={
            "utils.py": ("sequence_mask",),
            "custom/layers.py": ("RelativeGlobalAttention",),
        },
        names="class utils:\n    sequence_mask = lambda *each: sequence_mask(*each)",
        make="RelativeGlobalAttention(h=5, d=20, max_seq=64)",
        adapter="ban = torch.ones(x.shape[1], x.shape[1]).triu(1)\n"
        "return layer([x, x, x], mask=ban)[0]",
        given="style='causal'",
        mask="argument",
        notes="relative positions",
    ),
    "jaywonchung/BERT4Rec-VAE-Pytorch": Module(
        repository="jaywonchung/BERT4Rec-VAE-Pytorch",
        commit="f66f2534ebfd937778c7174b5f9f216efdebe5de",
        files={
            "models/bert_modules/attention/single.py": ("Attention",),
            "models/bert_modules/attention/multi_head.py": ("MultiHeadedAttention",),
        },
        make="MultiHeadedAttention(5, 20)",
        mask="argument",
    ),
    "josancamon19/self-attention-pytorch": Module(
        repository="josancamon19/self-attention-pytorch",
        commit="73129df4e33a88ca6b7f3ca552565c8ec1769d32",
        files={
            "02-transformers-from-scratch/_4_attention.py": (
                *("scaled_dot_product_attention", "AttentionHead"),
                "MultiHeadAttention",
            )
        },
        make="MultiHeadAttention(SimpleNamespace("
        "embedding_dimensions=20, num_attention_heads=5))",
        given="style='both'",
        mask="bidirectional",
    ),
    "jsbaan/transformer-from-scratch": Module(
        repository="jsbaan/transformer-from-scratch",
        commit="d4841b21ffe24fd0f7de8352dae615d5a4148797",
        files={"multi_head_attention.py": ("MultiHeadAttention",)},
        make="MultiHeadAttention(20, 5)",
        adapter="keep = torch.ones(x.shape[1], x.shape[1]).tril().bool()\n"
        "return layer(x, future_mask=keep)",
        given="style='causal'",
        mask="argument",
        notes="one mask of keys, another of the future",
    ),
    "keitakurita/Practical_NLP_in_PyTorch": Module(
        repository="keitakurita/Practical_NLP_in_PyTorch",
        commit="10b9143f479019aa12734f46c4aa9d75e6097595",
        files={
            "deep_dives/transformer_from_scratch.ipynb": (
                *("ScaledDotProductAttention", "AttentionHead", "MultiHeadAttention"),
            )
        },
        names="class TensorLoggingLevels:\n"
        "    attention = attention_head = multihead_attention_block = 0\n"
        "class Dim:\n    batch, seq, feature = range(3)\n"
        "log_size = lambda *each: None",
        make="MultiHeadAttention(20, 4, 5)",
        mask="argument",
        given="mask_means='ignore'",
    ),
    "kimiyoung/transformer-xl": Module(
        repository="kimiyoung/transformer-xl",
        commit="44781ed21dbaec88b280f74d9ae2877f52b492a5",
        files={"pytorch/mem_transformer.py": ("MultiHeadAttn",)},
        make="MultiHeadAttn(5, 20, 4, 0.1)",
        adapter="ban = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()[..., None]\n"
        "return layer(x.transpose(0, 1), attn_mask=ban).transpose(0, 1)",
        given="style='causal'",
        mask="argument",
        notes="sequence first; adds its input and norms the sum",
    ),
    "kyegomez/BitNet": Module(
        repository="kyegomez/BitNet",
        commit="b8d2708001324644eb968788fa50761b92e7c4e2",
        files={"bitnet/bit_attention.py": ("scaled_dot_product_gqa",)},
        names="""
from einops import einsum, rearrange
def attend(q, k, v, mask=None, causal=False):
    keep = q.new_ones(len(q), q.shape[2], k.shape[2]).bool()
    if causal:
        keep = keep.tril(k.shape[2] - q.shape[2])
    if mask is not None:
        keep = keep & mask.expand(*q.shape[:3], k.shape[2])[:, 0]
    heads = (each.transpose(1, 2) for each in (q, k, v))
    return scaled_dot_product_gqa(*heads, mask=keep)[0].transpose(1, 2)
""",
        needs=_EINOPS,
        make="attend",
        mask="argument",
        notes="a function of heads",
    ),
    "lyeoni/gpt-pytorch": Module(
        repository="lyeoni/gpt-pytorch",
        commit="c3ef84edaf5b4c34034e333228bd425da55d2483",
        files={"model.py": ("ScaledDotProductAttention", "MultiHeadAttention")},
        make="MultiHeadAttention(20, 5, 0.1)",
        mask="argument",
        given="mask_means='ignore'",
    ),
    "lyeoni/nlp-tutorial": Module(
        repository="lyeoni/nlp-tutorial",
        commit="8cc490adc6cc92d458548e0e73fbbf1db575f049",
        files={
            "models/TransformerEncoder.py": (
                *("ScaledDotProductAttention", "MultiHeadAttention"),
            )
        },
        make="MultiHeadAttention(20, 5)",
        mask="argument",
        given="mask_means='ignore'",
    ),
    "maxjcohen/transformer": Module(
        repository="maxjcohen/transformer",
        commit="41adca15333ddb444075191b4def06df3a4450a9",
        files={"tst/multiHeadAttention.py": ("MultiHeadAttention",)},
        make="MultiHeadAttention(20, 4, 4, 5)",
        adapter="return layer(x, x, x, 'subsequent')",
        given="style='causal'",
        mask="argument",
    ),
    "mx-mark/VideoTransformer-pytorch": Module(
        repository="mx-mark/VideoTransformer-pytorch",
        commit="194cae69722eb5efad031c59f4ff03bc60633fa8",
        files={"transformer.py": ("Attention",)},
        make="Attention(20, 5, attn_drop=0.1)",
        given="style='both'",
        mask="bidirectional",
    ),
    "openspeech-team/openspeech:MultiHeadAttention": Module(
        repository="openspeech-team/openspeech",
        commit="10b25890b64b722c50aa7579c2570ad5c69b2cf2",
        files={
            "openspeech/modules/wrapper.py": ("Linear",),
            "openspeech/modules/dot_product_attention.py": ("DotProductAttention",),
            "openspeech/modules/multi_head_attention.py": ("MultiHeadAttention",),
        },
        names="init = nn.init",
        make="MultiHeadAttention(20, 5)",
        mask="argument",
        given="mask_means='ignore'",
        notes="no last projection; fills with -10000",
    ),
    "owenliang/pytorch-transformer": Module(
        repository="owenliang/pytorch-transformer",
        commit="22eb49272edb9da52887a59e360a4f2ad22330c9",
        files={"multihead_attn.py": ("MultiHeadAttention",)},
        make="MultiHeadAttention(20, 4, 4, 5)",
        mask="argument",
        given="mask_means='ignore'",
        notes="no last projection, which is in the block",
    ),
    "phlippe/uvadlc_notebooks": Module(
        repository="phlippe/uvadlc_notebooks",
        commit="0da8037c7abc32f478ff6142acceb72dbcf088ee",
        files={
            "docs/tutorial_notebooks/tutorial6/Transformers_and_MHAttention.ipynb": (
                *("scaled_dot_product", "expand_mask", "MultiheadAttention"),
            )
        },
        make="MultiheadAttention(20, 20, 5)",
        mask="argument",
    ),
    "rezazad68/TMUnet": Module(
        repository="rezazad68/TMUnet",
        commit="13ec19fb78dfd6889754d49666140541ee7ee8b6",
        files={"model/transformer.py": ("MultiHeadAttention",)},
        names=_REARRANGE,
        needs=_EINOPS,
        make="MultiHeadAttention(20, 5)",
        given="style='both'",
        mask="argument",
    ),
    "rishikksh20/ViViT-pytorch": Module(
        repository="rishikksh20/ViViT-pytorch",
        commit="a9879c9c0de677d33573fb4eb6bf76a638614974",
        files={"module.py": ("Attention",)},
        names="from einops import rearrange\nfrom torch import einsum",
        needs=_EINOPS,
        make="Attention(20, 5, 4)",
        given="style='both'",
        mask="bidirectional",
    ),
    "soobinseo/Transformer-TTS": Module(
        repository="soobinseo/Transformer-TTS",
        commit="87bd9c9afdf98320b3168e73e2b7db14a7fc4b7a",
        files={"module.py": ("Linear", "MultiheadAttention", "Attention")},
        names="t = torch",
        make="Attention(20, 5)",
        mask="argument",
        given="mask_means='ignore'",
        notes="its input beside the heads before the last projection",
    ),
    "sooftware/attentions:MultiHeadAttention": Module(
        repository="sooftware/attentions",
        commit="b1dd65be8f12fbe19525bc4ae0dbbc14975778a7",
        files={
            "attentions.py": ("ScaledDotProductAttention", "MultiHeadAttention"),
        },
        make="MultiHeadAttention(20, 5)",
        mask="argument",
        given="mask_means='ignore'",
        notes="no last projection",
    ),
    "sooftware/attentions:RelativeMultiHeadAttention": Module(
        repository="sooftware/attentions",
        commit="b1dd65be8f12fbe19525bc4ae0dbbc14975778a7",
        files={"attentions.py": ("RelativeMultiHeadAttention",)},
        names=_NO_POSITIONS.format("u_bias", "v_bias"),
        make="without(RelativeMultiHeadAttention(20, 5))",
        adapter="return layer(x, x, x, torch.zeros_like(x))",
        given="style='both'",
        mask="argument",
        notes="relative positions, set to zero here",
    ),
    "sooftware/speech-transformer": Module(
        repository="sooftware/speech-transformer",
        commit="5fc78ee85cf07fdeacff58e78379db7211bb7d15",
        files={
            "speech_transformer/modules.py": ("Linear",),
            "speech_transformer/attention.py": (
                *("ScaledDotProductAttention", "MultiHeadAttention"),
            ),
        },
        names="init = nn.init",
        make="MultiHeadAttention(20, 5)",
        mask="argument",
        given="mask_means='ignore'",
        notes="no last projection",
    ),
    "speechbrain/speechbrain:RelPosMHAXL": Module(
        repository="speechbrain/speechbrain",
        commit="9c826ef3937bac885c8a6ca86c6889a30f256fb5",
        files={"speechbrain/nnet/attention.py": ("RelPosMHAXL",)},
        names=_NO_POSITIONS.format("pos_bias_u", "pos_bias_v"),
        make="without(RelPosMHAXL(20, 5))",
        adapter="p = torch.zeros(1, 2 * x.shape[1] - 1, 20)\n"
        "return layer(x, x, x, p, return_attn_weights=False)",
        given="style='both'",
        mask="argument",
        notes="relative positions, set to zero here",
    ),
    "topazape/ViT-Pytorch": Module(
        repository="topazape/ViT-Pytorch",
        commit="af4f2c6994b17df730ca60916dfb7ae2fa09ab7e",
        files={
            "vision_transformer/models/multihead_attention.py": (
                "MultiHeadSelfAttention",
            )
        },
        make="MultiHeadSelfAttention(20, 5, 0.1)",
        given="style='both'",
        mask="bidirectional",
    ),
    "tunz/transformer-pytorch": Module(
        repository="tunz/transformer-pytorch",
        commit="e7266679f0b32fd99135ea617213f986ceede056",
        files={"model/transformer.py": ("initialize_weight", "MultiHeadAttention")},
        make="MultiHeadAttention(20, 0.1, 5)",
        mask="argument",
        given="mask_means='ignore'",
    ),
    "whai362/PVT": Module(
        repository="whai362/PVT",
        commit="57e2dfaa5a46f9050d76f306a4fcd9a7c061f520",
        files={"classification/pvt.py": ("Attention",)},
        make="Attention(20, 5, attn_drop=0.1)",
        adapter="return layer(x, 1, x.shape[1])",
        given="style='both'",
        mask="bidirectional",
    ),
    "wilson1yan/VideoGPT": Module(
        repository="wilson1yan/VideoGPT",
        commit="733d2b1541e166d7f29df514c7d196c768011dd2",
        files={
            "videogpt/utils.py": ("view_range", "shift_dim"),
            "videogpt/attention.py": (
                *("scaled_dot_product_attention", "FullAttention"),
                "MultiHeadAttention",
            ),
        },
        make="MultiHeadAttention((8,), 20, 20, 5, 2, True, 'full', "
        "{'attn_dropout': 0.1})",
        adapter="n = 8 - x.shape[1]\n"
        "return layer(*[F.pad(x, (0, 0, 0, n))] * 3)[:, :8 - n]",
        given="style='causal'",
        mask="causal",
        notes="of one length, so shorter texts are padded at the end",
    ),
    "wouterkool/attention-learn-to-route": Module(
        repository="wouterkool/attention-learn-to-route",
        commit="c9abf41ac2f878a55b20dc7e829bc942bb999631",
        files={"nets/graph_encoder.py": ("MultiHeadAttention",)},
        make="MultiHeadAttention(5, 20, 20)",
        mask="argument",
        given="mask_means='ignore'",
        notes="projections of heads in one parameter",
    ),
    "xcmyz/FastSpeech": Module(
        repository="xcmyz/FastSpeech",
        commit="1e1a61b5015c951caa551b7fab4080339d697c7c",
        files={
            "transformer/Modules.py": ("ScaledDotProductAttention",),
            "transformer/SubLayers.py": ("MultiHeadAttention",),
        },
        make="MultiHeadAttention(5, 20, 4, 4)",
        mask="argument",
        given="mask_means='ignore'",
        notes="adds its input and norms the sum",
    ),
    "yitu-opensource/T2T-ViT": Module(
        repository="yitu-opensource/T2T-ViT",
        commit="0f63dc9558f4d192de926504dbddfa1b3f5db6ca",
        files={"models/transformer_block.py": ("Attention",)},
        make="Attention(20, 5, attn_drop=0.1)",
        given="style='both'",
        mask="bidirectional",
    ),
}
