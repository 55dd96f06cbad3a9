"""What test_distributed.py does alone, and starts in two processes: train, and tell."""

import json
import os
import sys
from dataclasses import replace

import torch

from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.training import (
    Recipe,
    TrainingState,
    World,
    choose_device,
    join_world,
    leave_world,
    train,
)

# In double precision: Muon makes much of a rounding error where a gradient is small.
CONFIG = GPTConfig(vocab_size=11, max_seq_len=7, d_model=12, num_heads=3, num_layers=2)
RECIPE = Recipe(
    steps=6,
    batch_size=4,
    seq_len=5,
    lr=0.01,
    warmup=1,
    evaluate_every=3,
    precision="fp32",
)
TOKENS = torch.randint(11, (503,), generator=torch.Generator().manual_seed(3))


def run(name: str, recipe: Recipe, shard: bool, world: World) -> dict[str, object]:
    """Train halfway, be told to stop, and go on in a new model from what was saved."""
    torch.manual_seed(world.rank)
    reports, saved, report = [], [], {}
    text = {"validation": TOKENS[:101], "world": world, "shard": shard}

    # Only the first has where to save to, as the command does it.
    def to_file(state):
        saved.append(state.step)

    keep = to_file if world.rank == 0 else None

    # Only one of the processes is told to stop, and it is the last one.
    calls = []

    def stop():
        calls.append(1)
        return len(calls) == 3 and world.rank == world.size - 1

    first = train(
        GPT(CONFIG, dtype=torch.float64), TOKENS, recipe, save=keep, stop=stop, **text
    )
    report["stopped"] = first.step
    model = GPT(CONFIG, dtype=torch.float64)
    model.load_state_dict(first.weights)
    state = TrainingState.from_state(first.state_tensors(), first.state_json())
    last = train(
        model, TOKENS, recipe, state=state, on_step=reports.append, save=keep, **text
    )
    return {
        **report,
        "name": name,
        "losses": last.losses,
        "validations": [result.loss for result in last.validations],
        "gaps": [result.gap for result in last.validations],
        "weights": {n: w.tolist() for n, w in last.weights.items()},
        "memory": {n: m.tolist() for n, m in last.optimizer.items() if "step" not in n},
        "kinds": [*{type(parameter).__name__ for parameter in model.parameters()}],
        "reports": len(reports),
        "saved": saved,
    }


def tell(folder: str, world: World) -> None:
    """Do all runs, and write down what came of them."""
    result = [
        run("adamw", RECIPE, False, world),
        run("muon", replace(RECIPE, optimizer="muon", accumulate=2), False, world),
        run("adamw sharded", replace(RECIPE, accumulate=2), True, world),
        run("muon sharded", replace(RECIPE, optimizer="muon"), True, world),
    ]
    with open(os.path.join(folder, f"{world.rank}-of-{world.size}.json"), "w") as f:
        json.dump(result, f)


if __name__ == "__main__":
    torch.set_num_threads(1)
    tell(sys.argv[1], join_world(choose_device("cpu")))
    leave_world()
