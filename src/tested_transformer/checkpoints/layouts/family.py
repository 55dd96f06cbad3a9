"""What the layouts of model families have in common: settings, names, and both ways.

A family knows how its ``config.json`` describes a ``GPTConfig``, how to write one, and
which of its tensors hold which weights. Reading refuses each setting that nobody asked
for, by its name. Writing checks itself: what is written is read again, and must give
the same config.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from tested_transformer.checkpoints.configs import CheckpointError
from tested_transformer.checkpoints.loading import check_sizes
from tested_transformer.checkpoints.saving import check_fit
from tested_transformer.checkpoints.tensor_files import on_meta
from tested_transformer.config import GPTConfig
from tested_transformer.gpt import GPT

__all__ = [
    "Family",
    "Settings",
    "Stored",
    "cut",
    "gain_from_one",
    "joined",
    "renamed",
]

# Settings that change nothing in a pass: tokens, training, versions, and speed.
_WITHOUT_EFFECT = {
    *("architectures", "auto_map", "model_type", "transformers_version"),
    *("dtype", "torch_dtype", "initializer_range", "use_cache", "pretraining_tp"),
    *("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id"),
    *("attention_dropout", "embd_pdrop", "resid_pdrop", "cache_implementation"),
    *("output_router_logits", "router_aux_loss_coef", "router_jitter_noise"),
    *("_name_or_path", "_attn_implementation", "_attn_implementation_autoset"),
    *("attn_implementation", "_flash_attn_2_enabled", "tokenizer_class"),
    # What a file that was written in full says of any model, and of its writing.
    *("id2label", "label2id", "return_dict", "do_sample", "max_length", "num_beams"),
    *("num_beam_groups", "num_return_sequences", "length_penalty", "typical_p"),
    *("temperature", "top_k", "top_p", "repetition_penalty"),
    # What programs note about themselves, in SmolLM, the first Llama and others.
    *("is_llama_config", "max_sequence_length", "transformers.js_config"),
    *("unsloth_fixed", "unsloth_version"),
}
# What a silent config.json means, where it has an effect.
_NEUTRAL: tuple[Any, ...] = (None, False, (), {})
_LARGEST = 2**24  # of what a published model has, the longest text is 10 million
_HEAD = "lm_head.weight"


class Settings:
    """The content of a ``config.json``, which remembers what was asked for.

    Args:
        values: Settings by name.
        origin: Where they come from, for error messages.
    """

    def __init__(self, values: Mapping[str, Any], origin: str) -> None:
        if not isinstance(values, Mapping):
            raise CheckpointError(f"{origin} must be settings by name, not {values!r}")
        self.values = dict(values)
        self.origin = origin
        self._used: set[str] = set()

    def get(self, name: str, *default: Any) -> Any:
        """Return a setting.

        Raises:
            CheckpointError: If it is missing, and there is no default.
        """
        self._used.add(name)
        if name not in self.values and not default:
            raise CheckpointError(f"{self.origin} does not say {name}")
        return self.values.get(name, *default)

    def size(self, name: str, *default: Any) -> Any:
        """Return a setting that must not be so large that lists of it fill the memory.

        Raises:
            CheckpointError: If it is.
        """
        value = self.get(name, *default)
        if isinstance(value, int | float) and value > _LARGEST:
            raise CheckpointError(
                f"{self.origin} has {name}={value}; at most {_LARGEST} can be read"
            )
        return value

    def require(self, name: str, *allowed: Any) -> None:
        """Refuse any value of a setting but these; it may be missing.

        Raises:
            CheckpointError: If it has another value.
        """
        value = self.get(name, allowed[0])
        if value not in allowed:
            shown = " or ".join(f"{name}={option!r}" for option in allowed)
            raise CheckpointError(
                f"{self.origin} has {name}={value!r}; only {shown} can be read"
            )

    def choose(self, name: str, choices: Mapping[str, Any], *default: str) -> Any:
        """Return what one of several names stands for.

        Raises:
            CheckpointError: If it is none of them.
        """
        value = self.get(name, *default)
        if value not in [*choices]:  # it may have no hash
            raise CheckpointError(
                f"{self.origin} has {name}={value!r}; "
                f"only {', '.join(choices)} can be read"
            )
        return choices[value]

    def ignore_the_rest(self) -> None:
        """Count what nobody asked for as known."""
        self._used |= self.values.keys()

    def refuse_the_rest(self) -> None:
        """Refuse what nobody asked for, unless it says nothing.

        Raises:
            CheckpointError: If there is such a setting; the message lists all.
        """
        known = self._used | _WITHOUT_EFFECT
        unknown = [
            f"{name}={value!r}"
            for name, value in self.values.items()
            if name not in known and value not in _NEUTRAL
        ]
        if unknown:
            raise CheckpointError(
                f"{self.origin} has {', '.join(unknown)}, which this library does not "
                "know"
            )


def _same(tensors: Sequence[Tensor]) -> Tensor:
    return tensors[0]


def _alone(tensor: Tensor, like: Sequence[Tensor]) -> Sequence[Tensor]:
    return [tensor]


def joined(tensors: Sequence[Tensor]) -> Tensor:
    """Return one matrix with the rows of several."""
    return torch.cat([*tensors])


def cut(matrix: Tensor, like: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the parts of such a matrix."""
    return matrix.split([len(tensor) for tensor in like])


