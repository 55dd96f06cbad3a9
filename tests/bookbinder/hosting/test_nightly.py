from bookbinder.hosting.nightly import found_in, report

PAGE = "docs/chapters/no-peeking.md:12: the output differs: printed 'a', shown 'b'"
TEST = "FAILED tests/tested_transformer/test_masks.py::test_rows - assert 1 == 2"


def test_pages_tests_and_settings_are_named_once() -> None:
    log = f"....F.\n____ no-peeking.md: audit ____\n{PAGE}\nE   {PAGE}\n{TEST}\n"
    log += "1 failed, 3 passed in 2.00s\n\nbf16       1 failed, 3 passed in 2.00s\n"
    log += "fp32       4 passed in 2.00s\n"
    assert found_in(log) == [PAGE, TEST, "bf16       1 failed, 3 passed in 2.00s"]


def test_a_log_that_names_neither_is_quoted_from_its_end() -> None:
    log = "setup: no network\nmake: *** [setup] Error 1\n"
    assert found_in(log) == ["setup: no network", "make: *** [setup] Error 1"]


def test_nothing_in_a_log_ends_its_block() -> None:
    text = report({"newest": "a.md:1: got ```\n"}, "https://run.example")
    assert text == (
        "[The night's run](https://run.example) found:\n\n"
        "## newest\n\n    a.md:1: got ```\n"
    )
