"""CTranslate2 in a process of its own, for `benchmarks/decoding.py`: one that shares a process with PyTorch is slower.

With 2 threads for one translator, single sentences are decoded at a quarter of the speed once PyTorch is imported.
This process imports neither PyTorch nor heedful. It reads a JSON object a line and writes one: `ids` are source
sentences of token ids, `batch` sentences are decoded at once, `beam` and `length` are those of the search; the answer
has the `ids` decoded, and the seconds of `wall` and `cpu` time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


class Peer:
    """A process with a translator; `call` returns its answer."""

    def __init__(self, folder: str, kind: str, threads: int, vocabulary: int) -> None:
        command = [sys.executable, str(Path(__file__)), folder, kind, str(threads), str(vocabulary)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.read()  # it is ready

    def read(self) -> dict[str, Any]:
        """Return the next answer; raise SystemExit if the process ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the process of CTranslate2 ended with {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def call(self, ids: list[list[int]], batch: int, beam: int, length: int) -> dict[str, Any]:
        """Return what it decodes for some sentences, and the time it took."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"ids": ids, "batch": batch, "beam": beam, "length": length}) + "\n")
        self.process.stdin.flush()
        return self.read()

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


def serve(folder: str, kind: str, threads: int, vocabulary: int) -> None:
    """Answer the requests on standard input."""
    import ctranslate2

    translator = ctranslate2.Translator(folder, compute_type=kind, inter_threads=1, intra_threads=threads)
    tokens = ["<pad>", "<unk>", "<s>", "</s>", *map(str, range(4, vocabulary))]
    numbers = {token: number for number, token in enumerate(tokens)}
    print(json.dumps({}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        sources = [[tokens[i] for i in row] for row in request["ids"]]
        length, batch, decoded = request["length"], request["batch"], []
        wall, cpu = time.perf_counter(), time.process_time()
        for first in range(0, len(sources), batch):
            results = translator.translate_batch(
                sources[first : first + batch],
                beam_size=request["beam"],
                min_decoding_length=length,
                max_decoding_length=length,
                max_batch_size=0,
            )
            decoded += [[numbers[token] for token in result.hypotheses[0]] for result in results]
        times = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        print(json.dumps({"ids": decoded, **times}), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
