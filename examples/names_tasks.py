"""Topics for the teams of `names_openai.py` and `names_langgraph.py`, and what a name is worth."""

TOPICS = ("tea", "maps", "rain", "bread", "clocks", "paint"), ("honey", "boats")  # to learn from, and held out


def tasks(n: int, seed: int, held_out: bool) -> list[str]:
    return [TOPICS[held_out][(seed + i) % len(TOPICS[held_out])] for i in range(n)]


def verify(task: str, answer: str | None) -> float:
    """The share of small letters in a name of eight."""
    return sum("a" <= letter <= "z" for letter in (answer or "")[:8]) / 8
