"""The verb that opens runs in a browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from podium.cli.app import Json, Paths, app
from podium.cli.limits import number
from podium.cli.output import out, say
from podium.plain import plain
from podium.trace import files
from podium.view.answers import Library
from podium.view.page import file_page
from podium.view.serve import Server, serve

__all__ = ["view"]


@app.command(epilog="Example: podium view runs/ --html runs.html")
def view(
    paths: Paths,
    html: Annotated[
        Path | None, typer.Option(help="Write the page as one file that needs no server.", metavar="FILE")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="With --html: a method whose credit the file carries; repeatable.", metavar="NAME"),
    ] = None,
    content: Annotated[
        bool | None,
        typer.Option(
            "--content/--no-content",
            help="Keep the content of logs of other systems, without keys. A served page does, a file does not.",
        ),
    ] = None,
    port: Annotated[int, number("port", "Which port of this machine; 0 takes one that is free.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open a browser.")] = True,
    json: Json = False,
) -> None:
    """See runs, trainings and folders of both in a browser: who did what when, credit, safety, what to compare."""
    library = Library(paths, content=html is None if content is None else content)
    counts = {"runs": len(library.runs), "trainings": len(library.trainings), "unreadable": library.unreadable}
    if html is not None:
        files.write_whole(html, file_page(library, methods=method).encode())
        if json:
            say(counts | {"page": str(html)})
        else:
            out.print(plain(f"page: {html}"))
        return
    title = library.runs[0][1].trace_id_n[0] if len(library.runs) == 1 else f"{len(library.runs)} runs"

    def ready(address: str) -> None:
        if json:
            say(counts | {"page": address})
        else:
            out.print(plain(f"{address}\nCtrl-C ends it."), soft_wrap=True)
        if browser:
            webbrowser.open(address)

    serve(Server(library, port, str(title)), ready)
