"""A server: many requests share one model, its memory and each of its passes.

In every step the server chooses how many tokens each request reads (*continuous
batching*). A request that still has a prompt to read gets what is left of the step's
budget (*chunked prefill*); one that has read all its tokens gets its next token. Keys
and values lie in pages, which requests with the same beginning share (*prefix
caching*). If no page is left, the youngest request gives its pages back, and reads its
tokens again later (*preemption* by recomputation).

With one page for each request, as long as the context, the pages are the slots of older
servers.

Sources: Yu et al., 2022, "Orca: A Distributed Serving System for Transformer-Based
Generative Models", section 3; Kwon et al., 2023, "Efficient Memory Management for Large
Language Model Serving with PagedAttention", section 4; Agrawal et al., 2024, "Taming
Throughput-Latency Tradeoff in LLM Inference with Sarathi-Serve", section 4.
"""

import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from tested_transformer.caches.paged import PagedBatch, PagedCache
from tested_transformer.caches.prefix import PrefixPool, page_names
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

__all__ = ["Request", "Server", "Step"]


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
    cancelled: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        validate_sizes(max_new_tokens=self.max_new_tokens)

    @property
    def tokens(self) -> list[int]:
        """The prompt and the answer so far."""
        return [*self.prompt, *self.answer]

    @property
    def done(self) -> bool:
        """Whether it has all its tokens, or was cancelled."""
        stopped = bool(self.answer) and self.answer[-1] == self.stop
        return self.cancelled or stopped or len(self.answer) == self.max_new_tokens


Handover = tuple[PagedCache, torch.Generator]  # what a request takes to another server


@dataclass(frozen=True)
class Step:
    """What a server did in one step.

    Args:
        reads: How many tokens each request read.
        context: How many keys these reads attended to, in each layer: those of a
            request count once for each step.
        wrote: The requests that got a token.
        preempted: The requests that gave their pages back.
        reused: How many tokens of new requests were found in cached pages.
    """

    reads: dict[Request, int]
    context: int
    wrote: list[Request]
    preempted: list[Request]
    reused: int


