"""The child process of a peer: JSON lines in, JSON lines out.

Run as `python worker.py ADAPTER`. The adapter is a Python file with a class `Peer`:

- `Peer(model: str, threads: int, dtype: str, positions: int, sequences: int, prefix_cache: bool)` loads the
  model for so many sequences side by side, each of so many positions at most;
- `version: str` names the program and its version;
- `run(requests, timed)` does all requests side by side and returns their sequences.

A request is a dict of `prompt` (token ids), `samples`, `new` (tokens of each sample; an end token does not
end it) and `temperature`. A sequence is a dict of `tokens` (the new ids) and `times` (if `timed`, the clock's
reading at each of them); there is one for each sample of each request, in their order.

The first line in is `{"load": {...}}` with the arguments of `Peer`, each other one `{"run": {"requests":
[...], "timed": bool, "tokens": bool}}`. Each answer is one line, with `error` if it failed.
"""

import ctypes
import importlib.util
import json
import os
import sys
import time
import traceback
from typing import Any

PR_SET_PDEATHSIG, SIGKILL = 1, 9


def main(adapter: str) -> None:
    end_with_parent()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints goes to stderr
    peer = None
    for line in sys.stdin:
        try:
            message = json.loads(line)
            if "load" in message:
                peer = load(adapter).Peer(**message["load"])
                answer = {"version": peer.version}
            else:
                answer = timed_run(peer, **message["run"])
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


def timed_run(peer: Any, requests: list[dict[str, Any]], timed: bool, tokens: bool) -> dict[str, Any]:
    """Run, and say how long it took, how many tokens it gave, and what was asked for of each sequence."""
    began = time.perf_counter()
    sequences = peer.run(requests, timed)
    answer = {"seconds": time.perf_counter() - began, "counts": [len(one["tokens"]) for one in sequences]}
    if timed:
        answer["times"] = [[moment - began for moment in one["times"]] for one in sequences]
    if tokens:
        answer["tokens"] = [one["tokens"] for one in sequences]
    return answer


def load(path: str) -> Any:
    """The adapter module, by its path."""
    spec = importlib.util.spec_from_file_location("adapter", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def end_with_parent() -> None:
    """A stopped process does not notice that nobody will wake it any more: let the kernel end it (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1])
