"""Records of a comparison to one page that opens anywhere: no script, no network, light and dark."""

from heedful.report.page import html
from heedful.report.records import Alignment, Corpus, Example, Machine, Model, Report

__all__ = ["Alignment", "Corpus", "Example", "Machine", "Model", "Report", "html"]
