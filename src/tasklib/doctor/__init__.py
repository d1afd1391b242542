"""What is wrong with a queue, and what to do about it: each finding with what was seen and its remedy."""

from tasklib.doctor.examining import examine
from tasklib.doctor.findings import Fault, Finding, Thresholds

__all__ = ["Fault", "Finding", "Thresholds", "examine"]
