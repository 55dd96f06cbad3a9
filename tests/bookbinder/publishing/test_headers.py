from base64 import b64encode
from hashlib import sha256
from pathlib import Path

from bookbinder.publishing.headers import write_headers

PAGE = (
    '<script>a = "ä&amp;"</script><script type="module">b</script>'
    '<script src="c.js"></script><script type="application/json">{}</script>'
    "<script id=x type=text/javascript>\n d\n</script>"
)


def policy(site: Path) -> dict[str, str]:
    write_headers(site)
    first, line, *rest = (site / "_headers").read_text("utf-8").splitlines()
    assert [first, *rest] == ["/*", "  X-Content-Type-Options: nosniff"]
    text = line.removeprefix("  Content-Security-Policy: ")
    return dict(part.partition(" ")[::2] for part in text.split("; "))


def test_a_page_may_run_its_own_files_and_nothing_else(tmp_path: Path) -> None:
    directives = policy(tmp_path)
    assert directives["default-src"] == "'none'"
    assert directives["script-src"] == directives["style-src"] == "'self'"
    unsafe = [name for name, value in directives.items() if "unsafe" in value]
    assert unsafe == ["style-src-attr"]
    assert not [value for value in directives.values() if "*" in value or "/" in value]
    (tmp_path / "search.json").touch()
    assert policy(tmp_path)["style-src"] == "'self' 'unsafe-inline'"


def test_a_script_in_a_page_is_allowed_by_the_hash_of_its_text(tmp_path: Path) -> None:
    for name in ("index.html", "other.html"):
        (tmp_path / name).write_text(PAGE, "utf-8")
    digests = [
        sha256(text.encode()).digest() for text in ('a = "ä&amp;"', "b", "\n d\n")
    ]
    hashes = sorted(f"'sha256-{b64encode(digest).decode()}'" for digest in digests)
    assert policy(tmp_path)["script-src"] == " ".join(["'self'", *hashes])
