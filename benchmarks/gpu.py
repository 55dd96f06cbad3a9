"""Run all measurements that need a GPU in one command, with only PyTorch installed.

Each part runs in a process of its own with a time limit: if it fails, hangs or breaks
the device, its error is recorded and the other parts continue. Nothing is tuned to a
particular GPU: the first part measures the peak of the device, in a matrix product and
a memory copy, for comparison with what the library reaches.
"""

import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.contenders import Size, config_of, formula, num_parameters
from benchmarks.launches import training_pass
from benchmarks.measuring import (
    answer_order,
    in_a_process,
    in_turns,
    mib,
    peak_memory,
    slope,
)
from benchmarks.nanogpt import documented_seconds, nanogpt_run
from benchmarks.peers import TransformersGPT2
from benchmarks.run import Results, Run
from tested_transformer.attentions import ATTENTIONS
from tested_transformer.data import CharTokenizer, load_corpus, split
from tested_transformer.decoding import Decoder, generate
from tested_transformer.gpt import GPT
from tested_transformer.multihead import MultiHeadAttention
from tested_transformer.training import Progress, Recipe, train

__all__ = ["NOT_MEASURED", "PARTS", "Setting", "measure", "run_part", "together"]

NOT_MEASURED = "not measured: there is no CUDA device"

# nanoGPT's settings for one GPU, and the loss that its README reports for them.
SHAKESPEARE = Size(context=256, width=384, heads=6, layers=6, batch=64)
PUBLISHED_LOSS = 1.4697
NANOGPT_STEPS = 5000
ESTIMATE = re.compile(r"^step (\d+): train loss [\d.]+, val loss ([\d.]+)", re.M)
GPT2 = Size(50304, context=1024, width=768, heads=12, layers=12, batch=32)
GPT2_XL = Size(50304, context=1024, width=1600, heads=25, layers=48, batch=1)
TINY = Size(97, context=32, width=48, heads=3, layers=2, batch=5)
# The model settings of the fast recipe, but for the positions. They are not imported
# from the command, which needs more than PyTorch.
FAST = {"activation": "relu2", "tie_head": False, "qk_norm": True, "smear": True}


@dataclass(frozen=True)
class Setting:
    """Where and how much to measure.

    Args:
        device: ``cuda``; or ``cpu``, where tiny models only show that the program runs.
        quick: Do only a few steps and tokens.
        text: A file for small models to learn; by default the source of Python's own
            modules.
        nanogpt: A checkout of karpathy/nanoGPT.
        limit: Stop nanoGPT's own run after this many seconds.
    """

    device: str = "cuda"
    quick: bool = False
    text: str | None = None
    nanogpt: str | None = None
    limit: float = 85.0

    def size(self, size: Size) -> Size:
        """Return a size, or a tiny one on a CPU."""
        return size if self.device == "cuda" else TINY

    def count(self, full: int, quick: int) -> int:
        """Return a count, or a small one with ``quick``."""
        return quick if self.quick or self.device != "cuda" else full


def device_part(setting: Setting) -> dict:
    """Measure the peak of the device: a product in bf16, and a memory copy."""
    n, copied = (8192, 2**32) if setting.device == "cuda" else (256, 2**22)
    draw = partial(torch.randn, n, n, device=setting.device, dtype=torch.bfloat16)
    a, b = draw(), draw()
    product = seconds(lambda: a @ b, setting.device, rounds=10)
    source = torch.empty(copied, dtype=torch.uint8, device=setting.device)
    goal = torch.empty_like(source)
    copy = seconds(lambda: goal.copy_(source), setting.device, rounds=10)
    cuda = setting.device == "cuda"
    return {
        "name": torch.cuda.get_device_name() if cuda else "cpu",
        "teraflops_of_a_product": round(2 * n**3 / product / 1e12, 3),
        # A copy reads and writes.
        "gigabytes_per_second_of_a_copy": round(2 * copied / copy / 1e9, 1),
    }


