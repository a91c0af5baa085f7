"""The verb that opens a gateway to programs that speak OpenAI's or Anthropic's APIs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from podium.cli.app import Json, app
from podium.cli.limits import number
from podium.cli.output import out, say
from podium.engine.chat import ChatEndpoint
from podium.gateway.serve import BadGateway, secret, serve
from podium.gateway.service import Gateway

__all__: list[str] = []


@app.command(epilog="Example: podium gateway --model tiny --out out/gateway")
def gateway(
    folder: Annotated[Path, typer.Option("--out", help="Where runs are recorded.", metavar="FOLDER")],
    model: Annotated[
        str | None,
        typer.Option(help="tiny, smollm2, or a folder with a model of transformers.", metavar="MODEL"),
    ] = None,
    upstream: Annotated[
        str | None,
        typer.Option(
            help="Instead of a model: an OpenAI-compatible endpoint, recorded and not exact.", metavar="URL"
        ),
    ] = None,
    served: Annotated[str, typer.Option(help="Of --upstream: the model's name there.", metavar="NAME")] = "",
    key_from: Annotated[
        str | None, typer.Option(help="Of --upstream: the environment variable with its key.", metavar="VARIABLE")
    ] = None,
    host: Annotated[str, typer.Option(help="Where to listen; beyond loopback a token is required.")] = "127.0.0.1",
    port: Annotated[int, number("port", "Where to listen; 0: any that is free.")] = 8421,
    token_from: Annotated[
        str | None,
        typer.Option(
            help="The environment variable with the token that programs give as their key.", metavar="VARIABLE"
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    longest: Annotated[int, number("tokens", "Tokens of an answer at most.")] = 512,
    seed: Annotated[int, number("seed", "Of what the model draws.")] = 0,
    json: Json = False,
) -> None:
    """Serve a model to agent programs and record what they do, token by token.

    A program needs no change: set OPENAI_BASE_URL to ADDRESS/v1 or ADDRESS/run/NAME/v1, ANTHROPIC_BASE_URL the same
    without /v1.
    """
    if (model is None) == (upstream is None):
        raise BadGateway("expected a --model or an --upstream, one of the two")
    token, key = secret(token_from), secret(key_from)
    secrets = tuple(secret for secret in (token, key) if secret)
    how: dict[str, Any] = {"seed": seed, "longest": longest, "secrets": secrets}
    if upstream is not None:
        service = Gateway(folder, upstream=ChatEndpoint(upstream, served, key_from=key_from, stream=False), **how)
    else:
        service = _with_model(folder, str(model), device, how)

    def ready(address: str) -> None:
        if json:
            say({"url": address, "out": str(folder), "model": model or served})
        else:
            out.print(f"gateway at {address}, runs in {folder}", soft_wrap=True)

    serve(service, host, port, token, ready)


def _with_model(folder: Path, model: str, device: str, how: dict[str, Any]) -> Gateway:
    try:
        from podium.engine.local import engines_of
        from podium.engine.models import policy_team
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("podium"):
            raise
        raise BadGateway(f"a model needs the package {error.name}: pip install 'podium[lm]'") from None
    cuda = device.startswith("cuda")
    team = policy_team(model, ["lead"], dtype="bfloat16" if cuda else "float32", device=device)
    return Gateway(folder, team, lambda: engines_of(team, "0", 256 if cuda else 32, 32, False), **how)
