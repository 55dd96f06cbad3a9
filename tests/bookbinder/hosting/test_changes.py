import json
from pathlib import Path
from typing import Any

import pytest

from bookbinder.hosting.changes import (
    Change,
    body,
    changes_from,
    compare,
    main,
    pull_request_of,
)


def site(folder: Path, **pages: str) -> Path:
    for name, article in pages.items():
        page = folder / name.replace("home", "") / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(f"<nav>1 of 9</nav><article>{article}</article>", "utf-8")
    return folder


def test_what_a_reader_sees_changed_is_told_page_by_page(tmp_path: Path) -> None:
    before = site(
        tmp_path / "before",
        home="<p>Home</p>",
        same="<p>one <b>two</b></p>",
        listing="<pre><code>a = 1\nb = 2\n</code></pre>",
        picture='<p><img alt="a fall" src="x.svg"></p>',
        gone="<p>one</p><p>two</p>",
    )
    after = site(
        tmp_path / "after",
        home="<p>Home, now</p><p>more</p>",
        same="<p>one\n<i>two</i></p>",
        listing="<pre><code>a = 1\nb = 3\n</code></pre>",
        picture='<p><img alt="a rise" src="x.svg"></p>',
        new="<p>one</p>",
    )
    assert compare(before, after) == [
        Change("", 2, 1),
        Change("gone", 0, 2, after=False),
        Change("listing", 1, 1),
        Change("new", 1, 0, before=False),
        Change("picture", 1, 1),
    ]


def test_what_stands_beside_the_article_is_no_change(tmp_path: Path) -> None:
    before = site(tmp_path / "before", a="<p>one</p>")
    after = site(tmp_path / "after", a="<p>one</p>")
    page = after / "a" / "index.html"
    page.write_text(page.read_text().replace("1 of 9", "1 of 10"))
    assert compare(before, after) == []


def test_what_a_run_says_of_an_article_is_no_change(tmp_path: Path) -> None:
    before = site(tmp_path / "before", a="<pre>x</pre><p>one</p>")
    ran = '<p class="ran">First run: by <a href="#block-1">block 1</a>.</p>'
    table = '<section class="published"><p>2 of 2</p><table></table></section>'
    after = site(tmp_path / "after", a=f"<pre>x</pre>{ran}<p>one</p>{table}<p>two</p>")
    assert compare(before, after) == [Change("a", 1, 0)]


def test_the_comment_lists_each_page_before_and_after() -> None:
    changes = [
        Change("chapters/06-no-peeking", 3, 1),
        Change("", 1, 1),
        Change("new", 9, 0, before=False),
        Change("old", 0, 4, after=False),
    ]
    text = body(changes, site="https://book.example/b/", check="https://c.example/1")
    assert text.splitlines()[3:] == [
        "| page | before | after |",
        "|---|---|---|",
        "| `chapters/06-no-peeking` | [as published]"
        "(https://book.example/b/chapters/06-no-peeking/) | +3 −1 lines |",
        "| `Home` | [as published](https://book.example/b/) | +1 −1 lines |",
        "| `new` | not there | +9 −0 lines |",
        "| `old` | [as published](https://book.example/b/old/) | gone |",
        "",
        "To read them as they will be: *preview*, at the foot of "
        "[the check](https://c.example/1), is the whole site; unpack it and run "
        "`python3 -m http.server` in it.",
    ]
    assert "No page reads differently" in body([], site="", check="")
    assert "| `old` | there | gone |" in body(changes, site="", check="c")


def test_what_compare_leaves_is_what_comment_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = site(tmp_path / "before", **{"chapters/06-no-peeking": "<p>a</p>"})
    after = site(tmp_path / "after", **{"chapters/06-no-peeking": "<p>b</p>"})
    out = tmp_path / "new" / "changes.json"
    assert main(["compare", str(before), str(after), str(out)]) == 0
    assert changes_from(out.read_text()) == [Change("chapters/06-no-peeking", 1, 1)]
    assert capsys.readouterr().out == (
        "chapters/06-no-peeking: +1 −1 lines\n1 pages read differently\n"
    )


