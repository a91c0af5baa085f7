"""One iteration of the loop at a time, for tests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from podium.credit import Credit
from podium.engine.models import PolicyTeam
from podium.learn.lm.live import Live, LiveTeam
from podium.learn.lm.losses import update_of
from podium.learn.lm.policy import LmPolicy
from podium.learn.lm.settings import Settings
from podium.learn.lm.text_world import PlaySettings, TextWorlds
from podium.learn.loop import Rollouts, Source, learn
from podium.methods import METHODS


class Trainer:
    """A policy, where its runs come from, and what an iteration was given: its rollouts and their credit."""

    def __init__(
        self, team: PolicyTeam, settings: Settings, source: Any, update: str = "clip(token)", last: int = 5
    ) -> None:
        self.update = update_of(update)
        self.policy = LmPolicy(team, 0, settings, last, self.update, look_at_roles=isinstance(source, LiveTeam))
        self.source: Any = source
        self.last = last
        self.rollouts: list[Rollouts] = []
        self.credit: list[Credit] = []

    def step(self, method: str = "") -> SimpleNamespace:
        """The next iteration's line."""
        if method:
            self.source.method = METHODS[method]

        def keep(number: int, rollouts: Any, credit: Any) -> None:
            self.rollouts, self.credit = list(rollouts), list(credit)

        source: Source = self.source
        iterations = max(self.last, self.policy.iteration + 1)
        done = next(learn(source, self.policy, self.source.method, self.update, iterations, keep))
        return SimpleNamespace(**done.line())


def in_world(
    team: PolicyTeam,
    settings: Settings,
    play: PlaySettings,
    world: Any,
    method: str,
    update: str = "clip(token)",
    last: int = 5,
) -> Trainer:
    """Training in one world."""
    source = TextWorlds(settings, play, lambda iteration, number: world, METHODS[method], 0)
    return Trainer(team, settings, source, update, last)


def with_team(team: PolicyTeam, settings: Settings, live: Live, method: str, last: int = 10) -> Trainer:
    """Training of a live team."""
    return Trainer(team, settings, LiveTeam(settings, live, METHODS[method], 0), last=last)
