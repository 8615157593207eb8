"""Names of remote models, and which of several servers a branch goes to."""

import pytest
from branchwise.engine.errors import UsageError
from branchwise.engine.remote.address import RemoteAddress, is_remote, parse_address
from branchwise.engine.remote.affinity import preference, root_key
from hypothesis import given
from hypothesis import strategies as st

URLS = [f"http://host{i}:8000/v1" for i in range(4)]
KEYS = st.binary(min_size=16, max_size=16)


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("remote:http://h:8000/v1#Q/Qwen3", RemoteAddress(urls=("http://h:8000/v1",), model="Q/Qwen3")),
        ("remote:https://h/v1/", RemoteAddress(urls=("https://h/v1",))),
        (
            "remote:http://a:1/v1,http://b:2/v1,http://a:1/v1?tokenizer=/m/q#x",
            RemoteAddress(urls=("http://a:1/v1", "http://b:2/v1"), model="x", tokenizer="/m/q"),
        ),
    ],
)
def test_a_name_holds_servers_model_and_tokenizer(name: str, address: RemoteAddress):
    assert is_remote(name)
    assert parse_address(name) == address


@pytest.mark.parametrize(
    "name",
    [
        "remote:",
        "remote:host:8000#m",
        "remote:ftp://h/v1",
        "remote:http://h:x/v1",
        "remote:http://h/v1?key=3",
    ],
)
def test_a_name_that_is_no_server_is_refused_in_one_line(name: str):
    with pytest.raises(UsageError) as caught:
        parse_address(name)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_name_in_results_does_not_hold_the_servers():
    assert parse_address("remote:http://secret:1/v1#m").name == "remote:m"


@given(KEYS, st.permutations(URLS))
def test_the_order_of_servers_does_not_depend_on_the_order_they_are_named_in(key: bytes, urls: list[str]):
    assert preference(key, urls) == preference(key, URLS)


@given(KEYS, st.sampled_from(URLS))
def test_a_lost_server_moves_only_the_roots_that_were_its_own(key: bytes, lost: str):
    before = preference(key, URLS)
    assert preference(key, [url for url in URLS if url != lost]) == tuple(u for u in before if u != lost)


def test_roots_spread_over_the_servers():
    first = [preference(root_key("", [i]), URLS)[0] for i in range(400)]
    assert all(60 <= first.count(url) <= 140 for url in URLS)


def test_a_namespace_is_part_of_the_root():
    assert root_key("a", [1, 2]) != root_key("b", [1, 2])
    assert root_key("a", [1, 2]) == root_key("a", (1, 2))
