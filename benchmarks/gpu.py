"""What wants a GPU: a run to nanoGPT's published loss, and three limits of the device.

Nothing here was made for one GPU: every measurement says what the device does at best,
by a product of matrices or a copy of memory, and what part of that the library reaches.
"""

import re
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.contenders import Contender, Size, num_parameters
from benchmarks.cost import formula
from benchmarks.measuring import ratio, slope
from benchmarks.ours import FAST, Ours, scatter
from benchmarks.race import documented_seconds, nanogpt_run
from benchmarks.training_step import batches_of, training_step
from tested_transformer import MultiHeadAttention
from tested_transformer.training import Progress, Recipe, train

__all__ = ["NOT_MEASURED", "measure_gpu"]

NOT_MEASURED = "not measured: there is no CUDA device"

# The settings and the loss of nanoGPT's README for one GPU.
SHAKESPEARE = Size(context=256, width=384, heads=6, layers=6, batch=64)
PUBLISHED_LOSS = 1.4697
GPT2 = Size(50304, context=1024, width=768, heads=12, layers=12, batch=16)
ESTIMATE = re.compile(r"^step (\d+): train loss [\d.]+, val loss ([\d.]+)", re.M)


def measure_gpu(
    peers: Sequence[Contender],
    text: str,
    tokens: Tensor,
    *,
    nanogpt: Path | None,
    quick: bool = False,
) -> dict | str:
    """Measure all of it, in less than ten minutes on a GPU of a data center."""
    if not torch.cuda.is_available():
        return NOT_MEASURED
    transformers = [peer for peer in peers if peer.name.startswith("transformers")]
    return {
        "products": training_part("cuda", steps=5 if quick else 20),
        "decoding": decoding_part(
            "cuda", transformers, count=32 if quick else 256, rounds=1 if quick else 3
        ),
        "attention_memory": attention_memory(
            [1024, 2048] if quick else [2048, 4096, 8192, 16384, 32768]
        ),
        "shakespeare": shakespeare_part(
            "cuda", text, tokens, nanogpt=nanogpt, steps=50 if quick else 2000
        ),
    }


def seconds(call: Callable[[], object], device: str, *, rounds: int) -> float:
    """Give the median time of a call, from an idle device to an idle device."""
    call()
    taken: list[float] = []
    for _ in range(rounds):
        _wait(device)
        start = time.perf_counter()
        call()
        _wait(device)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def training_part(device: str, *, steps: int, size: Size = GPT2, n: int = 8192) -> dict:
    """Train GPT-2's size in bf16: operations a second, beside those of one product."""
    a, b = (torch.randn(n, n, device=device, dtype=torch.bfloat16) for _ in range(2))
    peak = 2 * n**3 / seconds(lambda: a @ b, device, rounds=10)
    contender = Ours()
    torch.manual_seed(0)
    model = contender.model(size).to(device)
    batches = [
        tuple(part.to(device) for part in batch)
        for batch in batches_of(torch.randint(size.vocab_size, (10**6,)), size, 4)
    ]
    compiled = device == "cuda"
    step = training_step(
        contender, model, batches, bf16=True, fused=True, compiled=compiled
    )
    taken = seconds(step, device, rounds=steps)
    reached = formula(size) / taken
    return {
        "parameters": num_parameters(model),
        "step_ms": round(1000 * taken, 3),
        "tokens_per_second": round(size.batch * size.context / taken),
        "teraflops": round(reached / 1e12, 4),
        "teraflops_of_one_product": round(peak / 1e12, 4),
        "part_of_peak": round(reached / peak, 3),
    }