@dataclass(frozen=True)
class Stored:
    """A tensor of theirs, and the weights of ours that it holds.

    Args:
        name: Its name.
        ours: The names of the weights.
        join: Makes the tensor of the weights.
        part: Makes the weights of the tensor, each shaped like one of those given.
    """

    name: str
    ours: tuple[str, ...]
    join: Callable[[Sequence[Tensor]], Tensor] = _same
    part: Callable[[Tensor, Sequence[Tensor]], Sequence[Tensor]] = _alone


def gain_from_one(name: str, ours: str) -> Stored:
    """Return a gain that is stored as its difference from 1, as in Gemma.

    In 16 bits, adding the 1 rounds it: the norm itself would add it in 32 bits.
    """
    return Stored(
        name, (ours,), lambda gains: gains[0] - 1, lambda gain, like: [gain + 1]
    )


def renamed(
    pairs: Mapping[str, str], store: Callable[[str, str], Stored] | None = None
) -> Iterator[Stored]:
    """Yield tensors that only have another name: theirs, and ours."""
    for name, ours in pairs.items():
        yield Stored(name, (ours,)) if store is None else store(name, ours)


def _weight_name(name: str) -> str | None:
    # Old files hold the angles of rotary positions, which follow from the settings.
    return None if name.endswith(".rotary_emb.inv_freq") else name


