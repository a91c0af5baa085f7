"""A centralised research team: a lead sends out a researcher a question, each searches, the lead puts it together."""

from podium.harness import Aggregate, Budget, Call, Return, Role, Spawn, Stop, Team, run, tool

CAPITALS = {"France": "Paris", "Peru": "Lima", "Kenya": "Nairobi"}


@tool(effect="replayable", outside=True)
async def search(query):
    """Looks a country up."""
    return f"The capital of {query} is {CAPITALS.get(query, 'unknown')}"


async def lead(see):
    if see.turn == 0:
        return [Spawn(role="researcher", task=question) for question in see.task]
    return [Aggregate(how="join"), Stop()]


async def researcher(see):
    if see.turn == 0:
        return Call(tool="search", args={"query": see.task})
    return Return(content=see.results[0] if see.results else f"nothing found on {see.task}")


team = Team(
    name="research",
    lead=lead,
    roles={"researcher": Role(researcher, tools=("search",), retries=1)},
    tools=[search],
    budget=Budget(agents=10, seconds=60.0),
    verify=lambda task, answer: sum(CAPITALS[q] in answer for q in task) / len(task),
    task=["France", "Peru", "Kenya"],
)

if __name__ == "__main__":
    ran = run(team)
    print(ran.answer, ran.reward, ran.trace, sep="\n")
