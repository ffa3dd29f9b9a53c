"""Translating files of any size: rows in, the same rows with columns added out, exactly once, on one machine or many.

`heedful.translate_files` is the call. `units` divides the inputs, `formats` and `parquet` read and write rows, `rows`
translates them, `journal` records what is done, and `run` puts this together, `ray_cluster` on many machines.
`distill` translates the sources of pairs in this way, and trains a student on the translations.
Nothing is imported here: pyarrow, zstandard and Ray are needed only for what uses them.
"""

__all__: list[str] = []