def training_part(setting: Setting) -> dict:
    """Train GPT-2's size in bf16, by the library's own loop, and time its steps."""
    size = setting.size(GPT2)
    torch.manual_seed(0)
    model = GPT(config_of(size, bias=False)).to(setting.device)
    tokens = torch.randint(size.vocab_size, (10**6,))
    steps = setting.count(60, 40)
    recipe = Recipe.plain(
        steps=steps,
        batch_size=size.batch,
        precision="bf16",
        compile=setting.device == "cuda",
        warmup=10,
        evaluate_every=steps,
    )
    seen: list[Progress] = []
    train(model, tokens.to(setting.device), recipe, on_step=seen.append)
    # The loop waits for the GPU every tenth step; the first wait includes compiling.
    seconds_at = {p.step: p.seconds for p in seen if p.step % 10 == 0}
    taken = (seconds_at[steps] - seconds_at[20]) / (steps - 20)
    return {
        "parameters": num_parameters(model),
        "batch": f"{size.batch} x {size.context}",
        "step_ms": round(1000 * taken, 2),
        "first_ten_steps_seconds": round(seconds_at[10], 1),
        "tokens_per_second": round(size.batch * size.context / taken),
        "teraflops": round(formula(size) / taken / 1e12, 3),
    }


def decoding_part(setting: Setting, *, size: Size, compiled: bool = True) -> dict:
    """Generate one text in bf16 with a packed decoder, in each way of running a step.

    The first calls include recording or compiling it. The figures of the fastest way
    are those of the part.
    """
    size = setting.size(size)
    torch.manual_seed(0)
    with torch.device(setting.device):
        model = GPT(config_of(size, bias=False)).to(torch.bfloat16).eval()
    count = min(setting.count(512, 64), size.context - 1)
    prepare: dict[str, Callable[[Decoder], None]] = {"eager": lambda _: None}
    if setting.device == "cuda":
        prepare["graph"] = Decoder.capture
        if compiled:
            prepare["compiled"] = Decoder.compile
    ways: dict[str, dict] = {}
    for name, prepared in prepare.items():
        decoder = Decoder(model)
        prepared(decoder)
        write = partial(generate, decoder, [[0]], max_new_tokens=count, seed=0)
        ways[name] = written(model, write, count, setting)
    fastest = max(ways, key=lambda name: ways[name]["tokens_per_second"])
    return {"way": fastest, **ways[fastest], "ways": ways}


def transformers_part(setting: Setting) -> dict | str:
    """Generate with the package transformers, by its ``generate``: fewer tokens.

    On an H100 it wrote less than 35 tokens per second.
    """
    if find_spec("transformers") is None:
        return "not measured: transformers is not installed"
    size, peer = setting.size(GPT2), TransformersGPT2()
    torch.manual_seed(0)
    model = peer.model(size).to(setting.device, torch.bfloat16).eval()
    count = min(setting.count(128, 64), size.context - 1)
    write = partial(peer.generate, model, [0], count, cached=True)
    return {"version": peer.version, **written(model, write, count, setting)}


def written(
    model: torch.nn.Module, write: Callable[[], object], count: int, setting: Setting
) -> dict:
    """Time a function that generates ``count`` tokens: the first and later calls."""
    first = seconds(write, setting.device, rounds=1, warm_up=0)
    taken = seconds(write, setting.device, rounds=setting.count(3, 1), warm_up=0)
    read = sum(weight.nbytes for weight in model.parameters())
    return {
        "tokens": count,
        "first_call_seconds": round(first, 2),
        "tokens_per_second": round(count / taken, 1),
        "parameter_bytes": read,
        "gigabytes_per_second": round(read * count / taken / 1e9, 4),
    }


def attention_part(setting: Setting) -> dict:
    """Measure how the fused layer's memory grows with length, forward and back."""
    full = [2048, 4096, 8192, 16384, 32768]
    lengths = full if setting.device == "cuda" else [64, 128]
    layer = MultiHeadAttention(d_model=512, num_heads=8)
    layer = layer.to(setting.device, torch.bfloat16)
    memory: list[float] = []
    taken: list[float] = []
    for length in lengths:
        x = torch.randn(1, length, 512, device=setting.device, dtype=torch.bfloat16)
        x.requires_grad_()

        def pass_through(x: Tensor = x) -> None:
            layer(x, causal=True).sum().backward()

        taken.append(seconds(pass_through, setting.device, rounds=3))
        if setting.device == "cuda":
            memory.append(peak_on_device(pass_through))
        else:
            memory.append(max(1, peak_memory(pass_through)))
    return {
        "lengths": lengths,
        "peak_mib": [mib(used) for used in memory],
        "milliseconds": [round(1000 * x, 2) for x in taken],
        # 1 is linear, 2 the square.
        "slope_of_memory": round(slope(lengths, memory), 3),
    }


