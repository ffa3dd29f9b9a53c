"""`heedful serve`."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.options import Device, Threads, use_threads
from heedful.cli.output import log
from heedful.errors import ConfigError, install_command

if TYPE_CHECKING:
    from heedful.serve.http.models import ModelRegistry


TOKEN = "HEEDFUL_TOKEN"
PACKAGES = ("fastapi", "uvicorn", "pydantic", "starlette", "httptools", "python_multipart")  # of the extra `serve`


def serve(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL",
            help="Model folders, hf:ORG/NAME, or NAME=FOLDER; the first is the default.",
            show_default=False,
        ),
    ],
    *,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="The port; 0: any free one.")] = 8000,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A host name that requests may use; may be repeated."),
    ] = None,
    chars: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum characters of a text.")] = 20_000,
    items: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum texts of a request.")] = 128,
    sentences: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum sentences of a request (413).")] = 2_000,
    body: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum bytes of a request (413).")] = 2_000_000,
    image_bytes: Annotated[
        int, typer.Option(metavar="N", min=1, help="Maximum bytes of an image to caption (413).")
    ] = 10_000_000,
    image_pixels: Annotated[
        int, typer.Option(metavar="N", min=1, help="Maximum pixels of an image, width × height (413).")
    ] = 25_000_000,
    max_beam: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum beam size.")] = 16,
    cells: Annotated[
        int, typer.Option(metavar="N", min=1, help="Maximum source × target tokens of a figure.")
    ] = 500_000,
    png_cells: Annotated[
        int, typer.Option(metavar="N", min=1, help="Maximum source × target words of a PNG.")
    ] = 70_000,
    seconds: Annotated[float, typer.Option(metavar="X", help="Time limit of a request in seconds (504).")] = 30.0,
    requests: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum concurrent requests (429).")] = 256,
    queue: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum sentences in the queue (429).")] = 1_000,
    batch_tokens: Annotated[int, typer.Option(min=1, help="Source tokens in a batch.")] = 4096,
    batch_rows: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum sentences in a batch.")] = 64,
    lanes: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum batches that are decoded in turns.")] = 3,
    wait: Annotated[float, typer.Option(metavar="X", help="Seconds to wait for more sentences for a batch.")] = 0.02,
    drain: Annotated[float, typer.Option(metavar="X", help="Seconds to finish requests at shutdown.")] = 30.0,
    connections: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum open connections (503).")] = 1_000,
    connections_per_address: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            help="Maximum from one address (IPv6: one /64); 0: no limit, for use behind a proxy.",
        ),
    ] = 256,
    idle: Annotated[float, typer.Option(metavar="SECONDS", help="Seconds until an idle connection is closed.")] = 60.0,
    header_seconds: Annotated[float, typer.Option(metavar="X", help="Seconds to receive a header (408).")] = 10.0,
    body_seconds: Annotated[float, typer.Option(metavar="X", help="Seconds to receive a body (408).")] = 30.0,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="Allow requests from pages of this origin (https://example.org); may be repeated; '*': any.",
        ),
    ] = None,
    processes: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=2, help="2: on the CPU, one for HTTP and encoding, and one for decoding."),
    ] = 2,
    device: Device = "auto",
    threads: Threads = 0,
) -> None:
    """Serve models over HTTP, with a web page.

    The page shows the attention of each translation, or of the caption of an image. If the environment has
    HEEDFUL_TOKEN, requests need that token (Authorization: Bearer TOKEN). The API, limits and metrics:
    `docs/guide/serve.md`.
    """
    begun = time.perf_counter()
    try:
        from heedful.serve.http.models import ModelRegistry
        from heedful.serve.http.security import check_origins
        from heedful.serve.http.server import bind, fit_open_files, is_loopback, log_stream, run, url_of
        from heedful.serve.http.service import TranslationService
        from heedful.serve.limits import Limits
    except ImportError as error:
        if error.name and error.name.split(".")[0] not in PACKAGES:
            raise
        raise ConfigError(f"serving needs {error.name}: {install_command('serve')}") from None
    limits = Limits(
        chars=chars,
        items=items,
        sentences=sentences,
        body=body,
        image_bytes=image_bytes,
        image_pixels=image_pixels,
        beam=max_beam,
        cells=cells,
        png_cells=png_cells,
        seconds=seconds,
        requests=requests,
        queue=queue,
        batch_tokens=batch_tokens,
        batch_rows=batch_rows,
        batches=lanes,
        wait=wait,
        drain=drain,
        connections=connections,
        connections_per_address=connections_per_address,
        idle=idle,
        header_seconds=header_seconds,
        body_seconds=body_seconds,
    )
    origins = check_origins(cors or ())
    use_threads(threads)
    token = os.environ.get(TOKEN, "")
    if not (token.isascii() and token.isprintable()):
        raise ConfigError(f"{TOKEN}: a token may only have printable ASCII characters")
    with log_stream(), bind(host, port) as listening:  # before models are loaded, which takes longer
        if not is_loopback(host) and not token:
            log(f"{host} is reachable from other machines, without a token: set {TOKEN} to require one")
        limits = fit_open_files(limits, log)
        registry = ModelRegistry.open(models, device)
        threads = threads or _threads(registry)
        service = TranslationService(registry, limits, threads, processes)

        def ready() -> None:
            from heedful.serve.engine.processes import memory

            took, size = time.perf_counter() - begun, memory() / 2**20
            log(f"serving {', '.join(registry)} at {url_of(listening)} ({took:.1f} s, {size:,.0f} MiB)")

        run(service, listening, host, token=token, hosts=allow_host or (), origins=origins, ready=ready)


def _threads(registry: ModelRegistry) -> int:
    """Return the fastest number of threads for the first model; 0: as many as PyTorch takes."""
    from heedful.serve.http.models import EXAMPLES, example
    from heedful.translator.threads import measured_serving_threads

    translator = registry.models[registry.default]
    return measured_serving_threads(translator, example(translator) or EXAMPLES[2])
