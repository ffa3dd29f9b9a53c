"""Records of a comparison to one page that opens anywhere: no network, light and dark."""

from heedful.report.compared import Compared, Sentence, compared_page
from heedful.report.outcome import Outcome, Shown, Standing, outcome_page
from heedful.report.page import html
from heedful.report.records import Alignment, Corpus, Example, Machine, Model, Report

__all__ = [
    "Alignment",
    "Compared",
    "Corpus",
    "Example",
    "Machine",
    "Model",
    "Outcome",
    "Report",
    "Sentence",
    "Shown",
    "Standing",
    "compared_page",
    "html",
    "outcome_page",
]
