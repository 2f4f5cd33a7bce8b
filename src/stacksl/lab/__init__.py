"""The laboratory: the paper's studies, and compiled loops over streams of arrays.

`run_stream` plays one array stream; `stacksl reproduce STUDY` makes a table of `lab.studies`.
"""

from stacksl.lab.engines import Engine, Mark, StreamResult, run_stream

__all__ = ["Engine", "Mark", "StreamResult", "run_stream"]
