"""A LangGraph agent, with a calculator of its own, that has each of its turns searched.

    pip install "branchwise[langgraph]"
    branchwise serve --model reference --port 8000
    python examples/langgraph/agent.py "Use the calculator: 37*45 + 12"

The strategy is in the model's name, or in the body of each request beside its budget:

    python examples/langgraph/agent.py "Use the calculator: 37*45 + 12" --model reference \\
        --strategy "self_consistency(n=5)" --tokens 300
"""

import argparse
from typing import Any

import openai
from branchwise.reasoning.tools.calculator import evaluate
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

MOST_STEPS = 12
"""Steps of the graph for one problem; a turn of the model is one, and its calls are another."""


@tool
def calculator(expression: str) -> str:
    """Compute an expression of numbers with + - * / // % ** and brackets, exactly."""
    try:
        return evaluate(expression)
    except ValueError as error:
        return f"error: {error}"


def chat_model(url: str, model: str, **body: Any) -> ChatOpenAI:
    """The served model; `body` are fields of each request that are not OpenAI's."""
    return ChatOpenAI(model=model, base_url=url, api_key="any", seed=1, extra_body=body)  # pyright: ignore


def solve(chat: ChatOpenAI, problem: str) -> tuple[str, int]:
    """The answer, and how many calls were made for it. Raises `GraphRecursionError` where there is no end."""
    agent = create_agent(chat, [calculator])
    asked: Any = {"messages": [{"role": "user", "content": problem}]}
    messages = agent.invoke(asked, {"recursion_limit": MOST_STEPS})["messages"]
    return messages[-1].text, sum(isinstance(message, ToolMessage) for message in messages)


def main() -> None:
    parser = argparse.ArgumentParser(description="Solve a problem with a calculator.")
    parser.add_argument("problem")
    parser.add_argument("--url", default="http://localhost:8000/v1")
    parser.add_argument("--model", default="reference:best_of_n(n=4)")
    parser.add_argument("--strategy", help="where the model's name has none")
    parser.add_argument("--tokens", type=int, default=2000, help="the budget of each turn")
    given = parser.parse_args()
    body: dict[str, Any] = {"budget": {"tokens": given.tokens}}
    if given.strategy:
        body["strategy"] = given.strategy
    try:
        text, calls = solve(chat_model(given.url, given.model, **body), given.problem)
    except openai.OpenAIError as error:
        raise SystemExit(f"{given.url}: {error}") from None
    print(f"{text}  ({calls} calls)")


if __name__ == "__main__":
    main()
