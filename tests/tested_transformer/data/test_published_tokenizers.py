"""Files like those of Llama 3 and Llama 2: what is encoded, decoded and put before."""

import json

import pytest
import transformers
from hypothesis import example, given, strategies as st
from tests.tested_transformer.data.published import LLAMA2, LLAMA3, TEXT
from tokenizers import Tokenizer, processors

from tested_transformer.data import (
    BytePairTokenizer,
    CharTokenizer,
    encode_prompt,
    tokenizer_file,
)
from tested_transformer.decoding import Detokenizer

FILES = {"llama 3": LLAMA3, "llama 2": LLAMA2}
TOKENIZERS = {name: BytePairTokenizer(content) for name, content in FILES.items()}
TEXTS = st.text([*TEXT, *"猫é<>|s/"])


@pytest.mark.parametrize("name", FILES)
def test_prompts_are_those_of_transformers(name, tmp_path):
    (tmp_path / "tokenizer.json").write_text(FILES[name])
    settings = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    theirs, ours = (
        transformers.AutoTokenizer.from_pretrained(tmp_path),
        TOKENIZERS[name],
    )
    for text in (TEXT, "", "猫", " a  b ", "<s> a</s>", "<|end_of_text|>"):
        assert encode_prompt(ours, text) == theirs(text)["input_ids"]
        alone = theirs(text, add_special_tokens=False)["input_ids"]
        assert ours.encode(text) == alone
        assert ours.decode(alone) == theirs.decode(alone)
    assert len(ours.opening) == 1
    assert ours.vocab_size == len(theirs)


@given(text=TEXTS, name=st.sampled_from([*FILES]))
@example("猫 😀 😀 ", "llama 2")
@example("<s>a</s> b", "llama 2")
def test_a_prompt_is_continued_token_by_token(text, name):
    tokenizer = TOKENIZERS[name]
    before, ids = encode_prompt(tokenizer, "The cat"), tokenizer.encode(text)
    detokenizer = Detokenizer(
        tokenizer.decode, before=before, byte_tokens=tokenizer.byte_tokens
    )
    shown = "".join(detokenizer.feed([token]) for token in ids) + detokenizer.finish()
    assert tokenizer.decode(before) + shown == tokenizer.decode([*before, *ids])
    if name == "llama 3":
        assert shown == text


@given(text=TEXTS)
def test_a_text_survives(text):
    for tokenizer in TOKENIZERS.values():
        plain = text.replace("<s>", "").replace("</s>", "").replace("▁", "")
        assert tokenizer.decode(tokenizer.encode(plain)) == plain


def test_truncation_and_padding_do_not_apply():
    tokenizer = Tokenizer.from_str(LLAMA3)
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=500)
    ours = BytePairTokenizer(tokenizer.to_str())
    assert ours.encode(TEXT) == TOKENIZERS["llama 3"].encode(TEXT)


def test_only_what_comes_before_a_text_is_its_opening():
    end, start, unknown = ("</s>", 2), ("<s>", 1), ("<unk>", 0)
    template = processors.TemplateProcessing
    for processor, opening in (
        (None, ()),
        (processors.ByteLevel(), ()),
        (processors.RobertaProcessing(end, start), (1,)),
        (template("<s> <unk> $A </s>", None, [start, unknown, end]), (1, 0)),
        (template("$A </s>", None, [end]), ()),
    ):
        content = json.loads(LLAMA2)
        content["post_processor"] = None
        tokenizer = Tokenizer.from_str(json.dumps(content))
        if processor is not None:
            tokenizer.post_processor = processor
        ours = BytePairTokenizer(tokenizer.to_str())
        assert ours.opening == opening
        prompt = encode_prompt(ours, "cat")
        assert tokenizer.encode("cat").ids[: len(prompt)] == prompt


def test_what_a_vocabulary_lacks_is_named():
    tokenizer = BytePairTokenizer(json.dumps(tokenizer_file(CharTokenizer("bc"))))
    assert tokenizer.encode("cb") == [1, 0]
    with pytest.raises(ValueError, match="vocabulary lacks a part of the text: "):
        tokenizer.encode("ab")
