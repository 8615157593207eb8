"""An agent on the plain openai client, with a calculator of its own, that has each of its turns searched.

    branchwise serve --model reference --port 8000
    python examples/agent/agent.py "Use the calculator: 37*45 + 12"

The strategy is in the model's name, so each request may have another one.
"""

import argparse
import json
from typing import Any

import openai
from branchwise import CALCULATOR
from branchwise.reasoning.tools.calculator import evaluate

MOST_TURNS = 6


def solve(client: openai.OpenAI, model: str, problem: str) -> tuple[str, int]:
    """The answer, and how many calls were made for it; "" where the turns were used up."""
    messages: list[Any] = [{"role": "user", "content": problem}]
    calls = 0
    for _ in range(MOST_TURNS):
        tools: Any = [CALCULATOR.as_openai()]
        reply = client.chat.completions.create(model=model, messages=messages, tools=tools, seed=1)
        message = reply.choices[0].message
        if not message.tool_calls:
            return message.content or "", calls
        messages.append(message)
        for call in message.tool_calls:
            calls += 1
            messages.append({"role": "tool", "tool_call_id": call.id, "content": answer(call)})
    return "", calls


def answer(call: Any) -> str:
    """The result of a call; what is wrong with it is a result too."""
    try:
        return evaluate(json.loads(call.function.arguments)["expression"])
    except (ValueError, KeyError) as error:
        return f"error: {error}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Solve a problem with a calculator.")
    parser.add_argument("problem")
    parser.add_argument("--url", default="http://localhost:8000/v1")
    parser.add_argument("--model", default="reference:best_of_n(n=4)")
    given = parser.parse_args()
    with openai.OpenAI(base_url=given.url, api_key="any") as client:
        try:
            text, calls = solve(client, given.model, given.problem)
        except openai.OpenAIError as error:
            raise SystemExit(f"{given.url}: {error}") from None
    print(f"{text}  ({calls} calls)")


if __name__ == "__main__":
    main()
