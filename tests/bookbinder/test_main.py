"""The command of those who write says what it can do."""

import pytest

from bookbinder.__main__ import main


@pytest.mark.parametrize("command", ["", "outputs", "page", "chapter"])
def test_every_command_explains_itself(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--help"])
    assert ended.value.code == 0
    assert f"bookbinder {command}".strip() in capsys.readouterr().out