def forms_part(setting: Setting) -> dict:
    """Time a forward and a backward pass of a layer with every form of attention.

    Each length has as many tokens in all.
    """
    full = {1024: 8, 8192: 1}
    batches = full if setting.device == "cuda" else {64: 2}
    taken: dict[str, dict[str, dict | str]] = {}
    for length, batch in batches.items():
        taken[str(length)] = {}
        for name in ATTENTIONS:
            dtype, sizes = torch.bfloat16, {"width": 512, "heads": 8, "batch": batch}
            run = training_pass(
                name, length, **sizes, device=setting.device, dtype=dtype
            )
            try:
                ms = 1000 * seconds(run, setting.device, rounds=setting.count(5, 1))
                used = peak_on_device(run) if setting.device == "cuda" else 0
                result = {"ms": round(ms, 2), "peak_mib": mib(used)}
            except (RuntimeError, ValueError) as error:  # the others are measured
                result = str(error)[:300]
            taken[str(length)][name] = result
            print(length, name, result, flush=True)
    return {"batches": {str(key): value for key, value in batches.items()}, **taken}


def peak_on_device(run: Callable[[], object]) -> int:
    """Return the memory of a GPU that a call takes at its peak, in bytes."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    return torch.cuda.max_memory_allocated() - before


def shakespeare_part(setting: Setting, *, graph: bool = False) -> dict:
    """Train at nanoGPT's size for one GPU by the fast recipe, and record the losses."""
    characters = CharTokenizer.from_text(text := read_text(setting))
    tokens = torch.tensor(characters.encode(text)).to(setting.device)
    data, validation = split(tokens)
    size = replace(setting.size(SHAKESPEARE), vocab_size=characters.vocab_size)
    torch.manual_seed(0)
    options = FAST | {"positions": "rotary", "bias": False, "dropout": 0.2}
    model = GPT(config_of(size, **options)).to(setting.device)
    steps = setting.count(2000, 60)
    recipe = Recipe.fast(
        steps=steps,
        batch_size=size.batch,
        evaluate_every=steps // setting.count(20, 3),
        compile=setting.device == "cuda",
        graph=graph and setting.device == "cuda",
    )
    losses: list[dict] = []
    seen: list[Progress] = []

    def see(progress: Progress) -> None:
        seen.append(progress)
        if progress.validation is not None:
            loss, taken = progress.validation.loss, progress.seconds
            losses.append({"step": progress.step, "loss": loss, "seconds": taken})

    state = train(model, data, recipe, validation=validation, on_step=see)
    # The first reading includes compiling; nanoGPT's times leave that out too.
    first = next(p for p in seen if p.seconds > seen[0].seconds or p is seen[-1])
    later = (seen[-1].seconds - first.seconds) / max(1, steps - first.step)
    compiling = max(0.0, first.seconds - first.step * later) if later else 0.0
    for entry in losses:
        entry["seconds"] = round(entry["seconds"] - compiling, 2)
        entry["loss"] = round(entry["loss"], 4)
    best = min(losses, key=lambda entry: entry["loss"])
    return {
        "text": "given" if setting.text else "the source of Python's own modules",
        "parameters": num_parameters(model),
        "precision": recipe.precision,
        "training_seconds": round(seen[-1].seconds - compiling, 2),
        "of_compiling_seconds": round(compiling, 2),
        "steps": state.step,
        "best_loss": best["loss"],
        "seconds_to_best": best["seconds"],
        "losses": losses,
    }


def nanogpt_part(setting: Setting) -> dict | str:
    """Run nanoGPT's documented command on the same text, as far as the time allows."""
    if setting.nanogpt is None:
        return "not measured: --nanogpt was not given"
    steps = setting.count(NANOGPT_STEPS, 20)
    command = "train.py config/train_shakespeare_char.py"
    if setting.device == "cpu":
        command += " --device=cpu --compile=False --eval_iters=2 --block_size=32"
        command += " --batch_size=5 --n_layer=2 --n_head=3 --n_embd=48"
    printed, _ = nanogpt_run(
        Path(setting.nanogpt),
        read_text(setting),
        command,
        steps=steps,
        limit=setting.limit,
    )
    # It counts from 0, and does one step more than asked.
    done = min(steps, len(re.findall(r"^iter \d+: loss", printed, re.M)))
    took, step = documented_seconds(printed, steps=done)
    losses = {int(step): float(loss) for step, loss in ESTIMATE.findall(printed)}
    best = min(losses, key=losses.__getitem__)
    return {
        "command": f"python {command}",
        "steps": done,
        "median_step_ms": round(1000 * step, 2),
        "training_seconds": round(took, 2),
        "best_loss": losses[best],
        "seconds_to_best": round(took * best / done, 2),
    }


