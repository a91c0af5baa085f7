"""One module for each question of the survey; `podium.study.question` says what it has."""

__all__: list[str] = []
