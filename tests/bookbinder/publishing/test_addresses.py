import re

import pytest

from bookbinder.publishing.addresses import Addresses

HOME = {
    "SITE_URL": "https://me.github.io/book/",
    "REPO_URL": "https://github.com/me/book",
}


def test_a_fork_leads_to_the_fork() -> None:
    home = Addresses.from_environment(HOME)
    assert home.site == "https://me.github.io/book/"
    assert home.commit("abc") == "https://github.com/me/book/commit/abc"
    assert home.colab("chapters/01-sums.ipynb") == (
        "https://colab.research.google.com/github/me/book/blob/notebooks/"
        "chapters/01-sums.ipynb"
    )


def test_a_book_without_a_home_leads_nowhere() -> None:
    home = Addresses.from_environment({"SITE_URL": "", "PATH": "/bin"})
    assert home == Addresses("", "")
    assert home.commit("abc") == home.colab("a.ipynb") == ""


def test_colab_is_offered_for_github_alone() -> None:
    home = Addresses(repository="https://git.example.org/me/book")
    assert home.colab("a.ipynb") == ""
    assert home.commit("abc") == "https://git.example.org/me/book/commit/abc"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("me/book", "REPO_URL=me/book: wanted an address, https://..."),
        ("javascript://x", "REPO_URL=javascript://x: wanted an address, https://..."),
        ('https://a.org/"b', 'REPO_URL=https://a.org/"b: no address has quotes'),
        ("https://a.org/$(x)", "no address has quotes"),
    ],
)
def test_what_is_no_address_is_refused(value: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Addresses.from_environment({"REPO_URL": value})
