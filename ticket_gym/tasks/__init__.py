"""Requests: the 17 templates, two solvers, the frozen benchmark and the streams without end."""

from ticket_gym.tasks.benchmark import Benchmark, get_benchmark
from ticket_gym.tasks.diagnosis import Cause, Diagnosis, diagnose
from ticket_gym.tasks.source import Stream, TaskSource, get_source
from ticket_gym.tasks.templates import TEMPLATES, Template

__all__ = [
    "TEMPLATES",
    "Benchmark",
    "Cause",
    "Diagnosis",
    "Stream",
    "TaskSource",
    "Template",
    "diagnose",
    "get_benchmark",
    "get_source",
]
