"""Counts follow a sequence through appends, truncations and forks."""

from collections import Counter

from branchwise.engine.sampling.counts import TokenCounts
from hypothesis import given
from hypothesis import strategies as st

TOKENS = st.lists(st.integers(0, 6), max_size=12)


class Counted:
    """A sequence with a prompt, and its counts."""

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens
        self.prompt_length = len(tokens)
        self.counts = TokenCounts()

    def truncate(self, position: int) -> None:
        self.counts.truncate(self.tokens, self.prompt_length, position)
        del self.tokens[position:]
        self.prompt_length = min(self.prompt_length, position)

    def fork(self) -> "Counted":
        child = Counted(self.tokens.copy())
        child.prompt_length = self.prompt_length
        child.counts = self.counts.fork()
        return child

    def check(self) -> None:
        self.counts.follow(self.tokens, self.prompt_length)
        behind = Counter(self.tokens[self.prompt_length :])
        right = {token: (times, behind[token]) for token, times in Counter(self.tokens).items()}
        assert self.counts.standing() == right
        assert self.counts.counted == len(self.tokens)


@given(prompt=TOKENS, data=st.data())
def test_counts_are_those_of_a_recount(prompt: list[int], data: st.DataObject) -> None:
    sequences = [Counted(prompt)]
    for _ in range(data.draw(st.integers(0, 12))):
        one = data.draw(st.sampled_from(sequences))
        verb = data.draw(st.sampled_from(["append", "truncate", "fork", "follow"]))
        if verb == "append":
            one.tokens.extend(data.draw(TOKENS))
        elif verb == "truncate":
            one.truncate(data.draw(st.integers(0, len(one.tokens))))
        elif verb == "fork":
            sequences.append(one.fork())
        else:
            one.check()
    for one in sequences:
        one.check()


def test_following_costs_the_new_tokens_only() -> None:
    class Watched(list[int]):
        seen = 0

        def __getitem__(self, key):
            found = super().__getitem__(key)
            Watched.seen += len(found) if isinstance(key, slice) else 1
            return found

    counts, tokens = TokenCounts(), Watched(range(1000))
    counts.follow(tokens, 900)
    tokens.append(7)
    Watched.seen = 0
    counts.follow(tokens, 900)
    assert Watched.seen == 1
