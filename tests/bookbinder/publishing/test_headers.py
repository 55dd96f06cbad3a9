from base64 import b64encode
from hashlib import sha256
from pathlib import Path

from bookbinder.publishing.headers import policy, write_headers

PAGE = (
    '<script>a = "ä&amp;"</script><script type="module">b</script>'
    '<script src="c.js"></script><script type="application/json">{}</script>'
    "<script id=x type=text/javascript>\n d\n</script>"
)


def hash_of(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def directives(text: str) -> dict[str, str]:
    return dict(part.partition(" ")[::2] for part in text.split("; "))


def test_a_page_may_run_its_own_files_and_nothing_else() -> None:
    found = directives(policy([]))
    assert found["default-src"] == "'none'"
    assert found["script-src"] == found["style-src"] == "'self'"
    assert [name for name, value in found.items() if "unsafe" in value] == [
        "style-src-attr"
    ]
    assert not [value for value in found.values() if "*" in value or "http" in value]


def test_what_is_written_into_a_page_is_allowed_by_its_text() -> None:
    hashes = sorted(map(hash_of, ['a = "ä&amp;"', "b", "\n d\n"]))
    allowed = directives(policy([PAGE, PAGE]))["script-src"]
    assert allowed == " ".join(["'self'", *hashes])


def test_the_headers_are_for_every_file_of_either_engine(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(PAGE, "utf-8")
    write_headers(tmp_path)
    first, *rest = (tmp_path / "_headers").read_text("utf-8").splitlines()
    assert first == "/*"
    assert all(line.startswith("  ") and ": " in line for line in rest)
    assert hash_of("b") in rest[0]
    assert "style-src 'self';" in rest[0]
    (tmp_path / "search.json").touch()
    write_headers(tmp_path)
    text = (tmp_path / "_headers").read_text("utf-8")
    assert "style-src 'self' 'unsafe-inline';" in text