@dataclass(frozen=True)
class Family:
    """A layout of settings and weights, under the names of ``transformers``.

    Args:
        model_type: Its name in ``config.json``.
        architecture: The class that opens it in ``transformers``.
        read: Returns the fields of a ``GPTConfig`` that settings describe.
        write: Returns the settings that describe a config; what they cannot say, they
            leave out.
        stored: Yields the tensors of a model with a config.
        known_name: Returns the name in ``stored`` of a tensor in a file, or ``None`` if
            it holds no weights.
        embedding: The name of the token embedding, which a head may be tied to.
    """

    model_type: str
    architecture: str
    read: Callable[[Settings], dict[str, Any]]
    write: Callable[[GPTConfig], dict[str, Any]]
    stored: Callable[[GPTConfig], Iterator[Stored]]
    known_name: Callable[[str], str | None] = _weight_name
    embedding: str = "model.embed_tokens.weight"

    def config(self, values: Mapping[str, Any], origin: str) -> GPTConfig:
        """Return the config that a ``config.json`` describes.

        Raises:
            CheckpointError: If a setting is missing, unknown, or does not fit.
        """
        settings = Settings(values, origin)
        settings.require("model_type", self.model_type)
        try:
            config_fields = self.read(settings)
            settings.refuse_the_rest()
            return GPTConfig(**config_fields)
        except CheckpointError:
            raise
        except (ArithmeticError, RuntimeError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{origin} has settings that do not fit: {error}"
            ) from None

    def settings(self, config: GPTConfig) -> dict[str, Any]:
        """Return the content of a ``config.json`` that describes this config.

        Raises:
            ValueError: If the family cannot do what the config says. The message names
                the settings.
        """
        written = {
            "architectures": [self.architecture],
            "model_type": self.model_type,
            # Else a family has tokens of its own there, at which its models stop.
            **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id")),
            **self.write(config),
        }
        before = _resolved(config)
        after = _resolved(self.config(written, self.architecture))
        unresolved = {name: getattr(config, name) for name in before}
        lost = [
            f"{name}={(value if unresolved[name] is None else unresolved[name])!r}"
            for name, value in before.items()
            if after[name] != value
            # Else it is None because it has no effect.
            and (value is not None or unresolved[name] is None)
        ]
        if lost:
            raise ValueError(f"{self.architecture} has no {', '.join(lost)}")
        return written

    def ours(
        self, theirs: Mapping[str, Tensor], config: GPTConfig, origin: str
    ) -> Iterator[tuple[str, Tensor]]:
        """Return our weights by name, made of theirs one tensor at a time.

        Raises:
            CheckpointError: If a weight is missing, unknown or has another shape.
        """
        names: dict[str, str] = {}
        for file_name in theirs:
            name = self.known_name(file_name)
            if name in names:
                raise CheckpointError(f"{origin} has {name} twice")
            if name is not None:
                names[name] = file_name
        shapes = on_meta(theirs)
        check_sizes(config, shapes, origin)
        like = GPT(config, device="meta").state_dict()
        expected = dict(self.theirs(like, config))
        head = names.pop(_HEAD, None) if config.tie_head else None
        check_fit(expected, {name: shapes[names[name]] for name in names}, origin)
        embedding = names[self.embedding]
        if head is not None and not torch.equal(theirs[head], theirs[embedding]):
            raise CheckpointError(
                f"{origin} ties the head to the token embedding, but their matrices "
                "differ"
            )

        def parts(stored: Stored) -> Iterator[tuple[str, Tensor]]:
            tensor, ours = theirs[names[stored.name]], stored.ours
            return zip(ours, stored.part(tensor, [like[x] for x in ours]), strict=True)

        # A loop would hold the last pair while the next one is read.
        return chain.from_iterable(map(parts, self.stored(config)))

    def theirs(
        self, ours: Mapping[str, Tensor], config: GPTConfig
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield their tensors by name, made of our weights one at a time."""
        for stored in self.stored(config):
            yield stored.name, stored.join([ours[name] for name in stored.ours])


# What changes no output, or is no part of a saved model.
_NOT_SAVED = ("dropout", "zero_init", "fused")


def _resolved(config: GPTConfig) -> dict[str, Any]:
    """Return a config's fields, with what it computes in the place of ``None``."""
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    values |= {
        "head_dim": config.d_k,
        "num_kv_heads": config.num_kv_heads or config.num_heads,
        "d_ff": config.d_ff or 4 * config.d_model,
        "qkv_bias": config.bias if config.qkv_bias is None else config.qkv_bias,
        "windows": [*map(config.window_of, range(config.num_layers))],
        "rotary_layers": [*(config.rotary_layers or [True] * config.num_layers)],
        "rotary_rates": config.rotary_rates and _rounded(config.rotary_rates),
    }
    if config.local_rotary_base is None and config.rotary_rates is None:
        values["local_rotary_base"] = config.rotary_base
    if not config.num_experts:
        values |= {"experts_per_token": None, "router_bias": False}
    if config.rotary_rates is not None:
        values["rotary_base"] = None  # it has no effect
    return {name: values[name] for name in values if name not in _NOT_SAVED}


def _rounded(numbers: Sequence[float]) -> list[str]:
    return [f"{number:.9g}" for number in numbers]
