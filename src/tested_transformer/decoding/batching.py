"""Continuous batching: requests join and leave a batch that keeps running.

Each slot of the cache has its own length. A request that has all its tokens leaves at
once, and the next one takes its slot.

Source of the whole: Yu et al., 2022, "Orca: A Distributed Serving System for
Transformer-Based Generative Models", section 3.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from tested_transformer.caches.slots import slot_cache
from tested_transformer.checks import validate_sizes
from tested_transformer.decoding.prompts import checked_prompt, validate_length
from tested_transformer.decoding.sampling import (
    Probabilities,
    draw,
    resolve_seed,
    softmax,
)
from tested_transformer.gpt import GPT
from tested_transformer.inspection import numbers_of
from tested_transformer.layers import evaluating

__all__ = ["Batcher", "Request", "serve"]


# --8<-- [start:request]
@dataclass(kw_only=True, eq=False)
class Request:
    """A prompt, how many tokens it wants, and its answer so far.

    Args:
        prompt: Token ids, at least one.
        max_new_tokens: How many tokens to write, unless it stops earlier.
        stop: The token after which it stops; it is part of the answer.
        seed: The seed that its tokens are drawn with.
        answer: The tokens written so far; none before it is submitted.

    Raises:
        ValueError: If ``max_new_tokens`` is not positive.
    """

    prompt: Sequence[int]
    max_new_tokens: int
    stop: int | None = None
    seed: int | None = None
    answer: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        validate_sizes(max_new_tokens=self.max_new_tokens)

    @property
    def done(self) -> bool:
        """Whether it has all its tokens."""
        if len(self.answer) == self.max_new_tokens:
            return True
        return bool(self.answer) and self.answer[-1] == self.stop


# --8<-- [end:request]


# --8<-- [start:batcher]
class Batcher:
    """A running batch that requests can join and leave at every step.

    Each request gets the tokens that it would get alone with its seed.

    Args:
        model: The model that writes.
        num_slots: How many requests are answered side by side.
        static: Let new requests wait until the whole batch is done (static batching).
        probabilities: From logits to the probabilities to draw from; softmax by
            default.

    Raises:
        ValueError: If the model has windows.
    """

    def __init__(
        self,
        model: GPT,
        *,
        num_slots: int,
        static: bool = False,
        probabilities: Probabilities = softmax,
    ) -> None:
        self.model = model
        self.static = static
        self.probabilities = probabilities
        self.device = numbers_of(model).device
        self.cache = slot_cache(model, num_slots)
        self.slots: list[Request | None] = [None] * num_slots
        self.waiting = deque[Request]()
        self._generators = [torch.Generator(self.device) for _ in self.slots]
        self._newest = [0] * num_slots  # in each slot, the token not read yet

    def submit(self, request: Request) -> None:
        """Let a request wait for a slot.

        Raises:
            ValueError: If it does not fit the model, or already has an answer.
        """
        _validate_request(self.model, request)
        self.waiting.append(request)

    @torch.inference_mode()
    def step(self) -> list[Request | None]:
        """Write one more token for each request in a slot; return the slots' requests.

        Waiting requests take the free slots, and their prompts are read in this step.
        """
        running = [slot for slot, request in enumerate(self.slots) if request]
        free = [slot for slot, request in enumerate(self.slots) if not request]
        with evaluating(self.model):
            if running:
                self._write(running)
            if not (self.static and running):
                for slot in free[: len(self.waiting)]:
                    self._join(slot, self.waiting.popleft())
        present = [*self.slots]
        for slot, request in enumerate(present):
            if request is not None and request.done:
                self.slots[slot] = None
            if self.slots[slot] is None:  # done, or free beside others that were read
                self.cache.release(slot)
        return present

    # --8<-- [start:write]
    def _write(self, running: list[int]) -> None:
        """Read the newest token of each slot, up to the last one in use."""
        count = running[-1] + 1
        lengths = self.cache.lengths[:count]
        positions = torch.tensor(lengths, device=self.device)[:, None]
        tokens = torch.tensor(self._newest[:count], device=self.device)[:, None]
        # A free slot in between sees only its own token, and its output is ignored.
        visible = torch.arange(max(lengths) + 1, device=self.device) <= positions
        logits = self.model(
            tokens, positions=positions, mask=visible[:, None, None], cache=self.cache
        )
        self._draw(running, logits[running, 0])

    def _draw(self, slots: list[int], logits: Float[Tensor, "B V"]) -> None:
        """Draw the next token of some slots, each with its own generator."""
        generators = [self._generators[slot] for slot in slots]
        tokens = draw(self.probabilities(logits), generators).tolist()
        for slot, token in zip(slots, tokens, strict=True):
            request = self.slots[slot]
            assert request is not None
            self._newest[slot] = token
            request.answer.append(token)

    # --8<-- [end:write]

    def _join(self, slot: int, request: Request) -> None:
        """Read a prompt by itself, and copy its keys and values into a slot."""
        prompt = torch.tensor([[*request.prompt]], device=self.device)
        cache = self.model.new_cache(max_length=prompt.shape[1])
        logits = self.model(prompt, cache=cache, last_only=True)
        self.cache.take_over(slot, cache)
        self.slots[slot] = request
        self._generators[slot].manual_seed(resolve_seed(request.seed))
        self._draw([slot], logits[:, 0])


# --8<-- [end:batcher]


# --8<-- [start:serve]
def serve(
    model: GPT,
    requests: Sequence[Request],
    *,
    num_slots: int,
    arrivals: Sequence[int] | None = None,
    static: bool = False,
    probabilities: Probabilities = softmax,
) -> list[list[int | None]]:
    """Answer all requests, and return which request had which slot at each step.

    Args:
        model: The model that writes.
        requests: The requests, in the order in which they arrive.
        num_slots: How many are answered side by side.
        arrivals: The step at which each arrives; all at step 0 by default.
        static: Let new requests wait until the whole batch is done.
        probabilities: From logits to the probabilities to draw from; softmax by
            default.

    Returns:
        For each step and slot, the index of a request, or ``None``.

    Raises:
        ValueError: If a request does not fit the model or already has an answer, or
            arrivals do not fit them.
    """
    for request in requests:  # before any of them has a token
        _validate_request(model, request)
    arrivals = [0] * len(requests) if arrivals is None else arrivals
    if len(arrivals) != len(requests) or [*arrivals] != sorted(arrivals):
        raise ValueError(
            f"arrivals must be {len(requests)} steps in ascending order; "
            f"they are {arrivals}"
        )
    batcher = Batcher(
        model, num_slots=num_slots, static=static, probabilities=probabilities
    )
    index = {request: number for number, request in enumerate(requests)}
    coming = deque(zip(arrivals, requests, strict=True))
    steps: list[list[int | None]] = []
    while not all(request.done for request in requests):
        while coming and coming[0][0] <= len(steps):
            batcher.submit(coming.popleft()[1])
        present = batcher.step()
        steps.append([None if r is None else index[r] for r in present])
    return steps


# --8<-- [end:serve]


def _validate_request(model: GPT, request: Request) -> None:
    prompt = checked_prompt(request.prompt, model.config.vocab_size)
    validate_length(model.config, prompt, request.max_new_tokens)
    if request.answer:
        raise ValueError(
            f"answer holds {len(request.answer)} tokens; it must be empty when a "
            "request is submitted: to continue it, write "
            "Request(prompt=[*prompt, *answer], ...)"
        )
