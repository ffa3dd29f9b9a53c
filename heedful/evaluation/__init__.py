"""Evaluating systems on test sets: scores, comparisons, and reports as HTML pages.

`heedful.evaluate`, `heedful.compare` and `heedful.report` are the calls. Nothing is imported here: pages are made
without torch.
"""

__all__: list[str] = []
