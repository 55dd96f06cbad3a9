"""``tested-transformer train``: a model learns a text."""

import argparse
import shlex
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

import torch

from tested_transformer.checkpoints import CheckpointWriter
from tested_transformer.cli.display import Display, make_display
from tested_transformer.cli.machine import use_machine
from tested_transformer.cli.options import (
    DEVICE,
    MODEL,
    OUTPUT,
    TEXT,
    TRAINING,
    Commands,
    add_options,
    check_at_least,
)
from tested_transformer.cli.plans import (
    MODELS,
    RECIPES,
    Plan,
    make_plan,
    resume_plan,
)
from tested_transformer.cli.stopping import StopRequest
from tested_transformer.cli.writing import default_prompt, write
from tested_transformer.data import CORPORA, split
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.training import (
    TrainingDivergedError,
    TrainingState,
    World,
    join_world,
    leave_world,
    train,
    training_precision,
)

__all__ = ["add_train", "run"]

EXAMPLES = """\
examples:
  tested-transformer train                         a small GPT, in about a minute
  tested-transformer train play.txt                any text in UTF-8
  tested-transformer train stdlib --steps 2000     Python's own source text
  tested-transformer train --recipe plain          AdamW and a cosine, to compare
  tested-transformer train --layers 6 --width 256 --context 256 --out runs/big
  tested-transformer train --out runs/big --resume
  torchrun --nproc-per-node 2 -m tested_transformer.cli train

Ctrl-C finishes the step, saves, and leaves with status 130 (after SIGTERM 143);
--resume goes on to the losses that would have come. A run that diverges leaves with
status 1, and whatever does not fit with 2, before anything is written.

next:
  tested-transformer generate      let the latest model write
  tested-transformer evaluate      see whether its loss can be believed
"""


