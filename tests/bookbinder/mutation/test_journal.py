"""What is known is known as long as what it rests on is the same."""

from pathlib import Path

from bookbinder.mutation.report import Journal


def test_a_saying_is_known_until_what_it_rests_on_changes(tmp_path: Path) -> None:
    states = {"test_a": "1", "test_b": "1", "": "1"}

    def known() -> dict[str, str]:
        return Journal(tmp_path / "kept.jsonl", states.__getitem__).known

    journal = Journal(tmp_path / "kept.jsonl", states.__getitem__)
    for key, said in {"one": "test_a", "two": "test_b", "three": ""}.items():
        journal.write(key, said)
    assert known() == {"one": "test_a", "two": "test_b", "three": ""}
    states["test_b"] = states[""] = "2"
    assert known() == {"one": "test_a"}


def test_a_line_cut_off_as_it_was_written_is_left_out(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "kept.jsonl")
    journal.write("one", ["by", 1])
    with journal.file.open("a") as sink:
        sink.write('{"key": "two", "sa')
    assert Journal(journal.file).known == {"one": ["by", 1]}