GOOD: dict[str, Any] = {
    "page": "a/b-c",
    "added": 1,
    "removed": 0,
    "before": True,
    "after": True,
}


@pytest.mark.parametrize(
    "bad",
    [
        {"page": "a](https://elsewhere.example) ["},
        {"page": "../../settings"},
        {"page": "a`b"},
        {"page": "a\n## b"},
        {"page": "a|b"},
        {"page": "@everyone"},
        {"added": "1"},
        {"removed": None},
        {"before": "yes"},
        {"more": 1},
    ],
)
def test_a_file_that_holds_anything_else_is_refused(
    bad: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert changes_from(json.dumps([GOOD])) == [Change("a/b-c", 1, 0)]
    with pytest.raises(ValueError, match="no change of a page"):
        changes_from(json.dumps([GOOD, {**GOOD, **bad}]))
    file = tmp_path / "changes.json"
    file.write_text(json.dumps([{**GOOD, **bad}]))
    assert main(["comment", str(file)]) == 1
    assert capsys.readouterr().err.startswith("changes: no change of a page: ")


def test_too_many_changes_and_no_list_are_refused() -> None:
    for text in (json.dumps([GOOD] * 101), json.dumps(GOOD), "3"):
        with pytest.raises(ValueError, match="wanted a list of at most 100 changes"):
            changes_from(text)


def test_the_pull_request_is_the_one_whose_newest_commit_was_checked() -> None:
    pulls = [{"number": 7, "head": {"sha": "a"}}, {"number": 8, "head": {"sha": "b"}}]
    assert pull_request_of(pulls, "b") == 8
    assert pull_request_of(pulls, "c") is None


class Host:
    """Stands for the host: answers what is asked, and keeps what is sent."""

    def __init__(self, comments: list[dict[str, Any]]) -> None:
        self.comments = comments
        self.sent: list[tuple[str, str, str]] = []

    def __call__(self, path: str, *rest: str, send: str | None = None) -> Any:
        method = rest[rest.index("--method") + 1] if "--method" in rest else "GET"
        if send is not None:
            self.sent.append((method, path, json.loads(send)["body"]))
            return None
        return {
            "repos/o/b/pulls": [{"number": 8, "head": {"sha": "s"}}],
            "repos/o/b": {"has_pages": True},
            "repos/o/b/pages": {"html_url": "https://o.example/b/"},
            "repos/o/b/issues/8/comments": self.comments,
        }[path]


@pytest.mark.parametrize(
    ("comments", "wanted"),
    [
        ([], ("POST", "repos/o/b/issues/8/comments")),
        # Somebody else's words are left alone, whatever they begin with.
        ([("User", 3)], ("POST", "repos/o/b/issues/8/comments")),
        ([("User", 3), ("Bot", 5)], ("PATCH", "repos/o/b/issues/comments/5")),
    ],
)
def test_there_is_one_comment_and_it_is_kept_up_to_date(
    comments: list[tuple[str, int]],
    wanted: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from bookbinder.hosting import changes

    file = tmp_path / "changes.json"
    file.write_text(json.dumps([GOOD]))
    environment = {"GH_REPO": "o/b", "HEAD_OWNER": "me", "HEAD_BRANCH": "x"}
    for name, value in {**environment, "HEAD_SHA": "s", "CHECK_URL": "u"}.items():
        monkeypatch.setenv(name, value)
    mark = body([], site="", check="").partition("\n")[0]
    host = Host([{"user": {"type": t}, "id": i, "body": mark} for t, i in comments])
    changes._comment(file, host)
    ((method, path, text),) = host.sent
    assert (method, path) == wanted
    assert "| `a/b-c` | [as published](https://o.example/b/a/b-c/) |" in text
    monkeypatch.setenv("HEAD_SHA", "another")
    assert (
        changes._comment(file, host) == "the pull request has moved on: nothing to say"
    )
    assert len(host.sent) == 1
