from base64 import b64encode
from hashlib import sha256
from pathlib import Path

from bookbinder.publishing.policy import policy, write_headers


def hash_of(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def test_a_page_may_run_its_own_files_and_nothing_else() -> None:
    directives = dict(part.partition(" ")[::2] for part in policy([]).split("; "))
    assert directives["default-src"] == "'none'"
    assert directives["script-src"] == directives["style-src"] == "'self'"
    assert "unsafe-eval" not in str(directives)
    assert [k for k, v in directives.items() if "unsafe" in v] == ["style-src-attr"]
    assert not [v for v in directives.values() if "*" in v or "http" in v]


def test_what_is_written_into_a_page_is_allowed_by_its_text() -> None:
    page = (
        '<script>a = "ä"</script><script type="module">b</script><style>p{}</style>'
        '<script src="c.js"></script><script type="application/json">{}</script>'
        "<script id=x type=text/javascript>\n d\n</script>"
    )
    directives = dict(
        part.partition(" ")[::2] for part in policy([page, page]).split("; ")
    )
    scripts = ['a = "ä"', "b", "\n d\n"]
    wanted = ["'self'", *sorted(map(hash_of, scripts))]
    assert directives["script-src"] == " ".join(wanted)
    assert directives["style-src"] == f"'self' {hash_of('p{}')}"


def test_a_style_that_a_script_of_the_theme_adds_is_allowed_by_its_text() -> None:
    script = (
        """var a=1,Tc='p{color:red}',b='q{}';o.append(C("style",{},Tc.toString()))"""
    )
    directives = dict(
        part.partition(" ")[::2] for part in policy([], [script]).split("; ")
    )
    assert directives["style-src"] == f"'self' {hash_of('p{color:red}')}"


def test_the_headers_are_for_every_file(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "index.html").write_text("<script>a</script>", "utf-8")
    write_headers(tmp_path)
    first, *rest = (tmp_path / "_headers").read_text("utf-8").splitlines()
    assert first == "/*"
    assert all(line.startswith("  ") and ": " in line for line in rest)
    assert hash_of("a") in rest[0]
