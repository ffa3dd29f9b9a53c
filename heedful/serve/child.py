"""Starting a process that runs a function of this package: the decoding process, the drawing process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path

__all__ = ["spawn"]

# The same code as here, and nothing from the working directory; signals are meant for the service.
BEGIN = """
import importlib, importlib.util, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
root, module, *arguments = sys.argv[1:]
found = importlib.util.find_spec("heedful")
if found is None or not (found.origin or "").startswith(root):
    sys.path.insert(0, root)
importlib.import_module(module).main(*arguments)
"""
ROOT = Path(__file__).resolve().parents[2]


def spawn(
    module: str,
    *arguments: str,
    ours: socket.socket,
    theirs: socket.socket,
    environment: Mapping[str, str] | None = None,
) -> tuple[subprocess.Popen[bytes], Connection]:
    """Start `main` of a module with the number of a socket and further arguments; return it and the line to it.

    Both sockets are closed or taken over.
    """
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", BEGIN, str(ROOT), module, str(theirs.fileno()), *arguments],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
        return process, Connection(ours.detach())
