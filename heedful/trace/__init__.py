"""Records of what a model did, without torch: traces, texts with tokens and words, read-outs, alignments, alarms."""

from heedful.trace.alarms import Alarm, AlarmRates
from heedful.trace.alignment import Alignment, JoinedAlignment, Link
from heedful.trace.readout import Readout
from heedful.trace.trace import END, Box, ImageRegions, Text, Trace, Word

__all__ = [
    "END",
    "Alarm",
    "AlarmRates",
    "Alignment",
    "Box",
    "ImageRegions",
    "JoinedAlignment",
    "Link",
    "Readout",
    "Text",
    "Trace",
    "Word",
]