def add_train(commands: Commands) -> argparse.ArgumentParser:
    """Describe the command."""
    parser = commands.add_parser(
        "train",
        help="train a GPT on a text",
        usage="%(prog)s [TEXT] [options]",
        description="Train a GPT on a text, and save it.",
        epilog=EXAMPLES,
    )
    parser.add_argument(
        "corpus",
        nargs="?",
        metavar="TEXT",
        help=f"a file, or one of {', '.join(CORPORA)} (grammar)",
    )
    parser.add_argument(
        "--recipe",
        choices=tuple(RECIPES),
        help="fast gets there in the fewest seconds, plain is the textbook's (fast); "
        "where their defaults differ, those of both are shown below",
    )
    models = [GPTConfig(vocab_size=1, **model) for model in MODELS.values()]
    add_options(parser, "text", TEXT)
    add_options(parser, "model", MODEL, *models)
    recipes = [recipe() for recipe in RECIPES.values()]
    add_options(parser, "training", TRAINING, *recipes)
    add_options(parser, "machine", DEVICE)
    parser.add_argument(
        "--shard",
        action="store_true",
        help="under torchrun, cut the weights up between the processes",
    )
    add_options(parser, "output", OUTPUT)
    fresh = parser.add_mutually_exclusive_group()
    fresh.add_argument(
        "--resume", action="store_true", help="go on with the run in the folder"
    )
    fresh.add_argument(
        "--overwrite", action="store_true", help="begin anew, whatever is there"
    )
    parser.set_defaults(run=run)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Train, and return the exit status."""
    device = use_machine(arguments)
    for name, least in (("eval_tokens", 1), ("save_every", 1), ("sample", 0)):
        check_at_least(least, name, getattr(arguments, name))
    plan = resume_plan(arguments) if arguments.resume else make_plan(arguments)
    world = join_world(device)
    display = make_display(as_json=arguments.json, first=world.rank == 0)
    try:
        return _train(plan, device, world, display, arguments)
    finally:
        leave_world()


def _train(
    plan: Plan,
    device: torch.device,
    world: World,
    display: Display,
    arguments: argparse.Namespace,
) -> int:
    model = plan.model.to(device)
    train_tokens, held_out = split(plan.corpus.tokens)
    held_out = held_out[: _number(arguments.eval_tokens, 32768) + 1]
    with ExitStack() as stack:
        save = None
        if world.rank == 0:
            save = _saver(stack.enter_context(CheckpointWriter(plan.folder)), plan)
        precision = training_precision(
            model, train_tokens, plan.recipe, state=plan.state, world=world
        )
        state = replace(plan.state, precision=precision)
        if save is not None and not plan.resumed:
            save(replace(state, weights=model.state_dict()))
            state = replace(state, saved_step=0)
        _introduce(plan, device, precision, display)
        if not plan.resumed:
            _sample("before", model, plan, display, arguments)
        stop = stack.enter_context(StopRequest(repeats=world.size == 1))
        with display.running(plan.recipe.steps):
            try:
                state = train(
                    model,
                    train_tokens,
                    plan.recipe,
                    validation=held_out,
                    state=state,
                    world=world,
                    shard=arguments.shard,
                    on_step=display.step,
                    save=save,
                    save_every=_number(arguments.save_every, 100),
                    stop=stop,
                )
            except TrainingDivergedError as error:
                display.tell("end", "", status="diverged", step=error.step)
                error.add_note(f"it is in {plan.folder}, and --overwrite begins anew")
                raise
    if state.step < plan.recipe.steps:
        _say_how_to_go_on(state, plan, display, arguments)
        return stop.status
    _sample("after", _with_weights(state, plan), plan, display, arguments)
    _conclude(state, plan, display)
    return 0


def _number(typed: int | None, default: int) -> int:
    return default if typed is None else typed


def _saver(writer: CheckpointWriter, plan: Plan) -> Callable[[TrainingState], None]:
    def save(state: TrainingState) -> None:
        writer.save(
            config=plan.model.config,
            weights=state.weights,
            settings=plan.settings,
            training=(state.state_tensors(), state.state_json()),
        )

    return save


def _introduce(
    plan: Plan, device: torch.device, precision: str, display: Display
) -> None:
    config, recipe = plan.model.config, plan.recipe
    size = plan.model.num_parameters()
    begin = f"going on after step {plan.state.step}" if plan.resumed else "training"
    display.tell(
        "start",
        f"{begin}: {size:,} parameters, {config.num_layers} layers, "
        f"{config.num_heads} heads, width {config.d_model}, context "
        f"{config.max_seq_len}; on {device} in {precision}\n"
        f"text: {plan.corpus.origin}, {plan.corpus.num_characters:,} characters, "
        f"{len(plan.corpus.tokens):,} tokens of {config.vocab_size} kinds",
        folder=str(plan.folder),
        text=plan.corpus.name,
        characters=plan.corpus.num_characters,
        tokens=len(plan.corpus.tokens),
        vocab_size=config.vocab_size,
        parameters=size,
        device=str(device),
        precision=precision,
        step=plan.state.step,
        steps=recipe.steps,
    )


def _sample(
    when: str,
    model: GPT,
    plan: Plan,
    display: Display,
    arguments: argparse.Namespace,
) -> None:
    count = _number(arguments.sample, 240)
    if count == 0 or type(display) is Display:
        return
    prompt = default_prompt(plan.corpus.tokenizer)
    pieces = write(
        model,
        plan.corpus.tokenizer,
        prompt,
        max_new_tokens=count,
        temperature=0.8,
        seed=0,
    )
    text = prompt + "".join(pieces)
    display.tell("sample", f"\n--- {when} ---\n{text.strip()}\n", when=when, text=text)


def _with_weights(state: TrainingState, plan: Plan) -> GPT:
    """Give the model in one piece, whatever it was cut into."""
    model = GPT(plan.model.config)
    model.load_state_dict(state.weights)
    return model.to(next(plan.model.parameters()).device)


def _conclude(state: TrainingState, plan: Plan, display: Display) -> None:
    found = state.validations[-1]
    text = (
        f"{state.step} steps in {state.seconds:.0f} s; held-out loss {found.loss:.3f}, "
        f"honest loss {found.prefix:.3f} where one pass gives {found.full:.3f}"
    )
    if plan.corpus.entropy is not None:
        text += f"; no honest loss is below {plan.corpus.entropy:.3f}"
    display.tell(
        "end",
        f"{text}\nsaved in {plan.folder}; next: "
        f"tested-transformer generate {shlex.quote(str(plan.folder))}",
        status="finished",
        folder=str(plan.folder),
        step=state.step,
        seconds=state.seconds,
        loss=found.loss,
        honest=found.prefix,
        one_pass=found.full,
        bound=plan.corpus.entropy,
    )


def _say_how_to_go_on(
    state: TrainingState,
    plan: Plan,
    display: Display,
    arguments: argparse.Namespace,
) -> None:
    words = [word for word in arguments.words if word != "--overwrite"]
    words += [] if arguments.resume else ["--resume"]
    command = shlex.join(["tested-transformer", *words])
    display.tell(
        "end",
        f"stopped after step {state.step} of {plan.recipe.steps}, saved after step "
        f"{state.saved_step} in {plan.folder}; go on with:\n  {command}",
        status="stopped",
        folder=str(plan.folder),
        step=state.step,
        saved_step=state.saved_step,
        resume=command,
    )
