"""Text for a model: corpora, tokenizers, and batches to predict the next token of."""

from tested_transformer.data.agreement import (
    Agreement,
    agreements,
    name_target,
    subject_target,
)
from tested_transformer.data.batches import batch_at, num_windows, split
from tested_transformer.data.bytepairs import BytePairTokenizer, bpe_tokenizer
from tested_transformer.data.corpora import CORPORA, Corpus, load_corpus
from tested_transformer.data.grammar import Grammar
from tested_transformer.data.storage import open_tokens, save_tokens
from tested_transformer.data.stories import (
    STORY_RULES,
    Stories,
    Word,
    story_entropy,
    write_stories,
)
from tested_transformer.data.tokenizers import (
    CharTokenizer,
    Tokenizer,
    tokenizer_from_dict,
)

__all__ = [
    "CORPORA",
    "STORY_RULES",
    "Agreement",
    "BytePairTokenizer",
    "CharTokenizer",
    "Corpus",
    "Grammar",
    "Stories",
    "Tokenizer",
    "Word",
    "agreements",
    "batch_at",
    "bpe_tokenizer",
    "load_corpus",
    "name_target",
    "num_windows",
    "open_tokens",
    "save_tokens",
    "split",
    "story_entropy",
    "subject_target",
    "tokenizer_from_dict",
    "write_stories",
]
