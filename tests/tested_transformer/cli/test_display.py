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
FOUND = Validation(step=3, loss=1.5, prefix=1.25, full=1.125, gap=0.5)


def lines(seconds: float) -> tuple[io.StringIO, Display]:
    file = io.StringIO()
    return file, Display(console=Console(file=file, width=30), seconds=seconds)


def test_lines_say_where_the_run_is():
    file, display = lines(0.0)
    display.step(STEP)
    assert file.getvalue() == "step 3/11: loss 1.250, 12,346 tokens/s · 1:23 left\n"


def test_lines_are_few():
    file, display = lines(1000.0)
    for _ in range(100):
        display.step(STEP)
    assert file.getvalue() == ""
    display.step(replace(STEP, validation=FOUND))
    assert file.getvalue() == (
        "step 3: held-out loss 1.500; at some positions honest loss 1.250, in one "
        "pass 1.125\n"
    )


def test_lines_are_as_they_come_without_color_or_markup():
    file, display = lines(0.0)
    display.tell("sample", "[red]1[/red] \x1b[2J\n" + "long " * 20, when="after")
    assert file.getvalue() == "[red]1[/red] \x1b[2J\n" + "long " * 20 + "\n"


def test_on_a_terminal_there_is_a_bar_and_color():
    file = io.StringIO()
    screen = Display(console=Console(file=file, force_terminal=True, width=100))
    with screen.running(11):
        screen.step(replace(STEP, validation=FOUND))
    shown = file.getvalue()
    assert "3/11" in shown
    assert "loss 1.250 · held-out 1.500 · honest 1.250 · 12,346 tokens/s" in shown
    assert "\x1b[32mstep 3: held-out loss" in shown


def test_a_model_cannot_command_a_terminal():
    assert printable("a\x1b[2J\tb\n\x07\x9b\r\u00e9") == "a\\x1b[2J\tb\n\\x07\\x9b\\ré"
    file = io.StringIO()
    screen = Display(console=Console(file=file, force_terminal=True, color_system=None))
    screen.tell("sample", "\x1b[2J")
    assert file.getvalue() == "\\x1b[2J\n"


def test_json_is_one_object_a_line(capsys):
    display = Display(as_json=True)
    display.tell("sample", "for people", text="a\nb")
    display.step(replace(STEP, validation=FOUND))
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {"event": "sample", "text": "a\nb"}
    assert (second["event"], second["step"], second["loss"]) == ("step", 3, 1.25)
    assert second["validation"]["prefix"] == 1.25


def test_all_but_the_first_process_are_silent(capsys):
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


def test_a_bar_stays_on_one_line_however_narrow():
    for width, kept in ((100, "0:00 left"), (30, "3/11"), (9, "3/11")):
        file = io.StringIO()
        console = Console(
            file=file, force_terminal=True, width=width, color_system=None
        )
        display = Display(console=console)
        with display.running(11):
            display.step(replace(STEP, seconds_left=0.0))
            display.bar.refresh()
        assert kept in file.getvalue(), width
        assert file.getvalue().count("\n") == 1, width  # at its end


def test_what_is_seen_depends_on_who_looks(monkeypatch):
    class OnScreen(io.StringIO):
        def isatty(self):
            return True

    def has_bar():
        display = Display()
        with display.running(3):
            return display.bar is not None

    assert not has_bar()
    monkeypatch.setattr("sys.stdout", OnScreen())
    monkeypatch.setenv("TERM", "xterm")
    assert has_bar()
    monkeypatch.setenv("TERM", "dumb")
    assert not has_bar()


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
