"""An agent that survives its worker: model and tool calls are steps, a person approves what is risky, tokens are spent
from a budget that all agents share.

    python examples/agent.py "A weekend in Oslo"

It starts a worker and the dashboard at http://127.0.0.1:8000, and gives the agent its goal.  Kill it at any moment
(Ctrl-C, kill -9) and start it again without a goal: it goes on where it was, and repeats no call that has ended.  When
the agent asks whether it may book, answer under Questions in the dashboard, or by `tasklib answer`.

`agent-ledger.txt` has a line for each call that has ended.  The model is played by a few rules, so that the program
needs no key: put your own into `ask_model`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tasklib import AsyncTaskContext, TaskQueue

queue = TaskQueue(os.environ.get("DATABASE_URL", "sqlite:///agent.db"))
LEDGER = Path(os.environ.get("AGENT_LEDGER", "agent-ledger.txt"))
SECONDS = float(os.environ.get("AGENT_SECONDS", "1"))
"""How long each call takes: time to kill the program in."""
MOST_TURNS = 50


@dataclass
class Call:
    """A tool that the model wants to use."""

    id: str
    tool: str
    argument: str


@dataclass
class Reply:
    """What the model says: text, or calls of tools."""

    text: str = ""
    calls: list[Call] = field(default_factory=list)


@dataclass
class Verdict:
    """What a person says about a call: the dashboard shows these fields."""

    ok: bool
    reason: str = ""


RISKY = ("book_flight",)


async def ask_model(goal: str, messages: list[str]) -> Reply:
    """One request to the model."""
    await asyncio.sleep(SECONDS)
    turn = sum(message.startswith("model:") for message in messages)
    script = [
        Reply(calls=[Call("c1", "weather", "Oslo"), Call("c2", "search_flights", "Oslo")]),
        Reply(calls=[Call("c3", "book_flight", "OS-17")]),
        Reply(text=f"{goal}: sunny, and {', '.join(messages[-1:])}"),
    ]
    note(f"model {turn}")
    return script[min(turn, len(script) - 1)]


async def run_tool(call: Call) -> str:
    """One call of a tool."""
    await asyncio.sleep(SECONDS)
    answers = {"weather": "18 °C in {}", "search_flights": "flight OS-17 to {}", "book_flight": "seat 4A on {}"}
    note(f"{call.tool} {call.argument}")
    return answers[call.tool].format(call.argument)


@queue.task(context=True, max_retries=5, timeout_seconds=900)
async def agent(ctx: AsyncTaskContext, goal: str) -> str:
    """Work on a goal until the model has an answer."""
    messages: list[str] = []
    for _ in range(MOST_TURNS):
        await ctx.spend("llm-tokens", 200 + sum(map(len, messages)))
        reply = await ctx.options(retries=4, timeout_seconds=120).step(ask_model, goal, messages)
        if not reply.calls:
            return reply.text
        allowed: list[Call] = []
        for call in reply.calls:
            verdict = Verdict(ok=True)
            if call.tool in RISKY:
                question = f"May the agent run {call.tool}({call.argument!r})?"
                verdict = await ctx.options(key=call.id).wait("approval", Verdict, ask=question)
            if verdict.ok:
                allowed.append(call)
            else:
                messages.append(f"denied: {call.tool}: {verdict.reason}")
        answers = await asyncio.gather(*[ctx.options(key=call.id).step(run_tool, call) for call in allowed])
        messages += [f"model: {[call.tool for call in reply.calls]}", *answers]
    raise RuntimeError(f"no answer after {MOST_TURNS} turns")


def note(what: str) -> None:
    """A line for a call that has ended."""
    with LEDGER.open("a", encoding="utf-8") as ledger:
        ledger.write(f"{what}\n")


def main(arguments: list[str]) -> None:
    """Give the agent a goal, if there is one, and work; `--worker` without the dashboard."""
    queue.set_budget("llm-tokens", per_minute=20_000)
    goals = [argument for argument in arguments if argument != "--worker"]
    for goal in goals:
        print("the agent's task is", agent.submit(goal))
    if "--worker" in arguments:
        queue.run(concurrency=4)
        return
    import uvicorn
    from starlette.applications import Starlette
    from starlette.routing import Mount

    app = Starlette(routes=[Mount("/", queue.asgi(auth="local"))], lifespan=queue.lifespan(concurrency=4))
    uvicorn.run(app, host="127.0.0.1", port=8000)


if __name__ == "__main__":
    main(sys.argv[1:])
