from bookbinder.hosting.nightly import found_in, report

LOG = """\
....F.
____ docs/chapters/06-no-peeking.md: audit ____
docs/chapters/06-no-peeking.md:12: the output differs: printed 'a', shown 'b'
README.md:40: the output differs
docs/chapters/06-no-peeking.md:12: the output differs: printed 'a', shown 'b'
=== short test summary info ===
FAILED docs/chapters/06-no-peeking.md::line 12
FAILED tests/tested_transformer/test_masks.py::test_rows - assert 1 == 2
"""


def test_pages_and_lines_come_first_and_once() -> None:
    assert found_in(LOG) == [
        "docs/chapters/06-no-peeking.md:12: the output differs: printed 'a', shown 'b'",
        "README.md:40: the output differs",
    ]


def test_without_a_page_the_tests_are_named_and_without_any_the_end() -> None:
    tests = "\n".join(line for line in LOG.splitlines() if ".md:" not in line)
    assert found_in(tests) == [
        "FAILED tests/tested_transformer/test_masks.py::test_rows - assert 1 == 2"
    ]
    assert found_in("setup: no network\nmake: *** [setup] Error 1\n") == [
        "setup: no network",
        "make: *** [setup] Error 1",
    ]


def test_nothing_in_a_log_ends_its_block() -> None:
    text = report({"newest": "a.md:1: got ```` for ```\n"}, "https://run.example")
    assert text == (
        "[The night's run](https://run.example) found:\n\n## newest\n\n"
        "`````text\na.md:1: got ```` for ```\n`````\n"
    )
