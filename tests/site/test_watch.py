"""The GPT in the reader's browser: equal to PyTorch's, and there for everyone."""

import base64
import json
import os
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Page, expect
from safetensors.torch import load_file
from torch import Tensor

from tested_transformer.decoding import Sampling, generate, sampling_probabilities
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.interpret import all_open, gated_heads, shut
from transformer_book import MODELS

pytestmark = pytest.mark.browser

NAMES = ("grammar", "shakespeare")
CHAPTER = "chapters/watch-it-think/"

# Reads each text twice: with the cache of what came before, and with none.
READ = """async ([address, name, texts]) => {
  const { GPT, encode, readSafetensors, windowStart } =
    await import(`${address}assets/js/gpt/engine.js`);
  const file = (path) => fetch(`${address}assets/models/${name}/${path}`);
  const { config, tokenizer } = await (await file("card.json")).json();
  const tensors = readSafetensors(
    await (await file("model.safetensors")).arrayBuffer());
  const packed = (arrays) => new Promise((done) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result.split(",")[1] ?? "");
    reader.readAsDataURL(new Blob(arrays));
  });
  const kept = new GPT(config, tensors);
  const read = (text) => {
    const { tokens } = encode(text, tokenizer.alphabet);
    const context = tokens.slice(windowStart(tokens.length, config.max_seq_len));
    return Promise.all([kept, new GPT(config, tensors)].map(async (gpt) => {
      gpt.read(context);
      const logits = gpt.logits.subarray(0, context.length * config.vocab_size);
      const rows = gpt.weights.flat().map((head) =>
        head.subarray(0, context.length * config.max_seq_len));
      return { context, logits: await packed([logits]), weights: await packed(rows) };
    }));
  };
  const answers = [];
  for (const text of texts) answers.push(await read(text));
  return answers;
}"""

WRITE = """async ([address, name, prompt, count, settings]) => {
  const { GPT, draw, encode, probabilities, readSafetensors, windowStart } =
    await import(`${address}assets/js/gpt/engine.js`);
  const file = (path) => fetch(`${address}assets/models/${name}/${path}`);
  const { config, tokenizer } = await (await file("card.json")).json();
  const gpt = new GPT(config, readSafetensors(
    await (await file("model.safetensors")).arrayBuffer()));
  const { tokens } = encode(prompt, tokenizer.alphabet);
  const shares = [];
  for (let step = 0; step < count; step++) {
    gpt.read(tokens.slice(windowStart(tokens.length, config.max_seq_len)));
    const last = gpt.tokens.length - 1;
    const logits = gpt.logits.subarray(
      last * config.vocab_size, (last + 1) * config.vocab_size);
    if (!step) shares.push(...settings.map((each) => [...probabilities(logits, each)]));
    tokens.push(draw(probabilities(logits, { temperature: 0, topK: 1 }), 0.5));
  }
  return { tokens, shares };
}"""


def model_of(name: str) -> tuple[GPT, str]:
    """The weights that the site ships, in full precision, and the alphabet."""
    card = json.loads((MODELS / name / "card.json").read_text("utf-8"))
    model = GPT(GPTConfig(**card["config"]))
    weights = load_file(MODELS / name / "model.safetensors")
    model.load_state_dict({key: value.float() for key, value in weights.items()})
    return model.eval(), card["tokenizer"]["alphabet"]


def unpacked(text: str, *shape: int) -> Tensor:
    data = bytearray(base64.b64decode(text))
    return torch.frombuffer(data, dtype=torch.float32).reshape(*shape)


def ready(page: Page) -> None:
    root = page.locator("[data-live=watch]")
    expect(root).to_have_attribute("data-state", "ready", timeout=20_000)


@pytest.fixture
def live(page: Page, address: str) -> Page:
    """Open the chapter, with its first model loaded."""
    page.goto(address + CHAPTER)
    ready(page)
    return page


