"""The examples in the docstrings of what a project imports run and print what they say."""

import doctest
import inspect

from django.db import transaction
from django.test import TestCase

from shop import tasks
from tasklib.contrib import django
from tasklib.contrib.django import testing

NAMES = {name: getattr(module, name) for module in (django, testing) for name in module.__all__}


class Docstrings(TestCase):
    def test_everything_has_an_example_that_runs(self):
        for name, value in NAMES.items():
            with self.subTest(name), transaction.atomic():
                known = {**NAMES, "task": tasks.task, "add": tasks.add, "__name__": tasks.__name__}
                example = doctest.DocTestParser().get_doctest(inspect.getdoc(value), known, name, None, None)
                printed = []
                failed = doctest.DocTestRunner(verbose=False).run(example, out=printed.append)
                transaction.set_rollback(True)
                self.assertGreater(len(example.examples), 0)
                self.assertEqual(failed.failed, 0, "".join(printed))
