"""Live teams of agents, recorded as they work, and their replay from any point."""

from podium.harness.budget import Budget
from podium.harness.replay import BadReplay, branch, replay
from podium.harness.run import Interrupted, Ran, play, run
from podium.harness.team import BadTeam, Role, Team, fingerprint
from podium.harness.tools import Tool, tool
from podium.harness.types import (
    Aggregate,
    Call,
    Delegate,
    Did,
    Fault,
    Item,
    Refused,
    Result,
    Return,
    See,
    Send,
    Spawn,
    Stop,
    Wait,
)

__all__ = [
    "Aggregate",
    "BadReplay",
    "BadTeam",
    "Budget",
    "Call",
    "Delegate",
    "Did",
    "Fault",
    "Interrupted",
    "Item",
    "Ran",
    "Refused",
    "Result",
    "Return",
    "Role",
    "See",
    "Send",
    "Spawn",
    "Stop",
    "Team",
    "Tool",
    "Wait",
    "branch",
    "fingerprint",
    "play",
    "replay",
    "run",
    "tool",
]
