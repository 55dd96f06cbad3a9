from base64 import b64encode
from hashlib import sha256
from pathlib import Path

from bookbinder.publishing.headers import write_headers

PAGE = (
    '<script>a = "ä&amp;"</script><script type="module">b</script>'
    '<script src="c.js"></script><script type="application/json">{}</script>'
    "<script id=x type=text/javascript>\n d\n</script>"
)
SCRIPTS = ('a = "ä&amp;"', "b", "\n d\n")


def test_a_page_may_run_its_own_files_and_scripts_and_nothing_else(
    tmp_path: Path,
) -> None:
    for name in ("index.html", "other.html"):
        (tmp_path / name).write_text(PAGE, "utf-8")
    write_headers(tmp_path)
    first, line, *rest = (tmp_path / "_headers").read_text("utf-8").splitlines()
    assert [first, *rest] == ["/*", "  X-Content-Type-Options: nosniff"]
    text = line.removeprefix("  Content-Security-Policy: ")
    policy = dict(part.partition(" ")[::2] for part in text.split("; "))
    digests = [sha256(text.encode()).digest() for text in SCRIPTS]
    hashes = sorted(f"'sha256-{b64encode(digest).decode()}'" for digest in digests)
    assert policy.pop("script-src") == " ".join(["'self'", *hashes])
    assert (policy["default-src"], policy["style-src"]) == ("'none'", "'self'")
    unsafe = [name for name, value in policy.items() if "unsafe" in value]
    assert unsafe == ["style-src-attr"]
    assert not [value for value in policy.values() if "*" in value or "/" in value]
    (tmp_path / "search.json").touch()  # of Zensical
    write_headers(tmp_path)
    assert "style-src 'self' 'unsafe-inline';" in (tmp_path / "_headers").read_text()
