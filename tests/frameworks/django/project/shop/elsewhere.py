"""A task in a module that nobody imports."""

from shop.tasks import task


@task
def found():
    return "found"
