"""What real clients do against a gateway, and what they saw, as JSON: run by `test_clients.py` in an environment of theirs.

python clients.py NAME ADDRESS
"""

import asyncio
import json
import os
import sys
from typing import Any

ADD = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": ADD}}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def chat(url: str) -> dict[str, Any]:
    """`openai`: chat, sync; a call and its result; a stream."""
    import openai

    client = openai.OpenAI(base_url=f"{url}/run/chat/agent/ann/v1", api_key="x")
    talk: list[Any] = [user("hello")]
    first = client.chat.completions.create(model="m", messages=talk, max_tokens=6)
    talk += [first.choices[0].message.model_dump(exclude_none=True), user("go on")]
    second = client.chat.completions.create(model="m", messages=talk, max_tokens=6)
    other = [user("call")]
    third = client.chat.completions.create(model="m", messages=other, tools=[TOOL], tool_choice="required")
    message = third.choices[0].message
    other += [
        message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "3"},
    ]
    last, text = None, ""
    for chunk in client.chat.completions.create(
        model="m", messages=other, tools=[TOOL], max_tokens=7, stream=True, stream_options={"include_usage": True}
    ):
        text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
        last = chunk
    usages = [first.usage, second.usage, third.usage, last.usage]
    return {
        "calls": 4,
        "tools": 1,
        "agents": ["ann"],
        "in": [u.prompt_tokens for u in usages],
        "out": [u.completion_tokens for u in usages],
    }


def responses(url: str) -> dict[str, Any]:
    """`openai`: Responses, async, several at once, one of them a stream."""
    import openai

    async def all_of_it() -> list[Any]:
        async with openai.AsyncOpenAI(base_url=f"{url}/run/responses/agent/bob/v1", api_key="x") as client:
            some = await asyncio.gather(
                *(client.responses.create(model="m", input=f"n {i}", max_output_tokens=5) for i in range(3))
            )
            tool = {"type": "function", "name": "add", "parameters": ADD, "strict": True}
            async with client.responses.stream(
                model="m", input="call", tools=[tool], tool_choice="required"
            ) as stream:
                kinds = [event.type async for event in stream]
                final = await stream.get_final_response()
            assert kinds[-1] == "response.completed"
            assert final.output[0].type == "function_call"
            return [*some, final]

    usages = [answer.usage for answer in asyncio.run(all_of_it())]
    return {
        "calls": 4,
        "tools": 1,
        "agents": ["bob"],
        "in": [u.input_tokens for u in usages],
        "out": [u.output_tokens for u in usages],
    }


def messages(url: str) -> dict[str, Any]:
    """`anthropic`: Messages, a call and its result, a stream, a count."""
    import anthropic

    client = anthropic.Anthropic(base_url=f"{url}/run/messages/agent/eve", api_key="x")
    tools: Any = [{"name": "add", "description": "", "input_schema": ADD}]
    first = client.messages.create(
        model="c", max_tokens=60, system="be short", messages=[user("hi")], tools=tools, tool_choice={"type": "any"}
    )
    talk: Any = [user("hi"), {"role": "assistant", "content": [b.model_dump() for b in first.content]}]
    talk.append(
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": first.content[0].id, "content": "ok"}]}
    )
    count = client.messages.count_tokens(model="c", system="be short", messages=talk, tools=tools)
    with client.messages.stream(model="c", max_tokens=8, system="be short", messages=talk, tools=tools) as stream:
        text = "".join(stream.text_stream)
        last = stream.get_final_message()
    assert last.content[0].text == text if last.content else not text
    assert count.input_tokens == last.usage.input_tokens
    usages = [first.usage, last.usage]
    return {
        "calls": 2,
        "tools": 1,
        "agents": ["eve"],
        "in": [u.input_tokens for u in usages],
        "out": [u.output_tokens for u in usages],
    }


def agents(url: str) -> dict[str, Any]:
    """OpenAI's Agents SDK: a hand-over, then two tools at once."""
    from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    model = OpenAIChatCompletionsModel("m", AsyncOpenAI(base_url=f"{url}/run/agents/v1", api_key="x"))

    @function_tool
    def weather() -> str:
        return "rain"

    worker = Agent(
        name="worker",
        instructions="You work.",
        model=model,
        tools=[weather],
        model_settings=ModelSettings(tool_choice="required", max_tokens=60),
    )
    lead = Agent(
        name="lead",
        instructions="You lead.",
        model=model,
        handoffs=[worker],
        model_settings=ModelSettings(tool_choice="required", max_tokens=60),
    )
    result = Runner.run_sync(lead, "what is it like?", max_turns=6)
    usages = [answer.usage for answer in result.raw_responses]
    return {
        "calls": len(usages),
        "tools": 2,
        "agents": ["agent 1", "agent 2"],
        "in": [u.input_tokens for u in usages],
        "out": [u.output_tokens for u in usages],
    }


def graph(url: str) -> dict[str, Any]:
    """LangGraph: a fan-out to four writers, and one who reads them all."""
    import operator
    from typing import Annotated, TypedDict

    from langchain_openai import ChatOpenAI
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import Send

    class State(TypedDict):
        lines: Annotated[list[str], operator.add]
        usage: Annotated[list[Any], operator.add]

    def ask(agent: str, text: str) -> Any:
        model = ChatOpenAI(model="m", base_url=f"{url}/run/graph/agent/{agent}/v1", api_key="x", max_tokens=6)
        reply = model.invoke([("system", agent), ("user", text)])
        return {"lines": [reply.text], "usage": [reply.usage_metadata]}

    built = StateGraph(State)
    built.add_node("write", lambda s: ask(f"writer {s['number']}", "go"))
    built.add_node("read", lambda s: ask("reader", "\n".join(s["lines"])))
    built.add_conditional_edges(START, lambda s: [Send("write", {"number": i}) for i in range(4)], ["write"])
    built.add_edge("write", "read")
    built.add_edge("read", END)
    usages = built.compile().invoke({"lines": [], "usage": []})["usage"]
    who = ["reader", *(f"writer {i}" for i in range(4))]
    return {
        "calls": 5,
        "tools": 0,
        "agents": who,
        "in": [u["input_tokens"] for u in usages],
        "out": [u["output_tokens"] for u in usages],
    }


if __name__ == "__main__":
    os.environ.update(OPENAI_API_KEY="x", LANGSMITH_TRACING="false")
    print(json.dumps({f.__name__: f for f in (chat, responses, messages, agents, graph)}[sys.argv[1]](sys.argv[2])))
