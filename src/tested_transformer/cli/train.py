"""``tested-transformer train``: train a model on a text."""

import os
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import KW_ONLY, asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from tested_transformer import data, decoding, training
from tested_transformer.attentions import ATTENTIONS, attention_named, name_of
from tested_transformer.checkpoints import (
    Checkpoint,
    CheckpointError,
    CheckpointWriter,
    has_checkpoint,
    load_checkpoint,
)
from tested_transformer.cli.display import Display, losses, reminder
from tested_transformer.cli.flags import Call, Flags, check_at_least
from tested_transformer.cli.generate import default_prompt, write
from tested_transformer.cli.sources import (
    HELD_OUT,
    describe_text,
    latest_runs,
    load_source,
    load_text,
)
from tested_transformer.cli.stopping import StopRequest
from tested_transformer.config import GPTConfig, fitting_positions
from tested_transformer.gpt import GPT
from tested_transformer.interfaces import Attention
from tested_transformer.training import Recipe, TrainingState, World, validate_run

__all__ = ["ATTENTION", "MODEL", "MODELS", "RECIPES", "TRAINING", "Train"]

RECIPES = {"fast": Recipe.fast, "plain": Recipe.plain}
# The model settings of each recipe.
MODELS: dict[str, dict[str, Any]] = {
    "fast": {
        "positions": "alibi",
        "activation": "relu2",
        "bias": False,
        "tie_head": False,
        "qk_norm": True,
        "smear": True,
    },
    "plain": {},
}
# What a model that was trained before needs instead of the defaults of plain: a small
# rate, for it has something to lose, and memory for long windows.
FINE_TUNING = Recipe.plain(steps=200, batch_size=4, lr=1e-4, warmup=20)
_LLAMA = {
    "positions": "rotary",
    "norm": "rms",
    "activation": "swiglu",
    "bias": False,
    "tie_head": False,
}
# Those of families that transformers opens; plain's are GPT-2's.
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": _LLAMA,
    "qwen3": {**_LLAMA, "qk_norm": "heads"},
}


def _named(*, attention: str = "softmax") -> None:
    """Say how a model attends.

    Args:
        attention: How layers attend, one of ``ATTENTIONS``.
    """


def _attention_flags() -> Iterator[Flags]:
    """Return the flag for a name, and those for the settings of each kind."""
    yield Flags("attending", _named)
    known: set[str] = set()
    for kind in dict.fromkeys(type(form) for form in ATTENTIONS.values()):
        defaults = [asdict(form) for form in ATTENTIONS.values() if type(form) is kind]
        yield Flags("attending", kind, defaults, leave_out={*known})
        known |= {field.name for field in fields(kind)}


ATTENTION = (*_attention_flags(),)
MODEL = Flags(
    "model", GPTConfig, MODELS.values(), leave_out={"vocab_size", "attention"}
)
TRAINING = Flags("training", Recipe, [vars(make()) for make in RECIPES.values()])
_TOKENIZERS = {"char": "characters", "word": "words", "bpe": "byte pairs"}


class _Plan(NamedTuple):
    """A run that is ready to start or resume, with its model on the CPU."""

    corpus: data.TokenizedCorpus
    model: GPT
    recipe: Recipe
    settings: dict[str, Any]  # saved with the model
    state: TrainingState

    def save(self, writer: CheckpointWriter, state: TrainingState) -> None:
        writer.save(
            config=self.model.config,
            weights=state.weights,
            settings=self.settings,
            training=(state.state_tensors(), state.state_json()),
        )


