"""A model behind an endpoint, for agents of a team: what goes wrong is a `Fault` of the harness.

Trying again is the harness's business, so that every failure is in the trace. Needs httpx
(`pip install 'podium[serve]'`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from podium.engine.chat import Chat, ChatEndpoint, Reply, ToolCall
from podium.engine.client import EndpointFault
from podium.harness.types import Fault

__all__ = ["Chat", "Endpoint", "Reply", "ToolCall"]


class Endpoint(ChatEndpoint):
    """A model behind an OpenAI-compatible endpoint; settings are those of `podium.engine.chat.ChatEndpoint`."""

    async def chat(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] = (),
        seed: int | None = None,
        hear: Callable[[str], None] | None = None,
    ) -> Reply:
        """The model's answer to a conversation. Raises Fault."""
        try:
            return await super().chat(messages, tools, seed, hear)
        except EndpointFault as fault:
            why = f"{self.model} at {self.url}: {fault.why}"
            raise Fault(f"endpoint {fault.kind}", why, fault.retry) from None
