"""The version, in one place; and how packages are installed that this heedful can do without."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from shlex import quote

__all__ = ["__version__", "install_command", "pip_command"]

__version__ = "0.1.0"


def pip_command() -> str:
    """Return the pip that installs for this Python: `pip`, `.venv/bin/pip`, or `python -m pip` with a path."""
    pip = Path(sys.executable).parent / "pip"
    if shutil.which("pip") == str(pip):
        return "pip"
    if not pip.exists():
        return f"{quote(_short(Path(sys.executable)))} -m pip"
    return quote(_short(pip))


def install_command(extra: str) -> str:
    """Return the command that installs an extra, such as serve, for a checkout of heedful or for the package."""
    root = Path(__file__).resolve().parent.parent
    name = _short(root) if (root / "pyproject.toml").is_file() else "heedful"
    return f"{pip_command()} install {quote(f'{name}[{extra}]')}"


def _short(path: Path) -> str:
    """Return a path from the current folder on, if it lies in there; always as one, and not as a name."""
    try:
        found = str(path.relative_to(os.getcwd()))
    except (ValueError, OSError):
        return str(path)
    return found if found == "." or found.startswith(".venv") else f".{os.sep}{found}"
