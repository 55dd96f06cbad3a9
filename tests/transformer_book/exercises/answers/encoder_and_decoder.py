"""Answers to the exercises of *Encoder and decoder*: right ones, and wrong ones."""

import torch

from transformer_book import grade_shift, grade_writing


def shift(sentences, bos, eos, pad):
    longest = max(len(sentence) for sentence in sentences) + 2
    padded = torch.full((len(sentences), longest), pad)
    for row, sentence in zip(padded, sentences, strict=True):
        row[: len(sentence) + 2] = torch.tensor([bos, *sentence, eos])
    return padded[:, :-1], padded[:, 1:]


def without_end(sentences, bos, eos, pad):
    inputs, targets = shift(sentences, bos, eos, pad)
    return inputs, targets.masked_fill(targets == eos, pad)


def same(*args, **tokens):
    _, targets = shift(*args, **tokens)
    return targets, targets


def backward(*args, **tokens):
    inputs, targets = shift(*args, **tokens)
    return targets, inputs


def one_longer(*args, **tokens):
    inputs, targets = shift(*args, **tokens)
    return torch.cat([inputs, inputs[:, -1:]], dim=1), targets


def writing(
    *,
    across=True,
    alone=True,
    newest_only=False,
    until=torch.all,
    row=-1,
    again=False,
    bos_too=False,
    more=0,
):
    def write(model, source, mask, bos, eos, longest):
        context = model.encode(source, mask=mask if alone else None)
        target = torch.full((len(source), 1), bos)
        for _ in range(longest + more):
            context = model.encode(source, mask=mask) if again else context
            inputs = target[:, -1:] if newest_only else target
            seen = mask if across else None
            logits = model.decode(inputs, context, context_mask=seen)
            target = torch.cat([target, logits[:, row, None].argmax(dim=-1)], dim=1)
            if until((target == eos).any(dim=1)):
                break
        rows = [row[0 if bos_too else 1 :] for row in target.tolist()]
        return [row[: row.index(eos)] if eos in row else row for row in rows]

    return write


RIGHT = {grade_shift: shift, grade_writing: writing()}
WRONG = {
    grade_shift: {
        "it will not stop": without_end,
        "then <eos>": lambda sentences, bos, eos, pad: shift(sentences, bos, eos, 0),
        "not shifted": same,
        "never guessed": backward,
        "each row that reads": one_longer,
        "guessed from <bos>": lambda rows, bos, eos, pad: shift(rows, eos, eos, pad),
    },
    grade_writing: {
        "read 6 times": writing(again=True),
        "the mask is missing": writing(across=False),
        "is missing somewhere": writing(alone=False),
        "stopped at the first": writing(until=torch.any),
        "in its order": writing(newest_only=True),
        "the guess of the last row": writing(row=0),
        "<bos> is not part": writing(bos_too=True),
        "from <eos> on": lambda *args: [[*row, 2] for row in writing()(*args)],
        "with longest=2": writing(more=1),
    },
}
