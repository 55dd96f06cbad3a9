"""Count what a device is asked to do: operations, bytes they touch, and waits for it.

On a GPU each operation is a launch of some microseconds, whatever its size, and a wait
lets the device run dry. Both can be counted without one: every operation that PyTorch
dispatches passes through a mode, which leaves out those that only make a view.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.measuring import in_turns, milliseconds
from benchmarks.run import Results, Run
from tested_transformer.attentions import ATTENTIONS
from tested_transformer.decoding import CachedReader, Decoder
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.interfaces import LayerSettings
from tested_transformer.positions import rotary_table

__all__ = ["Counts", "counted", "measure", "training_pass", "written_token"]

LENGTHS = (256, 1024, 4096)
WIDTH, HEADS, VOCABULARY = 64, 4, 50
READERS: dict[str, Callable[[GPT], CachedReader | Decoder]] = {
    "with a cache": CachedReader,
    "packed": Decoder,
}

# What needs a number on the host, for which the device is waited for.
_WAITS = (
    *("aten::_local_scalar_dense", "aten::nonzero", "aten::equal"),
    *("aten::is_nonzero", "aten::masked_select", "aten::bincount"),
    *("aten::unique_consecutive", "aten::_unique2"),
)


@dataclass
class Counts:
    """What was dispatched.

    Args:
        operations: How many operations, without those that only make a view.
        bytes: How much they read and write, in bytes.
        waits: How many of them need a number on the host.
    """

    operations: int = 0
    bytes: int = 0
    waits: int = 0


class _Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.counts = Counts()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name
        returns = func._schema.returns
        view = returns and all(
            output.alias_info is not None and not output.alias_info.is_write
            for output in returns
        )
        if not view and name not in ("aten::detach", "aten::_unsafe_view"):
            self.counts.operations += 1
            self.counts.waits += name in _WAITS
            leaves = tree_leaves((args, kwargs, result))
            self.counts.bytes += sum(x.nbytes for x in leaves if isinstance(x, Tensor))
        return result


def counted(run: Callable[[], object]) -> Counts:
    """Return what a call dispatches, after a first one that fills caches."""
    run()
    with _Counting() as mode:
        run()
    return mode.counts


def training_pass(
    attention: str,
    length: int,
    *,
    width: int = WIDTH,
    heads: int = HEADS,
    batch: int = 2,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Callable[[], None]:
    """Return a forward and a backward pass of one layer with a kind of attention."""
    torch.manual_seed(0)
    kind, head_dim = ATTENTIONS[attention], width // heads
    layer = kind.make(
        LayerSettings(
            d_model=width, num_heads=heads, head_dim=head_dim, num_kv_heads=heads
        )
    ).to(device, dtype)
    x = torch.randn(batch, length, width, device=device, dtype=dtype)
    x.requires_grad_()
    rotary = None
    if "none" not in kind.positions:
        rotary = rotary_table(torch.arange(length, device=device), head_dim)

    def run() -> None:
        layer(x, causal=True, rotary=rotary).sum().backward()

    return run


def written_token(reader: str, length: int) -> Callable[[], None]:
    """Return a step of a reader, after as many tokens."""
    torch.manual_seed(0)
    config = GPTConfig(
        vocab_size=VOCABULARY,
        max_seq_len=length + 8,
        d_model=WIDTH,
        num_heads=HEADS,
        num_layers=2,
    )
    model = GPT(config).eval()
    read = READERS[reader](model)
    read.read([torch.randint(VOCABULARY, (length,)).tolist()])
    token = torch.zeros(1, dtype=torch.long)

    def run() -> None:
        read.step(token)

    return run


def measure(run: Run) -> Results:
    """Count each kind of attention at several lengths, and a token of each reader.

    The passes are timed as well, in turns.
    """
    lengths, rounds = (LENGTHS[:1], 2) if run.quick else (LENGTHS, 9)
    passes: dict[str, dict[str, dict[str, float]]] = {name: {} for name in ATTENTIONS}
    for length in lengths:
        runs = {name: training_pass(name, length) for name in ATTENTIONS}
        times = milliseconds(in_turns(runs, rounds=rounds, clock=time.process_time))
        for name, one in runs.items():
            passes[name][str(length)] = {**vars(counted(one)), "ms": times[name]}
            print(length, name, passes[name][str(length)], flush=True)
    tokens = {name: vars(counted(written_token(name, lengths[0]))) for name in READERS}
    return {
        "size": {"d_model": WIDTH, "heads": HEADS, "batch": 2, "layers read": 2},
        "training pass of a layer": passes,
        "written token": tokens,
    }