# Both are read by one engine: the larger one each night.
@pytest.mark.parametrize("name", NAMES if os.environ.get("BOOK_NIGHTLY") else NAMES[:1])
def test_it_reads_and_writes_as_pytorch_does(
    name: str, page: Page, address: str
) -> None:
    page.goto(f"{address}404.html")
    model, alphabet = model_of(name)
    config, longest = model.config, model.config.max_seq_len
    text = "".join(alphabet[i] for i in torch.randint(len(alphabet), (2 * longest,)))
    changed = text[:7] + alphabet[-1] + text[8:17]
    texts = [text[0], text[:11], changed, text[:5], text[:longest], text]
    contexts = [1, 11, 17, 5, longest, longest // 2 + 62]
    answers = page.evaluate(READ, [address, name, texts])
    for text, length, pair in zip(texts, contexts, answers, strict=True):
        ids = [alphabet.index(character) for character in text[len(text) - length :]]
        with torch.no_grad():
            logits, maps = model(torch.tensor([ids]), return_weights=True)
        weights = torch.stack(maps)[:, 0]
        for answer in pair:
            assert answer["context"] == ids
            got = unpacked(answer["logits"], length, config.vocab_size)
            torch.testing.assert_close(got, logits[0], atol=1e-4, rtol=0)
            shape = config.num_layers, config.num_heads, length, longest
            got = unpacked(answer["weights"], *shape).tril()[..., :length]
            torch.testing.assert_close(got, weights, atol=1e-4, rtol=0)

    prompt = [alphabet.index(character) for character in "The "]
    settings = [(1.0, None), (0.7, 5), (1.5, 1), (0.0, 3)]
    asked = [{"temperature": t, "topK": k or len(alphabet)} for t, k in settings]
    got = page.evaluate(WRITE, [address, name, "The ", 150, asked])
    greedy = Sampling(temperature=0.0)
    (wanted,) = generate(model, [prompt], max_new_tokens=150, sampling=greedy)
    assert got["tokens"] == prompt + wanted
    with torch.no_grad():
        logits = model(torch.tensor([prompt]))[0, -1]
    for (temperature, top_k), shares in zip(settings, got["shares"], strict=True):
        shared = sampling_probabilities(logits, temperature=temperature, top_k=top_k)
        torch.testing.assert_close(
            torch.tensor(shares).float(), shared, atol=1e-5, rtol=0
        )


# Waits until what was drawn stands on the screen: a frame, and what follows it.
SHOWN = "new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"

# The color and the opacity in the middle of each cell of each map, layer by layer, as
# they stand on the screen: found by where the frames are.
DRAWN = """(count) => {
  const canvas = document.querySelector(".live canvas");
  const { left, top, width } = canvas.getBoundingClientRect();
  const ratio = canvas.width / width;
  const context = canvas.getContext("2d");
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  return [...document.querySelectorAll(".live .frame")].flatMap((frame) => {
    const box = frame.getBoundingClientRect();
    const middle = (cell) => ((cell + 0.5) / count) * frame.clientWidth;
    return Array.from({ length: count ** 2 }, (_, at) => {
      const x = box.left + frame.clientLeft - left + middle(at % count);
      const y = box.top + frame.clientTop - top + middle(Math.floor(at / count));
      const from = 4 * (Math.floor(y * ratio) * canvas.width + Math.floor(x * ratio));
      return [...data.slice(from, from + 4)];
    });
  });
}"""


def test_the_maps_are_the_weights_in_color_and_in_words(live: Page) -> None:
    model, alphabet = model_of("grammar")
    live.locator(".live textarea").fill("The dog sees")
    ids = torch.tensor([[alphabet.index(character) for character in "The dog sees"]])
    with torch.no_grad():
        _, maps = model(ids, return_weights=True)
    wanted = torch.stack(maps)[:, 0].reshape(-1, 12 * 12)
    for width, color in ((360, [0x35, 0x57, 0xC2]), (1280, [0x61, 0x84, 0xF2])):
        live.set_viewport_size({"width": width, "height": 900})
        live.emulate_media(color_scheme="light" if width == 360 else "dark")
        live.wait_for_timeout(100)
        live.evaluate(SHOWN)
        drawn = torch.tensor(live.evaluate(DRAWN, 12))
        opacities = drawn[:, 3].reshape(-1, 12 * 12) / 255
        torch.testing.assert_close(opacities, wanted, atol=0.003, rtol=0)
        # The first letter attends to nothing but itself.
        assert drawn[0, :3].tolist() == color

    position = live.get_by_label("Position")
    position.focus()
    for key in ("Home", *["ArrowRight"] * 4):
        live.keyboard.press(key)
    expect(position).to_have_attribute("aria-valuetext", "4: d")
    live.locator(".live summary").click()
    for layer, head, cell in ((0, 0, 0), (2, 3, -3)):
        row = maps[layer][0, head, 4]
        first = int(row.argmax())
        letter = "The dog sees"[first].replace(" ", "space")
        said = f"{row[first]:.2f} {letter} at {first}"
        expect(live.locator(".live tbody td").nth(cell)).to_have_text(said)
        radio = live.locator(".live").get_by_role("radio", name=f"{layer}.{head}")
        radio.check(force=True)
        # The position stays where it was.
        expect(live.locator(".live .says")).to_have_text(f"Most: {said}")
        expect(position).to_have_attribute("aria-valuetext", "4: d")


# The opacity of each cell of the large map, from the middle of the cell.
LARGE = """([count, beside]) => {
  const canvas = document.querySelector(".live .large");
  const ratio = canvas.width / canvas.clientWidth;
  const cell = (canvas.width - beside * ratio) / count;
  const context = canvas.getContext("2d");
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  const middle = (at) => Math.floor(beside * ratio + cell * (at + 0.5));
  return Array.from({ length: count ** 2 }, (_, at) => {
    const [row, column] = [middle(Math.floor(at / count)), middle(at % count)];
    const from = 4 * (row * canvas.width + column);
    return [...data.slice(from, from + 3)];
  });
}"""


def test_it_opens_on_the_head_that_carries_the_letter(live: Page) -> None:
    model, alphabet = model_of("grammar")
    text = "The dogs that Nilo sees sleep"
    expect(live.locator(".live textarea")).to_have_value(text)
    expect(live.locator(".live .says-head")).to_contain_text("Head 2.0, subject")
    ids = torch.tensor([[alphabet.index(character) for character in text]])
    with torch.no_grad():
        _, maps = model(ids, return_weights=True)
    live.wait_for_timeout(100)
    live.evaluate(SHOWN)
    drawn = torch.tensor(live.evaluate(LARGE, [len(text), 14])).double()
    # From the page's light gray to the full color, as far as the weight is of 1.
    empty, full = (torch.tensor(color) for color in ((245, 246, 248), (53, 87, 194)))
    wanted = maps[2][0, 0].flatten()[:, None] * (full - empty) + empty
    torch.testing.assert_close(drawn, wanted.double(), atol=3, rtol=0)

    live.locator(".live").get_by_role("button", name="dog", exact=True).click()
    expect(live.locator(".live .guesses .sign").first).to_have_text("s")
    live.locator(".live").get_by_role("button", name="dogs", exact=True).click()
    expect(live.locator(".live .guesses .sign").first).not_to_have_text("s")
    large = live.locator(".live .large")
    box = large.bounding_box()
    assert box
    cell = (box["height"] - 14) / len(text)
    large.hover(position={"x": 100, "y": 14 + 7.5 * cell})
    place = live.get_by_label("Position")
    expect(place).to_have_attribute("aria-valuetext", "7: s")
    live.mouse.move(0, 0)
    expect(place).to_have_attribute("aria-valuetext", "7: s")


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_all_of_it_is_seen_at_once(width: int, height: int, live: Page) -> None:
    live.set_viewport_size({"width": width, "height": height})
    header = live.locator(".md-header").bounding_box()
    root = live.locator("[data-live=watch]")
    live.evaluate(SHOWN)
    box = root.bounding_box()
    assert header
    assert box
    assert box["height"] <= height - header["height"]
    wide, high = root.evaluate("e => [e.scrollWidth - e.clientWidth, e.scrollHeight]")
    assert wide == 0
    assert high <= box["height"]


def test_a_muted_head_adds_nothing_until_it_is_heard_again(live: Page) -> None:
    model, alphabet = model_of("grammar")
    text = "The dogs that Nilo sees sleep"
    live.locator(".live textarea").fill(text)
    ids = torch.tensor([[alphabet.index(character) for character in text]])
    guesses = []
    for gates in (all_open(model), shut(model, [(2, 0)])):
        with torch.no_grad(), gated_heads(model, gates):
            logits = model(ids)[0, -1]
        share, token = sampling_probabilities(logits, temperature=0.8, top_k=20).max(0)
        sign = {" ": "␣"}.get(alphabet[token], alphabet[token])
        guesses.append((sign, f"{100 * share:.1f} %"))
    assert guesses[0][0] != guesses[1][0]

    live.locator(".live").get_by_role("radio").nth(8).check(force=True)
    mute = live.get_by_label("Mute head 2.0")
    for muted, heard in ((False, 0), (True, 1), (False, 0)):
        sign, share = guesses[heard]
        mute.set_checked(muted)
        expect(live.locator(".live .guesses .sign").first).to_have_text(sign)
        expect(live.locator(".live .guesses .share").first).to_have_text(share)
        assert live.locator(".live .map.muted").count() == muted


def test_it_is_used_by_the_keyboard_alone(live: Page) -> None:
    live.locator(".live select").focus()
    for name in ("dogs", "dog"):
        live.keyboard.press("Tab")
        expect(live.get_by_role("button", name=name, exact=True)).to_be_focused()
    live.keyboard.press("Tab")
    live.keyboard.press("Control+a")
    live.keyboard.type("The c")
    expect(live.locator(".live .count")).to_have_text("5 of 128 characters")
    live.keyboard.press("Tab")
    live.keyboard.press("Tab")
    expect(live.get_by_role("button", name="One token")).to_be_focused()
    live.keyboard.press("Enter")
    expect(live.locator(".live .status")).to_have_text("1 token written.")
    heads = live.locator(".live").get_by_role("radio")
    heads.first.focus()
    live.keyboard.press("ArrowRight")
    expect(heads.nth(1)).to_be_checked()
    live.get_by_role("button", name="Generate").focus()
    live.keyboard.press("Enter")
    expect(live.get_by_role("button", name="Stop")).to_be_focused()
    live.keyboard.press("Escape")
    expect(live.get_by_role("button", name="Generate")).to_be_focused()


def test_what_is_typed_over_marked_text_replaces_it_while_it_grows(live: Page) -> None:
    live.get_by_role("button", name="Generate").click()
    expect(live.get_by_role("button", name="Stop")).to_be_visible()
    live.locator(".live textarea").focus()
    live.keyboard.press("Control+a")
    live.keyboard.type("The d")
    expect(live.locator(".live textarea")).to_have_value("The d")
    expect(live.get_by_role("button", name="Generate")).to_be_visible()


def test_empty_unknown_full_and_past_it_are_said(live: Page) -> None:
    text = live.locator(".live textarea")
    status, count = live.locator(".live .status"), live.locator(".live .count")
    text.fill("")
    expect(status).to_have_text("There is nothing to read: type something.")
    expect(live.get_by_role("button", name="Generate")).to_be_disabled()
    text.fill("Thé cät 🐈")
    expect(count).to_have_text("6 of 128 characters")
    expect(status).to_contain_text("knows no such character: é ä 🐈")
    text.fill("The dog " * 16 + "s")
    expect(count).to_contain_text("the last 64 of 129 characters")


def test_a_model_that_does_not_come_is_said_and_can_be_asked_for_again(
    page: Page, address: str
) -> None:
    pattern = "**/grammar/model.safetensors"
    page.route(pattern, lambda route: route.fulfill(status=503))
    page.goto(address + CHAPTER)
    expect(page.locator(".live .status")).to_contain_text("not be loaded, status 503")
    # None is chosen now, so that a reader can choose the same again.
    expect(page.locator(".live select")).to_have_value("")
    page.unroute(pattern)
    page.locator(".live select").select_option("grammar")
    ready(page)


def test_each_model_is_small_and_comes_when_it_is_wanted(
    live: Page, built: Path
) -> None:
    models = built / "assets" / "models"
    sizes = [(models / name / "model.safetensors").stat().st_size for name in NAMES]
    assert sum(sizes) < 2_000_000
    asked = "performance.getEntriesByType('resource').map((each) => each.name).join()"
    assert "grammar/model" in live.evaluate(asked)
    assert "shakespeare/model" not in live.evaluate(asked)


@pytest.mark.browser_context_args(java_script_enabled=False)
def test_without_scripts_it_says_what_would_be_there(page: Page, address: str) -> None:
    page.goto(address + CHAPTER)
    expect(page.locator(".live", has_text="a small GPT")).to_be_visible()
