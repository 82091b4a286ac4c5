"""The laboratory: the papers' experiments, benchmarks and the demo; not part of the product."""

PACKAGES = ("trimtab", "trimtab_lab")
"""The packages that Spark's executors need to run an experiment."""
