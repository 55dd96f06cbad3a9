"""Traffic: requests that arrive over time, on a clock that is computed.

A step of the server writes real tokens, but a formula says how long it takes. So the
times are those of another machine and a larger model, and every run repeats them.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heapify, heappop, heappush

from tested_transformer.decoding.serving import Request, Server, Step

__all__ = ["Served", "StepTime", "serve"]


@dataclass(frozen=True)
class StepTime:
    """The seconds of a step, from the tokens it reads and the keys they attend to.

    Args:
        per_step: Seconds to fetch all weights, once for each step.
        per_token: Seconds of arithmetic for each token.
        per_key: Seconds to fetch the keys and values of a token in all layers.
    """

    per_step: float
    per_token: float
    per_key: float

    def __call__(self, step: Step) -> float:
        """Return how long a step takes."""
        tokens = sum(step.reads.values())
        return self.per_step + self.per_token * tokens + self.per_key * step.context


@dataclass
class Served:
    """What happened when.

    Args:
        arrivals: When each request came.
        times: When each of its tokens was written.
        steps: For each step when it began and ended, which server took it, and what it
            did.
    """

    arrivals: dict[Request, float]
    times: dict[Request, list[float]]
    steps: list[tuple[float, float, int, Step]] = field(default_factory=list)

    @property
    def to_first_token(self) -> list[float]:
        """How long requests waited for their first token (TTFT)."""
        pairs = ((self.times[request], at) for request, at in self.arrivals.items())
        return [times[0] - arrival for times, arrival in pairs if times]

    @property
    def between_tokens(self) -> list[float]:
        """The times between neighboring tokens of all requests (ITL)."""
        return [
            b - a for times in self.times.values() for a, b in itertools.pairwise(times)
        ]

    @property
    def seconds(self) -> float:
        """The time from the first arrival to the end of the last step."""
        return max(end for _, end, _, _ in self.steps) - min(self.arrivals.values())


def serve(
    servers: Server | Sequence[Server],
    requests: Sequence[Request],
    *,
    arrivals: Sequence[float] | None = None,
    seconds: Callable[[Step], float] = lambda step: 1.0,
    cancellations: Mapping[Request, float] | None = None,
    decoder: Server | None = None,
    transfer: float = 0.0,
) -> Served:
    """Answer all requests, and return what happened when.

    Args:
        servers: One server, or several: then a request goes to the one with the fewest.
        requests: The requests.
        arrivals: When each arrives; all at 0 by default.
        seconds: How long a step takes; 1 by default, so that times count steps.
        cancellations: When some of the requests are cancelled.
        decoder: Another server, which goes on with each request after its first token.
        transfer: How long the keys and values of a token take on the way there.

    Raises:
        ValueError: If a request cannot be answered, or has no arrival. Then nobody is
            served.
    """
    entries = [servers] if isinstance(servers, Server) else [*servers]
    workers = entries if decoder is None else [*entries, decoder]
    arrivals = [0.0] * len(requests) if arrivals is None else arrivals
    if len(arrivals) != len(requests):
        raise ValueError(
            f"arrivals must be {len(requests)} times; they are {len(arrivals)}"
        )
    for request in requests:  # before any of them has a token
        for worker in workers:
            worker.validate(request)
    arrived = dict(zip(requests, arrivals, strict=True))
    served = Served(arrived, {request: [] for request in requests})
    coming = [(at, partial(_submit, entries, r)) for r, at in arrived.items()]
    cancelled = cancellations or {}
    coming += [(at, partial(_cancel, workers, r)) for r, at in cancelled.items()]
    numbers = itertools.count()  # of two events at one time, the first comes first
    events = [(at, next(numbers), event) for at, event in coming]
    heapify(events)
    clocks = dict.fromkeys(workers, 0.0)  # when each may begin its next step
    while True:
        busy = [worker for worker in workers if worker.running or worker.waiting]
        worker = min(busy, key=clocks.__getitem__, default=None)
        now = math.inf if worker is None else clocks[worker]
        if events and events[0][0] <= now:
            time, _, event = heappop(events)
            event()
            clocks = {server: max(clock, time) for server, clock in clocks.items()}
            continue
        if worker is None:
            return served
        step = worker.step()
        if not step.reads:  # its pages are full of what the decoder has not fetched
            others = [clocks[server] for server in busy if server is not worker]
            others += [events[0][0]] if events else []
            clocks[worker] = math.nextafter(max(now, min(others)), math.inf)
            continue
        end = clocks[worker] = now + seconds(step)
        served.steps.append((now, end, workers.index(worker), step))
        for request in step.wrote:
            served.times[request].append(end)
            if decoder is not None and worker is not decoder and not request.done:
                arrival = end + transfer * len(request.tokens)
                event = partial(decoder.take_over, request, worker.hand_over(request))
                heappush(events, (arrival, next(numbers), event))


def _submit(entries: list[Server], request: Request) -> None:
    min(entries, key=lambda s: len(s.running) + len(s.waiting)).submit(request)


def _cancel(workers: list[Server], request: Request) -> None:
    for worker in workers:
        worker.cancel(request)
    request.cancelled |= not request.done  # on its way from one to another
