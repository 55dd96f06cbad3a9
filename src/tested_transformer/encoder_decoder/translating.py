"""Writing a target, token by token, with the likeliest token at each step."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from tested_transformer.encoder_decoder.model import EncoderDecoder

__all__ = ["translate"]


# --8<-- [start:translate]
@torch.no_grad()
def translate(
    model: EncoderDecoder,
    source: Int[Tensor, "B S"],
    *,
    source_mask: Bool[Tensor, "..."] | None = None,
    bos: int,
    eos: int,
    max_length: int | None = None,
) -> Int[Tensor, "B T"]:
    """Read the source once, and write the likeliest token again and again.

    Args:
        model: A model, best in evaluation mode.
        source: Token ids to read.
        source_mask: ``True`` where a token of the source may be attended to.
        bos: The id that every target begins with; it is not returned.
        eos: The id that ends a target; what comes after it is ``eos`` too.
        max_length: Write at most that many tokens; ``max_seq_len`` by default.

    Returns:
        What was written, as long as the longest of the batch.

    Raises:
        ValueError: If ``max_length`` is not between 1 and ``max_seq_len``.
    """
    longest = model.config.max_seq_len if max_length is None else max_length
    if not 1 <= longest <= model.config.max_seq_len:
        raise ValueError(
            f"max_length={max_length} must lie between 1 and "
            f"max_seq_len={model.config.max_seq_len}"
        )
    context = model.encode(source, mask=source_mask)
    cache = model.new_cache(len(source), max_length=longest)
    written = [source.new_full((len(source), 1), bos)]
    ended = torch.zeros_like(written[0], dtype=torch.bool)
    while len(written) <= longest and not ended.all():
        logits = model.decode(
            written[-1], context, context_mask=source_mask, cache=cache
        )
        written.append(logits.argmax(dim=-1).masked_fill(ended, eos))
        ended = ended | (written[-1] == eos)
    return torch.cat(written[1:], dim=1)


# --8<-- [end:translate]