@dataclass(frozen=True)
class Train:
    """Train a GPT on a text and save it.

    Examples:
      tested-transformer train                         a small GPT, in a minute or two
      tested-transformer train stories                 whole words are its tokens
      tested-transformer train play.txt                any text in UTF-8
      tested-transformer train stdlib --steps 2000     Python's own source text
      tested-transformer train --recipe plain          AdamW and a cosine, to compare
      tested-transformer train --attention delta       attention with a state
      tested-transformer train --like llama            a model that export can write
      tested-transformer train play.txt --from gpt2 --out runs/tuned
      tested-transformer train --num-layers 6 --d-model 256 --out runs/big
      tested-transformer train --out runs/big --resume
      torchrun --nproc-per-node 2 -m tested_transformer train

    The text is a file, or one of grammar, stories, stdlib, shakespeare and names. Where
    the two recipes have different defaults, fast's is shown first.

    Ctrl-C finishes the step, saves, and exits with status 130 (143 after SIGTERM).
    --resume then continues with exactly the losses of an uninterrupted run. A run that
    diverges exits with status 1. Bad input exits with 2 before anything is written.

    Args:
        text: A file, or the name of a text; grammar by default.
        recipe: fast reaches a loss in the fewest seconds, plain is the textbook's; fast
            by default.
        from_: Go on from this model, named as in generate, with its settings and its
            tokenizer; by default for 200 steps of AdamW with a rate of 1e-4, in windows
            of at most 1024 tokens.
        like: Give the model the settings of a family instead of the recipe's, so that
            export can write it.
        tokenizer: char makes each character a token, word each word, bpe learns
            frequent pairs; word for stories and char for other texts by default.
        vocab_size: How many tokens bpe learns; 1024 by default.
        num_characters: How much of the text to use; all by default.
        eval_tokens: Held-out tokens to predict in each evaluation, 0 for all; 32768 by
            default.
        out: The folder to save to; runs/ and the name of the text by default.
        save_every: Steps between two saves.
        sample: Tokens to write before and after training.
        resume: Continue the run in the folder.
        overwrite: Start over; an earlier run in the folder is kept until the new one is
            saved.
        shard: Shard the weights over the processes that torchrun starts.
        attending: A name of attention, and settings of its kind.
        model: See ``GPTConfig``.
        training: See ``Recipe``.
    """

    text: str | None = None
    _: KW_ONLY
    recipe: Literal["fast", "plain"] | None = None
    from_: str | None = None
    like: Literal["llama", "qwen3"] | None = None
    tokenizer: Literal["char", "word", "bpe"] | None = None
    vocab_size: int | None = None
    num_characters: int | None = None
    eval_tokens: int | None = None
    out: str | None = None
    save_every: int = 100
    sample: int = 240
    resume: bool = False
    overwrite: bool = False
    shard: bool = False
    attending: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Where the run is saved."""
        return Path(self.out or Path("runs") / Path(self.text or "grammar").stem)

    def run(self, call: Call) -> int:
        """Train, and return the exit status."""
        check_at_least(0, eval_tokens=self.eval_tokens, sample=self.sample)
        check_at_least(1, save_every=self.save_every)
        if self.resume and self.overwrite:
            raise ValueError(
                "--resume continues a run, --overwrite replaces it: choose one"
            )
        if self.text and has_checkpoint(self.text):
            typed = _command("train", "--resume", "--out", self.text)
            raise ValueError(
                f"{self.text} is a run, not a text: to continue it, type {typed}"
            )
        plan = self._resume() if self.resume else self._begin()
        self._check(plan, call.device)
        world = training.join_world(call.device)
        display = Display(as_json=call.as_json, silent=world.rank > 0)
        try:
            return self._train(plan, world, display, call)
        finally:
            training.leave_world()

    def _begin(self) -> _Plan:
        """Plan a new run."""
        if has_checkpoint(self.folder) and not self.overwrite:
            raise ValueError(
                f"{self.folder} already holds a run: continue it with --resume, start "
                "over with --overwrite, or choose another folder with --out"
            )
        if self.from_ is not None:
            return self._begin_from(self.from_)
        name = self.recipe or "fast"
        if self.vocab_size is not None and self.tokenizer != "bpe":
            raise ValueError("vocab_size needs --tokenizer bpe")
        corpus = data.load_tokens(
            "grammar" if self.text is None else self.text,
            tokenizer=_TOKENIZERS[self.tokenizer or _usual_tokenizer(self.text)],
            vocab_size=self.vocab_size,
            num_characters=self.num_characters,
            tell=reminder(),
        )
        tokenizer = corpus.tokenizer
        attention = _attention(self.attending)
        preset = FAMILIES[self.like] if self.like else MODELS[name]
        model = _fitting_model(preset, self.model, attention)
        config = GPTConfig(
            vocab_size=tokenizer.vocab_size, attention=attention, **model
        )
        recipe = _fitting_recipe(RECIPES[name](), self.training)
        torch.manual_seed(recipe.seed)
        return self._plan(corpus, GPT(config), recipe, recipe_name=name)

    def _begin_from(self, name: str) -> _Plan:
        """Plan a run that goes on from a model."""
        options = ("recipe", "like", "tokenizer", "vocab_size")
        typed = [option for option in options if getattr(self, option) is not None]
        if typed := [*typed, *self.attending, *self.model]:
            raise ValueError(
                f"{', '.join(typed)}: --from takes these from the model; leave them out"
            )
        source = load_source(name, torch.device("cpu"))
        corpus = data.load_tokens(
            "grammar" if self.text is None else self.text,
            tokenizer=source.tokenizer,
            num_characters=self.num_characters,
            tell=reminder(),
        )
        fitting = {"seq_len": source.window_length(None)}
        recipe = _fitting_recipe(FINE_TUNING, fitting | self.training)
        # Steps of a small rate would be lost in the rounding of half precision.
        model, ends = source.model.float(), [*source.end_tokens]
        return self._plan(corpus, model, recipe, **{"from": name, "end_tokens": ends})

    def _plan(
        self, corpus: data.TokenizedCorpus, model: GPT, recipe: Recipe, **more: Any
    ) -> _Plan:
        settings = {
            "text": describe_text(corpus, self.num_characters),
            "tokenizer": corpus.tokenizer.to_dict(),
            "recipe": recipe.to_dict(),
            "eval_tokens": HELD_OUT if self.eval_tokens is None else self.eval_tokens,
            **more,
        }
        state = TrainingState(saved_step=None)
        return _Plan(corpus, model, recipe, settings, state)

    def _resume(self) -> _Plan:
        """Plan to resume a run; typed settings must be those it was started with."""
        folder = self.folder
        if not has_checkpoint(folder):
            runs = " or ".join(f"--out {run}" for run in latest_runs()[:3])
            raise CheckpointError(
                f"{folder} holds no run to resume: omit --resume to start one"
                + (f", or type {runs}" if runs else "")
            )
        checkpoint = load_checkpoint(folder)
        settings = checkpoint.settings
        if checkpoint.training is None or "recipe" not in settings:
            raise CheckpointError(f"{folder} holds a model but no run to resume")
        self._require_what_was_typed(checkpoint)
        recipe = Recipe.from_dict(settings["recipe"])
        if "evaluate_every" in self.training:
            recipe = replace(recipe, evaluate_every=self.training["evaluate_every"])
        if self.eval_tokens is not None:
            settings = settings | {"eval_tokens": self.eval_tokens}
        return _Plan(
            load_text(settings, folder, self.text),
            checkpoint.model(),
            recipe,
            settings,
            TrainingState.from_state(*checkpoint.training),
        )

    def _require_what_was_typed(self, checkpoint: Checkpoint) -> None:
        recipe = {**self.training}
        recipe.pop("evaluate_every", None)  # does not affect the training
        config = {**FAMILIES[self.like], **self.model} if self.like else {**self.model}
        required: dict[str, Any] = {"config": config, "recipe": recipe}
        if "attention" in self.attending:
            name, settings = name_of(_attention(self.attending))
            required["config"] |= {"attention": name, "attention_settings": settings}
        elif self.attending:
            required["config"]["attention_settings"] = self.attending
        if self.vocab_size is not None:
            required["config"]["vocab_size"] = self.vocab_size
        if self.tokenizer is not None:
            required["tokenizer"] = {"kind": _TOKENIZERS[self.tokenizer]}
        if self.num_characters is not None:
            required["text"] = {"limit": self.num_characters}
        if self.recipe is not None:
            required["recipe_name"] = self.recipe
        if self.from_ is not None:
            required["from"] = self.from_
        try:
            checkpoint.require(settings=required)
        except CheckpointError as error:
            raise CheckpointError(
                f"{error}; omit what differs, or start over with --overwrite"
            ) from None

    def _check(self, plan: _Plan, device: torch.device) -> None:
        """Refuse a run that training would refuse, before anything is written."""
        recipe, model = plan.recipe, plan.model
        world = World.from_environment()
        validate_run(model, recipe, world, shard=self.shard, device=device)
        tokens = plan.corpus.tokens
        train_tokens, held_out = data.split(tokens)
        data.num_windows(len(train_tokens), recipe.seq_len or model.config.max_seq_len)
        if len(held_out) < 2:
            raise ValueError(
                f"{len(tokens)} tokens leave {len(held_out)} for validation; "
                "at least 2 are needed"
            )

    def _train(self, plan: _Plan, world: World, display: Display, call: Call) -> int:
        model = plan.model.to(call.device)
        train_tokens, held_out = data.split(plan.corpus.tokens)
        count = plan.settings.get("eval_tokens", HELD_OUT)
        held_out = held_out[: count + 1] if count else held_out
        resumed = plan.state.saved_step is not None
        with ExitStack() as stack:
            save = None
            precision = training.training_precision(
                model, train_tokens, plan.recipe, state=plan.state, world=world
            )
            chosen = replace(plan.recipe, precision=precision)
            validate_run(model, chosen, world, shard=self.shard)
            state = replace(plan.state, precision=precision)
            if world.rank == 0:
                writer = stack.enter_context(CheckpointWriter(self.folder))
                save = partial(plan.save, writer)
                # With --overwrite, keep the old run until there is progress to save.
                if not resumed and not has_checkpoint(self.folder):
                    save(replace(state, weights=model.state_dict()))
                    state = replace(state, saved_step=0)
            self._introduce(plan, len(held_out), precision, call, display)
            if not resumed:
                self._show_sample("before", model, plan.corpus.tokenizer, display)
            stop = stack.enter_context(StopRequest(repeats=world.size == 1))
            with display.running(plan.recipe.steps):
                try:
                    state = training.train(
                        model,
                        train_tokens,
                        plan.recipe,
                        validation=held_out,
                        state=state,
                        world=world,
                        shard=self.shard,
                        on_step=display.step,
                        save=save,
                        save_every=self.save_every,
                        stop=stop,
                    )
                except training.TrainingDivergedError as error:
                    display.tell("end", "", status="diverged", step=error.step)
                    kept = f"{self.folder} is unchanged"
                    saved = f"it is in {self.folder}; --overwrite starts over"
                    error.add_note(kept if error.saved_step is None else saved)
                    raise
        if state.step < plan.recipe.steps:
            self._tell_stopped(state, plan.recipe.steps, call, display)
            return stop.status
        # A whole model again, even if its parameters were sharded.
        unsharded = GPT.from_weights(model.config, state.weights)
        self._show_sample(
            "after", unsharded.to(call.device), plan.corpus.tokenizer, display
        )
        bound = plan.corpus.entropy
        if bound is not None:  # the loss is per token, the entropy per character
            bound *= plan.corpus.num_characters / len(plan.corpus.tokens)
        self._conclude(state, bound, display)
        return 0

    def _introduce(
        self, plan: _Plan, held_out: int, precision: str, call: Call, display: Display
    ) -> None:
        config, step = plan.model.config, plan.state.step
        parameters, characters = plan.model.num_parameters(), plan.corpus.num_characters
        tokens = len(plan.corpus.tokens)
        begin = f"training {plan.settings.get('from', '')}".rstrip()
        if plan.state.saved_step is not None:
            begin = f"from step {step} of {plan.recipe.steps}"
        if step == plan.recipe.steps:
            begin = f"this run is complete, with {step} of {step} steps"
        display.tell(
            "start",
            f"{begin}: {parameters:,} parameters, {config.num_layers} layers, "
            f"{config.num_heads} heads, d_model={config.d_model}, "
            f"max_seq_len={config.max_seq_len}; on {call.device} in {precision}\n"
            f"text: {plan.corpus.origin}, {characters:,} characters, "
            f"{tokens:,} tokens, vocabulary of {config.vocab_size}; the last tenth is "
            f"held out, and {held_out:,} tokens of it are evaluated",
            folder=str(self.folder),
            text=plan.corpus.name,
            characters=characters,
            tokens=tokens,
            held_out=held_out,
            vocab_size=config.vocab_size,
            parameters=parameters,
            device=str(call.device),
            precision=precision,
            step=step,
            steps=plan.recipe.steps,
        )

    def _show_sample(
        self, when: str, model: GPT, tokenizer: data.Tokenizer, display: Display
    ) -> None:
        if self.sample and not display.silent:
            text = default_prompt(tokenizer)
            room = len(data.encode_prompt(tokenizer, text)) + self.sample
            room = min(room, model.config.max_seq_len)
            new_cache = partial(model.new_cache, max_length=room)
            pieces = write(
                decoding.CachedReader(model, new_cache=new_cache),
                tokenizer,
                text,
                max_new_tokens=self.sample,
                seed=0,
                sampling=decoding.Sampling(temperature=0.8),
            )
            text += "".join(piece for [piece] in pieces)
            shown = f"\n--- {when} ---\n{text.strip()}\n"
            display.tell("sample", shown, when=when, text=text)

    def _tell_stopped(
        self, state: TrainingState, steps: int, call: Call, display: Display
    ) -> None:
        words = [word for word in call.words if word != "--overwrite"]
        command = _command(*words, *([] if self.resume else ["--resume"]))
        saved = f"saved after step {state.saved_step} in {self.folder}"
        if state.saved_step is None:  # the loss was high, so nothing was saved
            command = _command(*call.words)
            saved = f"nothing saved, {self.folder} is unchanged"
        display.tell(
            "end",
            f"stopped after step {state.step} of {steps}, {saved}; "
            f"continue with:\n  {command}",
            status="stopped",
            folder=str(self.folder),
            step=state.step,
            saved_step=state.saved_step,
            resume=command,
        )

    def _conclude(
        self, state: TrainingState, bound: float | None, display: Display
    ) -> None:
        last = state.validations[-1]
        least = "" if bound is None else f"; the entropy is {bound:.3f}"
        display.tell(
            "end",
            f"{state.step} steps in {state.seconds:.0f} s; {losses(last)}{least}\n"
            f"saved in {self.folder}; next: {_command('generate', str(self.folder))}",
            status="finished",
            folder=str(self.folder),
            step=state.step,
            seconds=state.seconds,
            loss=last.loss,
            honest=last.prefix,
            one_pass=last.full,
            bound=bound,
        )


def _attention(typed: dict[str, Any]) -> Attention:
    """Return the attention with a name and settings."""
    settings = {**typed}
    return attention_named(settings.pop("attention", "softmax"), settings)


def _usual_tokenizer(text: str | None) -> str:
    return "word" if text == "stories" else "char"


def _fitting_model(
    preset: dict[str, Any], changes: dict[str, Any], attention: Attention
) -> dict[str, Any]:
    """Return the model settings asked for, adapted to the chosen attention."""
    fitting = fitting_positions(attention, changes.get("softmax_every"))
    if preset.get("positions", "learned") not in fitting:
        preset = preset | {"positions": fitting[0]}
    if "qk_norm" in attention.unsupported:
        preset = preset | {"qk_norm": False}
    return preset | changes


def _fitting_recipe(recipe: Recipe, changes: dict[str, Any]) -> Recipe:
    """Return a recipe whose warm-up and evaluations fit even a short run."""
    steps = changes.get("steps", recipe.steps)
    fitting: dict[str, Any] = {
        "warmup": min(recipe.warmup, steps // 10),
        "evaluate_every": min(recipe.evaluate_every, max(1, -(-steps // 4))),
    }
    return replace(recipe, **fitting | changes)


def _command(*words: str) -> str:
    """Return a command, quoted for this system's shell."""
    join = subprocess.list2cmdline if os.name == "nt" else shlex.join
    return join(["tested-transformer", *words])
