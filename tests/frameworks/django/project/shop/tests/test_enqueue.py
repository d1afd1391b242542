"""Enqueueing: with the data or not at all, under the names and times of Django's framework."""

import asyncio
from datetime import timedelta

from asgiref.sync import async_to_sync
from django.db import connections, transaction
from django.test import TestCase, TransactionTestCase, override_settings
from django.utils import timezone

from shop import elsewhere, tasks
from shop.models import Order
from tasklib.contrib.django import TaskCancelled, get_queue, queue_task, with_options
from tasklib.contrib.django.framework import (
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultMismatch,
    TaskResultStatus,
    task_backends,
)
from tasklib.contrib.django.models import Task
from tasklib.contrib.django.testing import run_tasks
from tasklib.errors import UniqueConflict, WorkerLost


class Rollback(Exception):
    pass


class Enqueue(TransactionTestCase):
    databases = {"default", "other"}

    def test_it_is_committed_with_the_data(self):
        with transaction.atomic():
            Order.objects.create(item="book")
            result = tasks.add.enqueue(1)
            self.assertEqual(result.status, TaskResultStatus.READY)
        self.assertEqual(tasks.add.get_result(result.id).status, TaskResultStatus.READY)

    def test_it_is_undone_with_the_data(self):
        with self.assertRaises(Rollback), transaction.atomic():
            Order.objects.create(item="book")
            result = tasks.add.enqueue(1)
            raise Rollback
        with self.assertRaises(TaskResultDoesNotExist):
            tasks.add.get_result(result.id)
        self.assertEqual(Task.objects.count(), 0)

    def test_many_at_once_are_undone_with_the_data(self):
        many = queue_task(tasks.double.using(queue_name="emails", priority=3))
        with self.assertRaises(Rollback), transaction.atomic():
            many.submit_many({"number": number} for number in range(3000))
            raise Rollback
        self.assertEqual(Task.objects.count(), 0)
        many.submit_many([{"number": 5}])
        (result,) = run_tasks()
        found = (result.return_value, result.args, result.kwargs, result.task.queue_name, result.task.priority)
        self.assertEqual(found, (10, [], {"number": 5}, "emails", 3))

    def test_an_argument_that_the_task_does_not_take_is_named(self):
        with self.assertRaisesRegex(TypeError, "shop.tasks.double: .* 'number'"):
            queue_task(tasks.double).bind(numbr=1)
        with self.assertRaisesRegex(InvalidTask, "unique_key is for enqueue"):
            queue_task(with_options(tasks.double, unique_key="once"))

    def test_a_savepoint_undoes_it_too(self):
        with transaction.atomic():
            kept = tasks.add.enqueue(1)
            with self.assertRaises(Rollback), transaction.atomic():
                tasks.add.enqueue(2)
                raise Rollback
        self.assertEqual([str(task.id) for task in Task.objects.all()], [kept.id])

    def test_a_transaction_of_another_database_decides_by_its_commit(self):
        with transaction.atomic(using="other"):
            result = tasks.add.enqueue(1)
            self.assertIsNone(result.enqueued_at)
            self.assertEqual(Task.objects.count(), 0)
        self.assertIsNotNone(result.enqueued_at)
        self.assertEqual(tasks.add.get_result(result.id).args, [1])
        with self.assertRaises(Rollback), transaction.atomic(using="other"):
            tasks.add.enqueue(2)
            raise Rollback
        self.assertEqual(Task.objects.count(), 1)

    def test_both_transactions_decide_where_both_are_open(self):
        with self.assertRaises(Rollback), transaction.atomic(using="other"), transaction.atomic():
            tasks.add.enqueue(1)
            raise Rollback
        self.assertEqual(Task.objects.count(), 0)

    def test_tables_are_emptied_between_tests(self):
        self.assertEqual(Task.objects.count(), 0)
        tasks.add.enqueue(1)

    test_tables_are_emptied_between_tests_again = test_tables_are_emptied_between_tests

    def test_no_connection_beside_djangos_is_opened(self):
        tasks.add.enqueue(1)
        used = {each.alias for each in connections.all(initialized_only=True) if each.connection is not None}
        self.assertLessEqual(used, {"default", "other"})

    @override_settings(
        TASKS={"default": {"BACKEND": "tasklib.contrib.django.TasklibBackend", "OPTIONS": {"database": "other"}}}
    )
    def test_options_choose_the_database(self):
        result = tasks.add.enqueue(1)
        self.assertEqual(str(Task.objects.using("other").get().id), result.id)
        self.assertEqual(Task.objects.count(), 0)
        with self.assertRaises(Rollback), transaction.atomic(using="other"):
            tasks.add.enqueue(2)
            raise Rollback
        self.assertEqual(Task.objects.using("other").count(), 1)

    @override_settings(DATABASE_ROUTERS=["shop.tests.test_enqueue.Elsewhere"])
    def test_routers_choose_the_database(self):
        with self.assertRaises(Rollback), transaction.atomic(using="other"):
            tasks.add.enqueue(1)
            raise Rollback
        with transaction.atomic(using="other"):
            result = tasks.add.enqueue(2)
        self.assertEqual([str(task.id) for task in Task.objects.using("other")], [result.id])
        self.assertEqual(tasks.add.get_result(result.id).args, [2])
        self.assertEqual([result.return_value for result in run_tasks()], [3])


