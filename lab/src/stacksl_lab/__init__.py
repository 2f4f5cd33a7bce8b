"""The laboratory: the paper's studies, and compiled loops over streams of arrays.

`stacksl_lab.engines.run_stream` plays one stream of arrays; `stacksl-lab reproduce STUDY` makes a
table of `stacksl_lab.studies`.
"""
