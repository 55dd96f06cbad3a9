"""A bug that a check names is explained."""

from attention_check import KNOWN


def test_all_bugs_are_listed(command):
    lines = command("explain").out.splitlines()
    assert [line.split()[0] for line in lines] == [*KNOWN]
    first, *_ = command("explain", "--json").events
    assert first == {
        "name": "no-causal-mask",
        "mistake": "The causal mask is not applied.",
    }


def test_a_bug_is_shown_with_its_code_and_where_it_was_published(command):
    exhibit = KNOWN["no-scale"]
    ended = command("explain", "no-scale")
    assert ended.status == 0
    assert ended.out.startswith(f"{exhibit.mistake}\n\ndef no_scale(")
    assert f"\nExplained in {exhibit.url}\n" in ended.out
    (first, *_) = exhibit.published
    assert f"\nPublished: {first.url}\n" in ended.out
    report = command("explain", "no-scale", "--json").json
    assert report["published"] == [publication.url for publication in exhibit.published]
    assert report["code"] in ended.out


def test_an_unknown_bug_is_refused(refused):
    message = "there is no bug no-scal; 'explain' alone lists all (like no-scale)"
    assert refused("explain", "no-scal") == message
    assert refused("explain", "?").endswith("lists all")
