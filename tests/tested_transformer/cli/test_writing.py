from collections.abc import Iterator

import pytest

from tested_transformer.cli import writing
from tested_transformer.cli.writing import default_prompt, write
from tested_transformer.data import CharTokenizer
from tested_transformer.gpt import GPT, GPTConfig

LETTERS = CharTokenizer("abcdef")


@pytest.fixture
def model() -> GPT:
    return GPT(
        GPTConfig(vocab_size=6, max_seq_len=7, d_model=12, num_heads=3, num_layers=2)
    )


def test_a_new_line_is_the_prompt_where_it_is_known() -> None:
    assert default_prompt(CharTokenizer("\nab")) == "\n"
    assert default_prompt(CharTokenizer("ba")) == "b"


def test_a_model_writes_the_same_for_the_same_seed(model: GPT) -> None:
    first, again, other = (
        "".join(write(model, LETTERS, "ab", max_new_tokens=20, seed=seed))
        for seed in (3, 3, 5)
    )
    assert first == again != other
    assert len(first) == 20


def test_after_a_stop_string_no_token_is_asked_for(
    model: GPT, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def stream(*_: object, **__: object) -> Iterator[list[tuple[int, ...]]]:
        for token in LETTERS.encode("abcdef"):
            asked.append(token)
            yield [(token,)]
        yield [()]

    monkeypatch.setattr(writing, "stream", stream)
    assert [*write(model, LETTERS, "a", stop=["cd", "x"])] == ["a", "b"]
    assert asked == [0, 1, 2, 3]
    assert [*write(model, LETTERS, "a", stop=["fa"])] == [*"abcdef"]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", "prompt='' must not be empty: the model goes on from it"),
        (
            "axbyx",
            "'x', 'y' (first at position 1) not in the alphabet of 6 characters, "
            "'abcdef'",
        ),
    ],
)
def test_a_prompt_that_cannot_be_read_is_refused(
    prompt: str, message: str, model: GPT
) -> None:
    with pytest.raises(ValueError, match=r"^('x'|prompt)") as error:
        write(model, LETTERS, prompt, max_new_tokens=2)
    assert str(error.value) == message