class Server:
    """A model that answers requests, which come and go at any step.

    Each request gets the tokens that it would get alone with its seed.

    Args:
        model: The model that writes.
        num_pages: How many pages of keys and values there is memory for.
        page_size: How many tokens a page holds; with ``max_seq_len`` of the model, a
            page is a slot.
        token_budget: How many tokens a step may read; longer prompts are read in
            several steps. By default there is no limit.
        static: Let new requests wait until the whole batch is done (static batching).
        reserve: Take the pages for the longest answer at once, so that no request is
            ever preempted.
        prefix_caching: Keep the pages of earlier texts, and let requests that begin
            alike share them.
        probabilities: From logits to the probabilities to draw from; softmax by
            default.

    Raises:
        ValueError: If a size is not positive, or the model's layers do not keep keys
            and values that can be padded.
    """

    def __init__(
        self,
        model: GPT,
        *,
        num_pages: int,
        page_size: int,
        token_budget: int | None = None,
        static: bool = False,
        reserve: bool = False,
        prefix_caching: bool = False,
        probabilities: Probabilities = softmax,
    ) -> None:
        budget = sys.maxsize if token_budget is None else token_budget
        validate_sizes(token_budget=budget)
        if not model.config.attention.reads_padding:
            raise ValueError(
                f"attention={model.config.attention!r} of model cannot mask the "
                "padding of a shorter request"
            )
        self.model, self.token_budget = model, budget
        self.static, self.reserve = static, reserve
        self.prefix_caching, self.probabilities = prefix_caching, probabilities
        pool = PrefixPool.for_model(model, num_pages=num_pages, page_size=page_size)
        self.pool, self.device = pool, numbers_of(model).device
        self.waiting = deque[Request]()
        self.running: dict[Request, PagedCache] = {}  # the oldest first
        self._generators: dict[Request, torch.Generator] = {}
        self._elsewhere: dict[Request, PagedCache] = {}  # still with another server

    def validate(self, request: Request) -> None:
        """Refuse a request that cannot be answered.

        Raises:
            ValueError: If it does not fit the model or the memory, or already has an
                answer.
        """
        prompt = checked_prompt(request.prompt, self.model.config.vocab_size)
        validate_length(self.model.config, prompt, request.max_new_tokens)
        if request.answer:
            raise ValueError(
                f"answer holds {len(request.answer)} tokens; it must be empty when a "
                "request is submitted: to continue it, write "
                "Request(prompt=[*prompt, *answer], ...)"
            )
        num_pages, page_size = len(self.pool.users), self.pool.page_size
        if self._longest(request) > num_pages * page_size:
            raise ValueError(
                f"{len(prompt)} tokens of prompt and max_new_tokens="
                f"{request.max_new_tokens} do not fit into {num_pages} pages of "
                f"{page_size}"
            )

    def submit(self, request: Request) -> None:
        """Let a request wait for its turn.

        Raises:
            ValueError: If it cannot be answered; see ``validate``.
        """
        self.validate(request)
        generator = torch.Generator(self.device)
        generator.manual_seed(resolve_seed(request.seed))
        self._generators[request] = generator
        self.waiting.append(request)

    def cancel(self, request: Request) -> None:
        """Stop a request, wherever it is, and free its pages; keep its answer so far.

        One that is done, or unknown to the server, stays as it is.
        """
        if request in self._generators:
            request.cancelled = True
            del self._generators[request]
            if request in self.running:
                self.running.pop(request).reset()
            else:
                self.waiting.remove(request)
                if request in self._elsewhere:
                    self._elsewhere.pop(request).reset()

    def hand_over(self, request: Request) -> Handover:
        """Let go of a running request, for another server that takes it over."""
        return self.running.pop(request), self._generators.pop(request)

    def take_over(self, request: Request, handover: Handover) -> None:
        """Go on with a request of another server, whose pages have the same size.

        The pages are copied, and free there, when this server has room for them.
        """
        if request.done:  # cancelled on the way
            handover[0].reset()
        else:
            self._elsewhere[request], self._generators[request] = handover
            self.waiting.append(request)

    # --8<-- [start:step]
    @torch.inference_mode()
    def step(self) -> Step:
        """Let requests read, and write if they have read all; those that are done go.

        A step in which nobody can read changes nothing.
        """
        reads, preempted, reused = self._schedule()
        wrote = dict[Request, int]()
        with evaluating(self.model):
            for count in {*reads.values()}:  # those that read equally much, together
                wrote |= self._read([r for r in reads if reads[r] == count], count)
        context = sum(self.running[request].length for request in reads)
        if self.prefix_caching:
            self._publish(reads)
        for request, token in wrote.items():
            request.answer.append(token)
            if request.done:
                self.running.pop(request).reset()
                del self._generators[request]
        return Step(reads, context, [*wrote], preempted, reused)

    # --8<-- [end:step]

    # --8<-- [start:schedule]
    def _schedule(self) -> tuple[dict[Request, int], list[Request], int]:
        """Choose how many tokens each request reads: the oldest come first."""
        budget, reused = self.token_budget, 0
        reads, preempted = dict[Request, int](), list[Request]()
        closed = self.static and bool(self.running)
        for request, cache in [*self.running.items()]:
            count = min(len(request.tokens) - cache.length, budget)
            while request in self.running and not self._fits(cache, count):
                preempted.append(self._preempt_youngest())
            if request in self.running and count:
                cache.make_room(cache.length, cache.length + count)
                reads[request], budget = count, budget - count
        while self.waiting and budget and not preempted and not closed:
            moved = self.waiting[0] in self._elsewhere
            cache = self._admit(self.waiting[0])
            if cache is None:
                break
            request = self.waiting.popleft()
            self.running[request] = cache
            reused += 0 if moved else cache.length
            count = min(len(request.tokens) - cache.length, budget)
            reads[request], budget = count, budget - count
        return reads, preempted, reused

    # --8<-- [end:schedule]

    def _fits(self, cache: PagedCache, num_new: int) -> bool:
        pages = -(-(cache.length + num_new) // self.pool.page_size)
        return pages - len(cache.table) <= self.pool.num_free

    def _preempt_youngest(self) -> Request:
        request, cache = self.running.popitem()
        cache.reset()
        self.waiting.appendleft(request)
        return request

    def _admit(self, request: Request) -> PagedCache | None:
        """Return a cache with room for all tokens so far, or none if there is none."""
        cache, tokens = PagedCache(self.pool), request.tokens
        length = self._longest(request) if self.reserve else len(tokens)
        if self.prefix_caching and request not in self._elsewhere:
            # Its last token has to be read in any case, for the logits that follow it.
            size = self.pool.page_size
            pages = self.pool.find(page_names(tokens[:-1], size))
            known = torch.tensor(tokens[: len(pages) * size], dtype=torch.long)
            cache.begin_with(pages, len(known), known[None].to(self.device))
        if not self._fits(cache, length - cache.length):
            cache.reset()
            return None
        if request in self._elsewhere:
            cache.move_from(self._elsewhere.pop(request))
        cache.make_room(cache.length, length)
        return cache

    def _read(self, requests: list[Request], count: int) -> dict[Request, int]:
        """Read some tokens of each request in one pass; return what those write.

        A request writes a token when it has read all that it has.
        """
        caches = [self.running[request] for request in requests]
        texts = [request.tokens for request in requests]
        pairs = zip(texts, [cache.length for cache in caches], strict=True)
        rows = [text[start : start + count] for text, start in pairs]
        batch = PagedBatch(caches, count)
        logits = self.model(
            torch.tensor(rows, device=self.device),
            positions=batch.positions,
            mask=batch.mask,
            cache=batch,
            last_only=True,
        )
        ends = zip(texts, caches, strict=True)
        ready = [row for row, (t, c) in enumerate(ends) if c.length == len(t)]
        generators = [self._generators[requests[row]] for row in ready]
        drawn = draw(self.probabilities(logits[ready, 0]), generators).tolist()
        return {requests[row]: token for row, token in zip(ready, drawn, strict=True)}

    def _publish(self, reads: dict[Request, int]) -> None:
        """Name the pages that have become full, so that others find them."""
        size = self.pool.page_size
        for request, count in reads.items():
            cache = self.running[request]
            if cache.length // size > (cache.length - count) // size:
                names = page_names(request.tokens[: cache.length], size)
                self.pool.publish(cache.table[: len(names)], names)

    def _longest(self, request: Request) -> int:
        """Return how many tokens it reads at most: its last one is never read."""
        return len(request.prompt) + request.max_new_tokens - 1
