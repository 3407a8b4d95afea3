"""The task of a run, as an object: what `data.task` names."""

from aiayn.config.tasks import Task
from aiayn.evaluation.translation import Translation
from aiayn.parsing.task import Parsing


def task_of(name: str) -> Task:
    """Returns the task that `data.task` names."""
    tasks: dict[str, Task] = {"translation": Translation(), "parsing": Parsing()}
    return tasks[name]
