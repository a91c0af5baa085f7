"""A team in plain `openai`: four writers propose a name each, side by side, and an editor picks one.

    podium train examples/names_openai.toml --policy lm

trains it. Nothing in this file knows of Podium: the base URL comes from the environment.
"""

import asyncio
import json
import sys

from openai import AsyncOpenAI

LETTERS = ["a", "b", "c", "d"]
CHOICE = {"type": "json_schema", "json_schema": {"name": "choice", "schema": {"enum": LETTERS}}}


async def ask(client: AsyncOpenAI, agent: str, text: str, **more: object) -> str:
    messages = [{"role": "system", "content": agent}, {"role": "user", "content": text}]
    reply = await client.chat.completions.create(model="any", messages=messages, **more)
    return reply.choices[0].message.content or ""


async def team(topic: str) -> str:
    async with AsyncOpenAI() as client:
        names = await asyncio.gather(*(ask(client, f"name {i}", topic, max_tokens=8) for i in range(4)))
        pick = await ask(client, "pick", "\n".join(names), response_format=CHOICE)
    return names[LETTERS.index(json.loads(pick))]


sys.stdout.reconfigure(encoding="utf-8", errors="replace")
print(asyncio.run(team(sys.argv[1])))