def decoding_part(
    device: str,
    transformers: Sequence[Contender],
    *,
    count: int,
    rounds: int,
    size: Size = GPT2,
    copied: int = 2**30,
) -> dict:
    """Generate one sequence, beside the time to read every parameter once a token."""
    source = torch.empty(copied, dtype=torch.uint8, device=device)
    goal = torch.empty_like(source)
    # A copy reads and writes.
    bandwidth = 2 * copied / seconds(lambda: goal.copy_(source), device, rounds=10)
    report: dict = {"gigabytes_per_second": round(bandwidth / 1e9, 1), "contenders": {}}
    for contender in [Ours(), *transformers]:
        torch.manual_seed(0)
        model = scatter(contender.model(size)).to(device, torch.bfloat16).eval()

        def generate(
            contender: Contender = contender, model: nn.Module = model
        ) -> None:
            contender.generate(model, [0], count, cached=True)

        taken = seconds(generate, device, rounds=rounds)
        weights = sum(p.nbytes for p in model.parameters())
        report["contenders"][contender.name] = {
            "tokens_per_second": round(count / taken, 1),
            "part_of_bandwidth": round(weights * count / taken / bandwidth, 3),
        }
    own, *others = report["contenders"].values()
    report["ratios"] = [
        round(ratio(own["tokens_per_second"], each["tokens_per_second"]), 2)
        for each in others
    ]
    return report


def attention_memory(lengths: Sequence[int]) -> dict:
    """See how the memory of the fused layer grows: no table of T x T, no square."""
    used: list[int] = []
    for length in lengths:
        layer = MultiHeadAttention(d_model=512, num_heads=8).to("cuda", torch.bfloat16)
        x = torch.randn(1, length, 512, device="cuda", dtype=torch.bfloat16)
        x.requires_grad_()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        layer(x, causal=True).sum().backward()
        used.append(torch.cuda.max_memory_allocated() - before)
    return {
        "lengths": list(lengths),
        "peak_mib": [round(each / 2**20, 1) for each in used],
        "slope": round(slope(lengths, used), 3),
    }


def shakespeare_part(
    device: str,
    text: str,
    tokens: Tensor,
    *,
    nanogpt: Path | None,
    steps: int,
    size: Size = SHAKESPEARE,
    loss: float = PUBLISHED_LOSS,
    peer_steps: int = 5000,
) -> dict:
    """Train to the loss that nanoGPT publishes, and let nanoGPT do it too."""
    cut = int(0.9 * len(tokens))
    contender = Ours(FAST | {"dropout": 0.2}, "ours, fast")
    recipe = Recipe.fast(
        steps=steps,
        batch_size=size.batch,
        evaluate_every=max(1, steps // 20),
        precision="auto",
        compile=device == "cuda",
    )
    torch.manual_seed(0)
    model = contender.model(size).to(device)
    found: list[dict] = []
    seen: list[Progress] = []

    def see(progress: Progress) -> None:
        seen.append(progress)
        if progress.validation is not None:
            loss = progress.validation.loss
            found.append(
                {"step": progress.step, "loss": loss, "seconds": progress.seconds}
            )

    data, validation = tokens[:cut].to(device), tokens[cut:].to(device)
    state = train(model, data, recipe, validation=validation, on_step=see)
    # The first reading waits for the compiler; nanoGPT's times leave that out, too.
    first = next(p for p in seen if p.seconds > seen[0].seconds or p is seen[-1])
    compiling = seen[0].seconds - (first.step - 1) / steps * state.seconds
    for each in found:
        each["seconds"] = round(each["seconds"] - max(0.0, compiling), 2)
    done = [each for each in found if each["loss"] <= loss]
    report: dict = {
        "target_loss": loss,
        "parameters": num_parameters(model),
        "losses": found,
        "training_seconds": round(state.seconds, 2),
        "of_which_compiling": round(max(0.0, compiling), 2),
        "seconds_to_target": done[0]["seconds"] if done else "not reached",
    }
    if nanogpt is None:
        return report | {"nanoGPT": "not measured: --nanogpt was not given"}
    command = "train.py config/train_shakespeare_char.py"
    printed, _ = nanogpt_run(nanogpt, text, command, steps=peer_steps)
    took, _ = documented_seconds(printed, steps=peer_steps)
    theirs = {int(step): float(value) for step, value in ESTIMATE.findall(printed)}
    best = min(theirs, key=theirs.__getitem__)
    report["nanoGPT"] = {
        "command": f"python {command}",
        "its_best_estimate": theirs[best],
        "training_seconds": round(took, 2),
        "seconds_to_its_best": round(took * best / peer_steps, 2),
    }
    return report


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
