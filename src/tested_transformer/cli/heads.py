"""``tested-transformer heads``: score what every head of a model attends to."""

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tested_transformer import data, interpret
from tested_transformer.cli.display import printable, reminder
from tested_transformer.cli.flags import Call, check_at_least
from tested_transformer.cli.sources import Source, load_source, load_text
from tested_transformer.data.corpora import whole_file
from tested_transformer.gpt import GPT
from tested_transformer.inspection import numbers_of

__all__ = ["Heads"]

# How many weights to keep at a time: many windows of a small model, one of GPT-2.
_WEIGHTS = 2**25
# A seed for stories that train does not use by default.
_SEED = 1000
_GRAMMARS = {"grammar": {}, "stories": {"names": data.FEW_NAMES}}
MOST_SHOWN = 256  # tokens in a file of maps; the page that opens it takes no more
_LETTER = 2  # the first letter of a name that the two before it identify


@dataclass(frozen=True)
class Heads:
    """Score what each head of a model attends to.

    Examples:
      tested-transformer heads                      the latest run in runs/
      tested-transformer heads runs/play play.txt   on a text of yours
      tested-transformer heads gpt2 play.txt --num-tokens 2048
      tested-transformer heads --json               the same for programs
      tested-transformer heads gpt2 play.txt --out maps.json    also their maps

    A score is the attention weight, from 0 to 1, that a head puts where a head of some
    kind would look, averaged over all tokens with such a place:
      previous   the token before
      first      the first token of the window, where idle heads rest
      delimiter  earlier tokens without a letter or a digit
      same       earlier copies of the same token
      induction  what followed an earlier copy, in random tokens that are repeated
      subject    the word that a verb agrees with         (stories of the grammar only)
      name       the earlier name to copy, by letters the letter   (the same)
    The last row is the score of a head with uniform attention. A high score says where
    a head looks, not that the model needs it.

    The file of --out is JSON, and the live page of the book draws it. It holds the
    first tokens of the text, for each head its weights and scores, and how many bytes
    of cache the model needs for a token.

    Args:
        checkpoint: The model; the latest run in runs/ by default.
        text: A text; by default the one it was trained on, or new stories if it was
            trained on the grammar.
        num_tokens: How many tokens of the text to read.
        seq_len: Tokens in a window; by default as many as the model can read, but at
            most 1024.
        out: A file to write the heads' maps to, such as maps.json.
        show: How many tokens its maps have; a window at most, and 256.
    """

    checkpoint: str | None = None
    text: str | None = None
    _: KW_ONLY
    num_tokens: int = 16384
    seq_len: int | None = None
    out: str | None = None
    show: int = 48

    def run(self, call: Call) -> int:
        """Score the heads, and return the exit status."""
        check_at_least(1, num_tokens=self.num_tokens, show=self.show)
        if self.show > MOST_SHOWN:
            raise ValueError(f"show={self.show} must be at most {MOST_SHOWN}")
        if self.out is not None and not Path(self.out).parent.is_dir():
            raise ValueError(f"there is no folder {str(Path(self.out).parent)!r}")
        source = load_source(self.checkpoint, call.device)
        model, tokenizer = source.model, source.tokenizer
        seq_len = source.window_length(self.seq_len)
        name, tokens, stories = self._tokens(source)
        tokens = tokens[: self.num_tokens].to(call.device, torch.int64)
        opening = torch.tensor(source.opening, dtype=torch.int64, device=call.device)
        longest, least = model.config.max_seq_len, len(opening) + 2
        if longest < least:
            raise ValueError(
                f"max_seq_len={longest} of the model must be at least {least}: nothing "
                "can be repeated in less"
            )
        if len(tokens) < seq_len:
            raise ValueError(
                f"{len(tokens)} tokens do not fill a window of seq_len={seq_len}: pass "
                "a longer text, a larger num_tokens or a smaller seq_len"
            )
        windows = tokens[: len(tokens) // seq_len * seq_len].view(-1, seq_len)
        windows = _opened(windows, opening)
        targets = _targets(windows, tokenizer, stories)
        scores = _score(model, windows, targets)
        half = min((longest - len(opening)) // 2, tokenizer.vocab_size, 64)
        drawn = interpret.repeated_tokens(tokenizer.vocab_size, half, num_sequences=16)
        drawn = _opened(drawn.to(call.device), opening)
        induction = {"induction": interpret.induction_target(drawn)}
        scores |= _score(model, drawn, induction)
        targets |= induction
        even = {kind: interpret.uniform_score(targets[kind].cpu()) for kind in scores}
        if self.out is not None:
            maps = _maps(source, windows[:1, : self.show])
            content = {**maps, "text": name, "scores": _rounded(scores)}
            with whole_file(Path(self.out)) as file:
                file.write(json.dumps(content).encode() + b"\n")
        if call.as_json:
            facts = {
                "checkpoint": source.name,
                "text": name,
                "windows": len(windows),
                "seq_len": seq_len,
                "scores": scores,
                "even": even,
            }
            print(json.dumps(facts))
            return 0
        size = f"{len(windows)} windows of {seq_len} tokens"
        print(printable(f"{source.name}: {size} of {name}"))
        _print_table(scores, even)
        if self.out is not None:
            print(printable(f"{self.out}: the heads' maps, for the book's live page"))
        return 0

    def _tokens(self, source: Source) -> tuple[str, Tensor, data.Stories | None]:
        """Return the name of the text, its tokens, and its stories if known."""
        if self.text is not None:
            corpus = data.load_tokens(
                self.text, tokenizer=source.tokenizer, tell=reminder()
            )
        elif (name := (source.about.get("text") or {}).get("name")) in _GRAMMARS:
            # A token has at least one character, so this is usually enough text.
            count = self.num_tokens * (1 if name == "grammar" else 6)
            stories = data.write_stories(count, seed=_SEED, **_GRAMMARS[name])
            tokens = torch.tensor(source.tokenizer.encode(stories.text))
            return f"the grammar, seed {_SEED}", tokens, stories
        else:
            corpus = load_text(source.about, source.name)
        return corpus.origin, corpus.tokens, None


def _opened(windows: Tensor, opening: Tensor) -> Tensor:
    """Return windows that begin with the opening."""
    return torch.cat([opening.expand(len(windows), -1), windows], dim=1)


def _targets(
    windows: Tensor, tokenizer: data.Tokenizer, stories: data.Stories | None
) -> dict[str, Tensor]:
    """Return, for each kind of head, the keys that it would attend to."""
    targets = {
        "previous": interpret.previous_token_target(windows),
        "first": interpret.first_token_target(windows),
        "same": interpret.same_token_target(windows),
    }
    delimiters = [
        token
        for token in windows.unique().tolist()
        if not any(map(str.isalnum, tokenizer.decode([token])))
    ]
    if delimiters:
        targets["delimiter"] = interpret.delimiter_target(windows, delimiters)
    if stories is not None and isinstance(tokenizer, data.CharTokenizer):
        # Annotations give positions in characters.
        rows, length = windows.shape
        starts, verbs = [length * row for row in range(rows)], data.agreements(stories)
        targets["subject"] = data.subject_target([*verbs], starts, length)
        targets["name"] = data.name_target(stories, starts, length, letter=_LETTER)
    if stories is not None and isinstance(tokenizer, data.WordTokenizer):
        rows, length = windows.shape
        starts = [length * row for row in range(rows)]
        words = [*data.word_agreements(stories)]
        targets["subject"] = data.word_subject_target(words, starts, length)
        targets["name"] = data.word_name_target(stories, starts, length)
    return {kind: target.to(windows.device) for kind, target in targets.items()}


def _score(
    model: GPT, windows: Tensor, targets: Mapping[str, Tensor]
) -> dict[str, list[list[float]]]:
    """Return the score of every head, by layer, for each kind with a target."""
    targets = {kind: target for kind, target in targets.items() if target.any()}
    # Pruned layers differ in their number of heads, so put all heads in one row.
    num_heads = [block.attention.num_heads for block in model.blocks]
    sums = {kind: torch.zeros(sum(num_heads)) for kind in targets}
    at_once = max(1, _WEIGHTS // (sum(num_heads) * windows.shape[1] ** 2))
    for rows in torch.arange(len(windows)).split(at_once):
        weights = interpret.record_heads(model, windows[rows]).weights
        for kind, target in targets.items():
            marked = target[rows, None]
            on_target = [(layer * marked).sum(dim=(0, 2, 3)) for layer in weights]
            sums[kind] += torch.cat(on_target).cpu()
    scores: dict[str, list[list[float]]] = {}
    for kind, target in targets.items():
        means = sums[kind] / target.any(dim=-1).sum().cpu()
        scores[kind] = [layer.tolist() for layer in means.split(num_heads)]
    return scores


def _maps(source: Source, tokens: Tensor) -> dict[str, Any]:
    """Return what a file of maps says of a model and one short text.

    A map is its lower triangle, row by row, with a byte for each weight: 255 is 1.
    """
    model, decode = source.model, source.tokenizer.decode
    rows, columns = torch.tril_indices(tokens.shape[1], tokens.shape[1])
    maps = [
        [
            b64encode(bytes((255 * head).round().int().tolist())).decode()
            for head in layer[0, :, rows, columns].float()
        ]
        for layer in interpret.record_heads(model, tokens).weights
    ]
    return {
        "format": "tested-transformer maps",
        "version": 1,
        "model": source.about.get("name", source.name),
        "tokens": [decode([token]) for token in tokens[0].tolist()],
        "maps": maps,
        "cache_bytes_per_token": model.new_cache(max_length=1).nbytes,
        "dtype": str(numbers_of(model).dtype).removeprefix("torch."),
    }


def _rounded(scores: Mapping[str, list[list[float]]]) -> dict[str, Any]:
    """Return scores with four digits."""
    return {
        kind: [[round(score, 4) for score in layer] for layer in layers]
        for kind, layers in scores.items()
    }


def _print_table(
    scores: Mapping[str, list[list[float]]], even: Mapping[str, float]
) -> None:
    """Print a row for each head, and a last row for uniform attention."""

    def row(name: str, cells: Iterable[str]) -> None:
        print(f"{name:<9}{''.join(f'{cell:>11}' for cell in cells)}".rstrip())

    best = {kind: max(map(max, layers)) for kind, layers in scores.items()}
    row("head", scores)
    for layer, heads in enumerate(next(iter(scores.values()))):
        for head in range(len(heads)):
            by_kind = {kind: layers[layer][head] for kind, layers in scores.items()}
            cells = (f"{x:.2f}{' *'[x == best[kind]]}" for kind, x in by_kind.items())
            row(f"{layer}.{head}", cells)
    row("even head", (f"{score:.2f} " for score in even.values()))
    print("* the best score in a column; an even head has uniform attention")