class Elsewhere:
    def db_for_write(self, model, **_):
        return "other" if model is Task else None

    db_for_read = db_for_write


class Results(TestCase):
    def test_every_capability(self):
        backend = task_backends["default"]
        flags = ("supports_defer", "supports_async_task", "supports_get_result", "supports_priority")
        self.assertTrue(all(getattr(backend, flag) for flag in flags))

    def test_arguments_are_as_they_were_given(self):
        result = tasks.mail.enqueue("ada", "bob", "eve", subject="S", cc="kay")
        for each in (result, tasks.mail.get_result(result.id)):
            self.assertEqual(each.args, ["ada", "bob", "eve"])
            self.assertEqual(each.kwargs, {"subject": "S", "cc": "kay"})
            self.assertEqual((each.task.queue_name, each.task.priority), ("emails", 10))
        self.assertEqual(
            Task.objects.get().kwargs, {"to": "ada", "*copies": ["bob", "eve"], "subject": "S", "cc": "kay"}
        )

    def test_a_call_that_the_function_would_refuse_is_refused_now(self):
        for args, kwargs in (((), {}), ((1, 2, 3), {}), ((1,), {"c": 1})):
            with self.assertRaisesRegex(TypeError, "nothing was enqueued"):
                tasks.add.enqueue(*args, **kwargs)
        with self.assertRaisesRegex(TypeError, "nothing was enqueued"):
            tasks.add.enqueue(object())

    def test_refresh(self):
        result = tasks.add.enqueue(1, 2)
        with self.assertRaisesMessage(ValueError, "Task has not finished yet"):
            _ = result.return_value
        run_tasks()
        result.refresh()
        self.assertEqual((result.status, result.return_value, result.attempts), (TaskResultStatus.SUCCESSFUL, 3, 1))
        self.assertLessEqual(result.started_at, result.finished_at)
        self.assertEqual(result.last_attempted_at, result.started_at)
        self.assertTrue(result.is_finished)

    def test_the_awaiting_forms(self):
        async def both():
            result = await tasks.add.aenqueue(1, b=1)
            await result.arefresh()
            return await tasks.add.aget_result(result.id)

        self.assertEqual(async_to_sync(both)().kwargs, {"b": 1})

    def test_unknown_and_foreign_ids(self):
        for unknown in ("nonsense", "01a1e74c-6647-767a-9bb7-24a68b679c74", ""):
            with self.assertRaises(TaskResultDoesNotExist):
                tasks.add.get_result(unknown)
        result = tasks.add.enqueue(1)
        with self.assertRaises(TaskResultMismatch):
            tasks.pay.get_result(result.id)

    def test_using(self):
        when = timezone.now() + timedelta(hours=1)
        task = tasks.add.using(priority=-5, queue_name="emails", run_after=when)
        result = tasks.add.get_result(task.enqueue(1).id)
        self.assertEqual((result.task.priority, result.task.queue_name), (-5, "emails"))
        self.assertLess(abs(result.task.run_after - when), timedelta(milliseconds=2))
        self.assertIsNone(tasks.add.get_result(tasks.add.enqueue(1).id).task.run_after)
        with self.assertRaises(InvalidTask):
            tasks.add.using(queue_name="nowhere")
        with self.assertRaises(InvalidTask):
            tasks.add.using(priority=101)

    @override_settings(USE_TZ=False)
    def test_without_time_zones(self):
        when = timezone.now() + timedelta(hours=1)
        result = tasks.add.get_result(tasks.add.using(run_after=when).enqueue(1).id)
        self.assertTrue(timezone.is_naive(result.enqueued_at))
        self.assertLess(abs(result.task.run_after - when), timedelta(milliseconds=2))

    def test_a_cancelled_task_has_failed(self):
        result = tasks.add.enqueue(1)
        get_queue().cancel(result.id)
        result.refresh()
        self.assertEqual(result.status, TaskResultStatus.FAILED)
        self.assertIs(result.errors[-1].exception_class, TaskCancelled)
        with self.assertRaisesMessage(ValueError, "Task failed"):
            _ = result.return_value

    def test_a_buried_task_has_failed(self):
        result = tasks.add.enqueue(1)
        error = "tasklib.errors.WorkerLost: worker w on host h stopped answering"
        past = [
            {"number": 1, "started_at": None, "ended_at": None, "worker_id": "w", "outcome": "lost", "error": error}
        ]
        Task.objects.update(state="buried", completed_at=timezone.now(), attempts=1, error=error)
        self.assertIs(tasks.add.get_result(result.id).errors[-1].exception_class, WorkerLost)
        self.assertEqual(tasks.add.get_result(result.id).status, TaskResultStatus.FAILED)
        self.assertEqual(past[0]["outcome"], "lost")

    def test_one_that_waits_for_a_retry_is_ready(self):
        result = tasks.decline_twice.enqueue()
        run_tasks(limit=1)
        result.refresh()
        self.assertEqual((result.status, result.attempts), (TaskResultStatus.READY, 1))
        self.assertIs(result.errors[0].exception_class, tasks.Declined)
        self.assertIn("Traceback", result.errors[0].traceback)

    def test_unique_keys(self):
        first = with_options(tasks.add, unique_key="sum-{a}").enqueue(1)
        self.assertEqual(with_options(tasks.add, unique_key="sum-{a}").enqueue(1).id, first.id)
        self.assertNotEqual(with_options(tasks.add, unique_key="sum-{a}").enqueue(2).id, first.id)
        with self.assertRaises(UniqueConflict):
            with_options(tasks.add, unique_key="sum-1", on_conflict="raise").enqueue(1)
        with self.assertRaisesRegex(InvalidTask, "names no argument 'c'"):
            with_options(tasks.add, unique_key="{c}").enqueue(1)

    def test_options_are_checked_when_they_are_given(self):
        for options in ({"max_retries": -1}, {"no_such_option": 1}, {"priority": 1}, {"isolation": "moon"}):
            with self.assertRaises(InvalidTask):
                with_options(tasks.add, **options)
        with self.assertRaisesRegex(InvalidTask, "transactional"):
            with_options(tasks.apay, transactional=True)
        with self.assertRaisesRegex(InvalidTask, "goes over @task"):
            with_options(tasks.add.func, max_retries=1)

    def test_another_backend_leaves_options_out_and_says_so(self):
        plain = tasks.task(backend="immediate")(tasks.add.func)
        with self.assertWarnsRegex(RuntimeWarning, "ImmediateBackend knows no options of tasklib"):
            self.assertIs(with_options(plain, max_retries=1), plain)

    def test_options_are_stored_with_the_task(self):
        with_options(tasks.add, max_retries=7, timeout_seconds=2.5, tags={"tenant": 4}).enqueue(1)
        stored = Task.objects.get()
        self.assertEqual((stored.max_retries, stored.timeout_seconds, stored.tags), (7, 2.5, {"tenant": 4}))

    def test_rows_are_not_saved_or_deleted_by_the_orm(self):
        tasks.add.enqueue(1)
        with self.assertRaises(TypeError):
            Task.objects.get().save()
        with self.assertRaises(TypeError):
            Task.objects.get().delete()

    def test_the_queue_behind_it(self):
        result = tasks.add.enqueue(1)
        self.assertEqual(get_queue().count(state="pending"), 1)
        self.assertTrue(get_queue().explain(result.id).reasons)
        get_queue().pause("shop.tasks.add")
        self.assertEqual(run_tasks(), [])
        get_queue().resume("shop.tasks.add")
        self.assertEqual(len(run_tasks()), 1)


