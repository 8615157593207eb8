"""What a watcher makes of the events of a search."""

from collections.abc import Iterable

from branchwise.reasoning.events import BranchOpened, Cut, Event, Wrote


def told_texts(events: Iterable[Event]) -> dict[str, str]:
    """The text of each branch, from what was told of it alone."""
    texts: dict[str, str] = {}
    for event in events:
        match event:
            case BranchOpened(branch=branch, parent=parent):
                texts[branch] = "" if parent is None else texts[parent]
            case Wrote(branch=branch, text=text):
                texts[branch] += text
            case Cut(branch=branch, kept=kept):
                assert kept < len(texts[branch])
                texts[branch] = texts[branch][:kept]
    return texts
