from pathlib import Path

import torch
import transformers


def test_what_is_exported_writes_the_same_text(train, command, refused):
    words = ["--like", "llama", "--num-heads", "2", "--sample", "0"]
    assert train(*words, "--max-seq-len", "30").status == 0
    words = ["export", "runs/play", "out/play"]
    ended = command(*words)
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.startswith("out/play: runs/play as llama; Auto")
    assert "already holds a model" in refused(*words)
    line = refused(*words, "--overwrite", "--family", "gpt2")
    assert line.startswith("GPT2LMHeadModel has no positions='rotary', ")
    report = command(*words, "--overwrite", "--json").json
    assert (report["family"], report["folder"]) == ("llama", "out/play")
    files = Path("out/play").iterdir()
    assert report["bytes"] == sum(file.stat().st_size for file in files)
    model = transformers.AutoModelForCausalLM.from_pretrained("out/play")
    tokenizer = transformers.AutoTokenizer.from_pretrained("out/play")
    ids = torch.tensor([tokenizer("to be, ")["input_ids"]])
    answer = model.generate(ids, max_new_tokens=20, do_sample=False)
    options = ["--prompt", "to be, ", "--max-new-tokens", "20", "--temperature", "0"]
    for folder in ("runs/play", "out/play"):
        shown = command("generate", folder, *options)
        assert (shown.status, shown.err) == (0, "")
        assert shown.out == tokenizer.decode(answer[0]) + "\n"


def test_the_usual_model_says_how_to_train_one_that_fits(trained, refused):
    line = refused("export", str(trained), "out")
    assert line.startswith("the model fits no family: LlamaForCausalLM has no positio")
    assert line.endswith("train --like llama, or --recipe plain for a GPT-2")
    assert not Path("out").exists()


def test_it_asks_for_both_names(trained, refused):
    for words in ([], [str(trained)]):
        assert refused("export", *words).startswith("name a model and a folder")
