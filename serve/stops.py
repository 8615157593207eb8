"""Stop strings of a request: they end the text that it gets."""

from collections.abc import Sequence

from ..reasoning.solution import Solution


class StopCut:
    """Cuts a text that comes in parts before the first stop string that is complete, the longest of several
    that are complete at once, and holds back what may still turn out to be the start of one. So the parts
    make no difference."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._longest = max((len(stop) for stop in stops), default=1)
        self._text = ""
        self._sent = 0
        self.cut = False

    def push(self, text: str) -> str:
        """The text that this part makes certain."""
        if self.cut:
            return ""
        start = max(0, len(self._text) - self._longest + 1)
        self._text += text
        found = [(at + len(stop), at) for stop in self._stops if (at := self._text.find(stop, start)) >= 0]
        if found:
            self.cut = True
            self._text = self._text[: min(found)[1]]
            return self._send(len(self._text))
        return self._send(len(self._text) - self._begun())

    def end(self) -> str:
        """The rest, once nothing more will come."""
        return self._send(len(self._text))

    def _begun(self) -> int:
        """Characters at the end that a stop string begins with; the longest such end."""
        for size in range(min(self._longest - 1, len(self._text)), 0, -1):
            if any(stop.startswith(self._text[-size:]) for stop in self._stops):
                return size
        return 0

    def _send(self, until: int) -> str:
        part, self._sent = self._text[self._sent : until], max(self._sent, until)
        return part


def cut_at(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """`text` up to its first stop string, and whether there was one."""
    cut = StopCut(stops)
    return cut.push(text) + cut.end(), cut.cut


def content_of(solution: Solution, stops: Sequence[str]) -> tuple[str, bool]:
    """The answer phase up to the first stop string or the first call, and whether that was a stop string."""
    return cut_at(solution.said, stops)
