"""Takes the picture of the page of `heedful serve` that the documents show, in a real browser.

heedful demo && python benchmarks/page_picture.py demo/fixed demo/attention demo/transformer
"""

from __future__ import annotations

import argparse
import base64
import re
import shutil
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# A sentence of `heedful demo` in which one vector is not enough: who did not get keys, and who ran?
TEXT = "वह छात्र मुझे चाबियाँ नहीं दिखा रहा था इसलिए सीता दौड़ी"
COLOURS = 256  # of the picture: text and ribbons need no more
DOTS = """async (url) => {
  const image = new Image();
  image.src = url;
  await image.decode();
  const canvas = Object.assign(document.createElement("canvas"), { width: image.width, height: image.height });
  const pen = canvas.getContext("2d");
  pen.drawImage(image, 0, 0);
  const { data } = pen.getImageData(0, 0, image.width, image.height);
  let text = "";
  for (let i = 0; i < data.length; i += 32768) text += String.fromCharCode(...data.subarray(i, i + 32768));
  return [image.width, image.height, btoa(text)];
}"""


def small(dots: NDArray[np.uint8]) -> bytes:
    """Return a picture, (height, width, 3), as PNG with a palette of the commonest colours."""
    high, wide, _ = dots.shape
    found, which, counts = np.unique(dots.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True)
    palette = found[np.argsort(-counts)[:COLOURS]].astype(np.int32)
    nearest = np.concatenate(
        [((some[:, None] - palette) ** 2).sum(2).argmin(1) for some in np.array_split(found.astype(np.int32), 64)]
    ).astype(np.uint8)
    rows = np.zeros((high, 1 + wide), dtype=np.uint8)  # each begins with its filter: none
    rows[:, 1:] = nearest[which.reshape(-1)].reshape(high, wide)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", wide, high, 8, 3, 0, 0, 0)
    parts = ((b"IHDR", head), (b"PLTE", palette.astype(np.uint8).tobytes()))
    body = zlib.compress(rows.tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in (*parts, (b"IDAT", body), (b"IEND", b"")))


def served(models: list[str]) -> tuple[subprocess.Popen[str], str]:
    """Start the service; return it and its address."""
    command = [sys.executable, "-m", "heedful", "serve", *models, "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r" at (http\S+)", line):
            return process, found[1]
        sys.stderr.write(line)
    raise SystemExit("the service did not start")


def taken(browser: Any, url: str, arguments: argparse.Namespace) -> bytes:  # noqa: ANN401  (playwright is not typed here)
    """Return the page as PNG."""
    size = {"width": arguments.width, "height": 800}
    page = browser.new_page(viewport=size, color_scheme=arguments.scheme, reduced_motion="reduce")
    page.goto(url)
    page.fill("#text", arguments.text)
    for panel in range(1, 1 + len(arguments.models)):
        page.wait_for_selector(f".v-panel:nth-child({panel}) .t-translation:not(.t-streaming) .t-meta:not([hidden])")
    page.evaluate("document.activeElement.blur()")
    image: bytes = page.screenshot(full_page=True)
    blank = browser.new_page()
    wide, high, text = blank.evaluate(DOTS, "data:image/png;base64," + base64.b64encode(image).decode())
    return small(np.frombuffer(base64.b64decode(text), dtype=np.uint8).reshape(high, wide, 4)[:, :, :3])


def main() -> None:
    """Take it."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="folders of models")
    parser.add_argument("--text", default=TEXT)
    parser.add_argument("--width", type=int, default=1140)
    parser.add_argument("--scheme", choices=("light", "dark"), default="light")
    parser.add_argument("--out", type=Path, default=Path("docs/pictures/serve-page.png"))
    arguments = parser.parse_args()
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        raise SystemExit(f"there is none of these browsers: {', '.join(BROWSERS)}")
    process, url = served(arguments.models)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
            image = taken(browser, url, arguments)
    finally:
        process.terminate()
        process.wait(30)
    arguments.out.write_bytes(image)
    print(f"{arguments.out}: {len(image):,} bytes")


if __name__ == "__main__":
    main()
