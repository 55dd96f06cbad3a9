"""Mini GPT: tokens in, and at every position a guess at the token after it."""

from tested_transformer.gpt.config import POSITIONS, GPTConfig
from tested_transformer.gpt.model import GPT
from tested_transformer.gpt.sharing import with_fewer_keys

__all__ = ["GPT", "POSITIONS", "GPTConfig", "with_fewer_keys"]