class LikeImmediate(TestCase):
    """The same scenarios with Django's own ImmediateBackend give the same results."""

    def both(self, task, *args, **kwargs):
        ours, theirs = task.enqueue(*args, **kwargs), task.using(backend="immediate").enqueue(*args, **kwargs)
        run_tasks()
        return task.get_result(ours.id), theirs

    def test_results(self):
        order = Order.objects.create(item="book")
        for task, args, kwargs in (
            (tasks.add, (1,), {"b": 2}),
            (tasks.add, (), {"a": 1}),
            (tasks.pay, (order.pk,), {}),
            (tasks.apay, (order.pk,), {}),
            (tasks.mail, ("ada", "bob"), {"subject": "S", "x": [1, {"y": None}]}),
            (tasks.attempt, (), {}),
            (tasks.decline, ("why",), {}),
            (tasks.unstorable, (), {}),
        ):
            with self.subTest(task=task.name):
                ours, theirs = self.both(task, *args, **kwargs)
                for name in ("status", "args", "kwargs", "attempts", "is_finished"):
                    self.assertEqual(getattr(ours, name), getattr(theirs, name), name)
                self.assertEqual(
                    [each.exception_class for each in ours.errors], [each.exception_class for each in theirs.errors]
                )
                self.assertEqual(ours.task.module_path, theirs.task.module_path)
                if ours.status == TaskResultStatus.SUCCESSFUL and task is not tasks.attempt:
                    self.assertEqual(ours.return_value, theirs.return_value)


