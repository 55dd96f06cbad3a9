import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from tested_transformer.cli.display import Display, Terminal, loading, printable
from tested_transformer.training import Progress, Validation

STEP = Progress(
    step=3,
    steps=11,
    loss=1.25,
    lr=0.5,
    gradient=2.0,
    tokens_per_second=12345.6,
    seconds=1.5,
    seconds_left=83.0,
)
VALIDATION = Validation(step=3, loss=1.5, prefix=1.25, full=1.125, gap=0.5)


@pytest.fixture
def shown():
    """Return a function that makes a display, and one that says what it shows."""
    file = io.StringIO()

    def make(*, seconds=1.0, **settings):
        return Display(console=Console(file=file, **settings), seconds=seconds)

    return make, file.getvalue


def test_lines_say_where_the_run_is(shown):
    make, seen = shown
    make(seconds=0.0, width=30).step(STEP)
    assert seen() == "step 3/11: loss 1.250, 12,346 tokens/s · 1:23 left\n"


def test_lines_are_few(shown):
    make, seen = shown
    display = make(seconds=1000.0)
    for _ in range(100):
        display.step(STEP)
    assert seen() == ""
    display.step(replace(STEP, validation=VALIDATION))
    assert seen() == (
        "step 3: held-out loss 1.500; at some positions honest loss 1.250, in one "
        "pass 1.125\n"
    )


def test_lines_are_as_they_come_without_color_or_markup(shown):
    make, seen = shown
    text = "[red]1[/red] \x1b[2J\n" + "long " * 20
    make(width=30).tell("sample", text, when="after")
    assert seen() == text + "\n"


def test_on_a_terminal_there_is_a_bar_and_color(shown):
    make, seen = shown
    screen = make(force_terminal=True, width=100)
    with screen.running(11):
        screen.step(replace(STEP, validation=VALIDATION))
    assert "3/11" in seen()
    assert "loss 1.250 · held-out 1.500 · honest 1.250 · 12,346 tokens/s" in seen()
    assert "\x1b[32mstep 3: held-out loss" in seen()


def test_a_model_cannot_command_a_terminal(shown):
    assert printable("a\x1b[2J\tb\n\x07\x9b\r\u00e9") == "a\\x1b[2J\tb\n\\x07\\x9b\\ré"
    make, seen = shown
    make(force_terminal=True, color_system=None).tell("sample", "\x1b[2J")
    assert seen() == "\\x1b[2J\n"


def test_json_is_one_object_a_line(capsys):
    display = Display(as_json=True)
    display.tell("sample", "for people", text="a\nb")
    display.step(replace(STEP, validation=VALIDATION))
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {"event": "sample", "text": "a\nb"}
    assert (second["event"], second["step"], second["loss"]) == ("step", 3, 1.25)
    assert second["validation"]["prefix"] == 1.25
    # All but the first process are silent.
    display = Display(as_json=True, silent=True)
    display.tell("start", "for people")
    with display.running(3):
        display.step(STEP)
    assert capsys.readouterr().out == ""


def test_nobody_left_to_read_is_told_to_the_command():
    class Closed(io.StringIO):
        def write(self, _):
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        Terminal(file=Closed()).print("anybody?")


@pytest.mark.parametrize(
    ("width", "kept"), [(100, "0:00 left"), (30, "3/11"), (9, "3/11")]
)
def test_a_bar_stays_on_one_line_however_narrow(width, kept, shown):
    make, seen = shown
    display = make(force_terminal=True, width=width, color_system=None)
    with display.running(11):
        display.step(replace(STEP, seconds_left=0.0))
        display.bar.refresh()
    assert kept in seen()
    assert seen().count("\n") == 1  # at its end


def test_what_is_seen_depends_on_who_looks(monkeypatch):
    def has_bar():
        display = Display()
        with display.running(3):
            return display.bar is not None

    assert not has_bar()
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.setattr("sys.stdout", screen)
    for terminal, expected in (("xterm", True), ("dumb", False)):
        monkeypatch.setenv("TERM", terminal)
        assert has_bar() is expected


def test_a_bar_shows_how_much_of_a_large_model_is_read(capsys, monkeypatch):
    def shown(size):
        with loading() as tell:
            tell(size // 2, size)
            tell(size, size)
        output, errors = capsys.readouterr()
        assert output == ""
        return errors

    assert shown(3 * 10**9) == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # so rich takes it for a terminal
    assert "loading" in shown(3 * 10**9)
    assert "3.0/3.0 GB" in shown(3 * 10**9)
    assert "loading" not in shown(10**6)
