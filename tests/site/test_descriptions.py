"""Each page has a description of its own, for search engines and previews of links."""

import re
from collections import Counter


def test_each_page_has_a_description_of_its_own(html: dict[str, str]) -> None:
    found = {
        address: re.findall(r'<meta name="description" content="([^"]*)"', page)
        for address, page in html.items()
    }
    assert {len(each) for each in found.values()} == {1}
    texts = Counter(each[0] for each in found.values())
    assert [text for text, count in texts.items() if count > 1] == []
    assert all(20 < len(text) < 180 for text in texts)