class RunTasks(TestCase):
    def test_it_runs_in_this_transaction(self):
        order = Order.objects.create(item="book")
        tasks.pay.enqueue(order.pk)
        tasks.apay.enqueue(order.pk)
        self.assertEqual([result.return_value for result in run_tasks()], [order.pk, order.pk])
        order.refresh_from_db()
        self.assertTrue(order.paid)

    def test_what_tasks_enqueue_runs_too(self):
        tasks.enqueue_more.enqueue(3)
        self.assertEqual(len(run_tasks()), 4)
        self.assertEqual(run_tasks(), [])

    def test_time_can_be_taken_to_have_come(self):
        tasks.add.using(run_after=timezone.now() + timedelta(days=3)).enqueue(1)
        tasks.attempt.enqueue(3)
        self.assertEqual(len(run_tasks()), 1)
        done = run_tasks(advance=True)
        self.assertEqual({result.status for result in done}, {TaskResultStatus.SUCCESSFUL})
        self.assertEqual(sorted(result.attempts for result in done), [1, 3])

    def test_on_commit_callbacks_run_as_after_a_commit(self):
        seen = []
        with self.captureOnCommitCallbacks() as left:
            tasks.enqueue_more.enqueue(0)
            run_tasks()
            transaction.on_commit(lambda: seen.append("mine"))
        self.assertEqual((len(left), seen), (1, []))

    def test_what_a_failing_task_wrote_stays_as_in_a_worker(self):
        for how, paid, error in (("itself", True, "Declined"), ("database", False, "IntegrityError")):
            with self.subTest(how=how):
                order = Order.objects.create(item="book")
                tasks.pay_and_fail.enqueue(order.pk, how)
                (result,) = run_tasks()
                self.assertEqual(result.errors[0].exception_class.__name__, error)
                order.refresh_from_db()
                self.assertEqual(order.paid, paid)

    def test_a_failing_task_leaves_the_transaction_usable(self):
        order = Order.objects.create(item="book")
        tasks.pay_once.enqueue(order.pk, fails=True)
        run_tasks()
        order.refresh_from_db()
        self.assertFalse(order.paid)

    def test_a_task_of_a_module_that_nobody_imported(self):
        elsewhere.found.enqueue()
        self.assertEqual([result.return_value for result in run_tasks()], ["found"])

    def test_queues(self):
        tasks.add.enqueue(1)
        tasks.mail.enqueue("ada")
        self.assertEqual([result.task.name for result in run_tasks(queues=["emails"])], ["mail"])

    def test_the_loop_of_another_thread(self):
        tasks.add.enqueue(1)

        async def run():
            from asgiref.sync import sync_to_async

            return await sync_to_async(run_tasks)()

        self.assertEqual(len(async_to_sync(run)()), 1)
        self.assertRaises(RuntimeError, asyncio.get_running_loop)