PARTS: dict[str, Callable[[Setting], dict | str]] = {
    "device": device_part,
    "training": training_part,
    "decoding": partial(decoding_part, size=GPT2),
    "decoding_xl": partial(decoding_part, size=GPT2_XL, compiled=False),
    "attention": attention_part,
    "forms": forms_part,
    "shakespeare": shakespeare_part,
    "shakespeare_graph": partial(shakespeare_part, graph=True),
    "transformers": transformers_part,
    "nanogpt": nanogpt_part,
}
# Seconds that a part may take; that all may take, eight minutes; and that must be left
# for one to begin.
LIMIT, LIMITS, BUDGET, LEAST = 100.0, {"transformers": 60.0}, 480.0, 5.0


def measure(run: Run) -> Results:
    """Measure all parts. To try it out, a processor will do."""
    cuda = torch.cuda.is_available()
    if not cuda and not run.quick:
        return NOT_MEASURED
    paths = (run.shakespeare, run.nanogpt)
    text, nanogpt = (path and str(path.resolve()) for path in paths)
    setting = Setting("cuda" if cuda else "cpu", run.quick, text, nanogpt)
    end = time.monotonic() + BUDGET
    report = {name: run_part(name, setting, end) for name in PARTS}
    return {"together": together(report), **report}


def run_part(name: str, setting: Setting, end: float) -> dict:
    """Run a part in a process of its own, and return its results or its error."""
    start = time.monotonic()
    limit = min(LIMITS.get(name, LIMIT), end - start)
    if limit < LEAST:
        return {"error": "not measured: no time was left"}
    order = {"name": name, **vars(setting), "limit": limit - 15}
    result: dict = {}
    try:
        answer = in_a_process("gpu", order, limit=limit)
        result = answer if isinstance(answer, dict) else {"error": answer}
    except subprocess.TimeoutExpired:
        result["error"] = f"not finished after {limit:.0f} s"
    except subprocess.CalledProcessError as error:
        result["error"] = error.stderr.strip()[-1500:]
    return result | {"wall_seconds": round(time.monotonic() - start, 1)}


def together(report: dict[str, dict]) -> dict:
    """Return results that combine parts; results with a missing part are left out."""
    combined: dict[str, object] = {}

    def part(
        name: str, numerator: tuple[str, str], denominator: tuple[str, str]
    ) -> None:
        values = [report[part].get(key) for part, key in (numerator, denominator)]
        if all(values):
            combined[name] = round(values[0] / values[1], 3)

    speed = "tokens_per_second"
    product, copied = "teraflops_of_a_product", "gigabytes_per_second_of_a_copy"
    part("part_of_matrix_peak", ("training", "teraflops"), ("device", product))
    part("decoding_over_transformers", ("decoding", speed), ("transformers", speed))
    read = "gigabytes_per_second"
    part("part_of_bandwidth", ("decoding", read), ("device", copied))
    part("part_of_bandwidth_xl", ("decoding_xl", read), ("device", copied))
    theirs = report["nanogpt"]
    target = theirs.get("best_loss", PUBLISHED_LOSS)
    for name in ("shakespeare", "shakespeare_graph"):
        if "losses" in report[name]:
            losses = report[name]["losses"]
            own = next((x["seconds"] for x in losses if x["loss"] <= target), None)
            combined[name] = {"target_loss": target, "seconds_to_target": own}
            if own and "seconds_to_best" in theirs:
                quotient = round(theirs["seconds_to_best"] / own, 2)
                combined[name]["nanogpt_over_ours"] = quotient
    return combined


def read_text(setting: Setting) -> str:
    """Return the text that small models learn."""
    if setting.text is not None:
        return Path(setting.text).read_text("utf-8")
    return load_corpus("stdlib", num_characters=setting.count(1_100_000, 20_000)).text


def seconds(
    call: Callable[[], object], device: str, *, rounds: int, warm_up: int = 1
) -> float:
    """Return the median time of a call, with the device idle before and after."""

    def clock() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    times = in_turns({"call": call}, rounds=rounds, warm_up=warm_up, clock=clock)
    return times["call"].median


def _part(name: str, **setting: Any) -> dict | str:
    return PARTS[name](Setting(**setting))


if __name__ == "__main__":
    answer_order(_part)
