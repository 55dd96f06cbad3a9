"""Text for a model: corpora, tokenizers, and batches for next-token prediction."""

from tested_transformer.data.batches import batch_at, num_windows, split
from tested_transformer.data.corpora import CORPORA, Corpus, load_corpus
from tested_transformer.data.stories import (
    FEW_NAMES,
    STORY_RULES,
    Agreement,
    Stories,
    Word,
    agreements,
    name_target,
    story_entropy,
    subject_target,
    write_stories,
)
from tested_transformer.data.story_words import (
    WordAgreement,
    is_sentence,
    token_places,
    verb_forms,
    word_agreements,
    word_name_target,
    word_subject_target,
)
from tested_transformer.data.tokenizer_files import tokenizer_file
from tested_transformer.data.tokenizers import (
    BytePairTokenizer,
    CharTokenizer,
    Tokenizer,
    WordTokenizer,
    bpe_tokenizer,
    encode_prompt,
    tokenizer_from_dict,
)
from tested_transformer.data.tokens import TokenizedCorpus, load_tokens

__all__ = [
    "CORPORA",
    "FEW_NAMES",
    "STORY_RULES",
    "Agreement",
    "BytePairTokenizer",
    "CharTokenizer",
    "Corpus",
    "Stories",
    "TokenizedCorpus",
    "Tokenizer",
    "Word",
    "WordAgreement",
    "WordTokenizer",
    "agreements",
    "batch_at",
    "bpe_tokenizer",
    "encode_prompt",
    "is_sentence",
    "load_corpus",
    "load_tokens",
    "name_target",
    "num_windows",
    "split",
    "story_entropy",
    "subject_target",
    "token_places",
    "tokenizer_file",
    "tokenizer_from_dict",
    "verb_forms",
    "word_agreements",
    "word_name_target",
    "word_subject_target",
    "write_stories",
]
