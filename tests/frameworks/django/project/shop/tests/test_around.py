"""What is around tasks: signals, checks, the admin, migrations."""

import json
import re
import sys
from datetime import timedelta
from io import StringIO

from django.contrib.auth.models import User
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import TestCase, TransactionTestCase, modify_settings, override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from shop import tasks
from tasklib.contrib.django.framework import signals, task_backends
from tasklib.contrib.django.models import Schedule, Task
from tasklib.contrib.django.testing import run_tasks

BACKEND = "tasklib.contrib.django.TasklibBackend"


def declared(**options):
    return override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": ["default"], "OPTIONS": options}})


class Signals(TestCase):
    def setUp(self):
        self.seen = []
        for name in ("task_enqueued", "task_started", "task_finished"):
            self.connect(name)

    def connect(self, name):
        def receive(sender, task_result, **_):
            self.seen.append((name, sender.__name__, task_result.status, task_result.attempts))

        signal = getattr(signals, name)
        signal.connect(receive, weak=False)
        self.addCleanup(signal.disconnect, receive)

    def test_one_for_each_event(self):
        tasks.add.enqueue(1)
        run_tasks()
        self.assertEqual(
            self.seen,
            [
                ("task_enqueued", "TasklibBackend", "READY", 0),
                ("task_started", "TasklibBackend", "RUNNING", 1),
                ("task_finished", "TasklibBackend", "SUCCESSFUL", 1),
            ],
        )

    def test_finished_comes_at_the_end_only(self):
        tasks.decline_twice.enqueue()
        run_tasks(advance=True)
        self.assertEqual([each[0] for each in self.seen], ["task_enqueued", *["task_started"] * 2, "task_finished"])
        self.assertEqual(self.seen[-1][2:], ("FAILED", 2))


class Checks(TestCase):
    databases = {"default", "other"}

    def ids(self):
        return sorted(found.id for found in run_checks() if found.id.startswith("tasklib."))

    def test_nothing_is_wrong(self):
        self.assertEqual(self.ids(), [])

    @modify_settings(INSTALLED_APPS={"remove": "tasklib.contrib.django"})
    def test_a_missing_app(self):
        self.assertEqual(self.ids(), ["tasklib.E002"])

    @declared(database="nowhere")
    def test_a_database_that_is_not_there(self):
        self.assertEqual(self.ids(), ["tasklib.E003"])

    @declared(max_retries=-1)
    def test_an_option_that_cannot_work(self):
        self.assertEqual(self.ids(), ["tasklib.E004"])

    @override_settings(DATABASE_ROUTERS=["shop.tests.test_around.NoTables"])
    def test_a_router_that_keeps_the_tables_out(self):
        self.assertEqual(self.ids(), ["tasklib.E005"])

    def test_schedules(self):
        for plan in (
            {"task": "shop.tasks.nothing", "every": 5},
            {"task": "shop.tasks.add", "args": [1]},
            {"task": "shop.tasks.add", "cron": "nonsense", "args": [1]},
            {"task": "shop.tasks.add", "every": 5},
            {"task": "shop.tasks.mail", "every": 5, "args": ["ada"]},
            "nightly",
        ):
            with self.subTest(plan=plan), declared(schedules={"nightly": plan}):
                self.assertIn("tasklib.E006", self.ids())

    @declared()
    def test_a_queue_that_is_not_there(self):
        self.assertEqual(self.ids(), ["tasklib.E008"])

    def test_a_misspelt_option(self):
        from django.core.exceptions import ImproperlyConfigured

        with declared(max_retry=1), self.assertRaisesRegex(ImproperlyConfigured, "has no max_retry; it may have"):
            _ = task_backends["default"]

    def test_the_command_names_what_is_there(self):
        for arguments, message in (
            (["--queues", "nowhere"], "there is no queue 'nowhere'.* has default, emails"),
            (["--backend", "nowhere"], "TASKS has default, immediate"),
            (["--backend", "immediate"], "not a TasklibBackend"),
            (["--concurrency", "0"], "must be 1 or more"),
        ):
            with self.subTest(arguments=arguments), self.assertRaisesRegex(CommandError, message):
                call_command("tasklib_worker", *arguments, stdout=StringIO())


class NoTables:
    def allow_migrate(self, db, app_label, **_):
        return app_label != "tasklib"


class Admin(TestCase):
    def setUp(self):
        self.client.force_login(User.objects.create(username="root", is_staff=True, is_superuser=True))

    def page(self, query=""):
        with CaptureQueriesContext(connection) as queries:
            answer = self.client.get(f"/admin/tasklib/task/{query}")
        self.assertEqual(answer.status_code, 200)
        # Django itself counts nothing either: not for pages, not for filters, not for the number of results.
        self.assertFalse([each["sql"] for each in queries if "count(" in each["sql"].lower()])
        return answer.content.decode(), queries

    def listed(self, query=""):
        return len(re.findall(r'name="_selected_action"', self.page(query)[0]))

    def test_pages_filters_and_search(self):
        for number in range(60):
            tasks.add.enqueue(number)
        tasks.mail.enqueue("ada@example.com")
        failed = tasks.decline.enqueue("no money")
        run_tasks(queues=["default"], limit=61)
        page, _ = self.page()
        self.assertIn("Older", page)
        self.assertIn("http://localhost:8000/dashboard/", page)
        older = re.search(r'href="(\?after=\d+)"', page)[1]
        self.assertEqual((self.listed(), self.listed(older)), (50, 12))
        self.assertEqual(self.listed("?state=failed"), 1)
        self.assertEqual(self.listed("?state=pending&name=emails:shop.tasks.mail"), 1)
        self.assertEqual(self.listed("?q=ada@example"), 1)
        self.assertEqual(self.listed(f"?q={failed.id}"), 1)
        self.assertEqual(self.listed("?q=nothing-like-this"), 0)
        self.assertEqual(self.listed("?state=nonsense&after=nonsense"), 50)

    def test_a_task(self):
        failed = tasks.decline.enqueue("<script>")
        run_tasks()
        page = self.client.get(f"/admin/tasklib/task/{failed.id}/change/").content.decode()
        self.assertIn("shop.tasks.Declined: &lt;script&gt;", page)
        self.assertIn(f"http://localhost:8000/dashboard/tasks/{failed.id}", page)
        waiting = tasks.add.enqueue(1)
        page = self.client.get(f"/admin/tasklib/task/{waiting.id}/change/").content.decode()
        self.assertIn("Why it has not finished", page)
        later = tasks.add.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(1)
        page = self.client.get(f"/admin/tasklib/task/{later.id}/change/").content.decode()
        self.assertIn("Cancel this task", page)
        self.assertNotIn("_retry", page)
        unknown = self.client.get("/admin/tasklib/task/01a1e74c-6647-767a-9bb7-24a68b679c74/change/")
        self.assertRedirects(unknown, "/admin/", fetch_redirect_response=False)

    def test_retry_and_cancel(self):
        failed, waiting = tasks.decline.enqueue(), tasks.add.enqueue(1)
        run_tasks(limit=1)
        chosen = {"_selected_action": [failed.id, waiting.id]}
        page = self.client.post("/admin/tasklib/task/", {"action": "retry_selected", **chosen}, follow=True)
        self.assertContains(page, "The task was retried.")
        self.assertContains(page, "annot retry task")
        page = self.client.post("/admin/tasklib/task/", {"action": "cancel_selected", **chosen}, follow=True)
        self.assertContains(page, "2 tasks were cancelled.")
        page = self.client.post(f"/admin/tasklib/task/{failed.id}/change/", {"_retry": "1"}, follow=True)
        self.assertContains(page, "The task was retried.")
        self.assertEqual(set(Task.objects.values_list("state", flat=True)), {"pending", "cancelled"})

    def test_who_may_only_look_changes_nothing(self):
        from django.contrib.auth.models import Permission

        viewer = User.objects.create(username="viewer", is_staff=True)
        viewer.user_permissions.add(Permission.objects.get(codename="view_task", content_type__app_label="tasklib"))
        self.client.force_login(viewer)
        waiting = tasks.add.enqueue(1)
        self.assertNotIn("retry_selected", self.page()[0])
        self.assertEqual(self.client.post(f"/admin/tasklib/task/{waiting.id}/change/").status_code, 403)
        self.client.force_login(User.objects.create(username="nobody", is_staff=True))
        self.assertEqual(self.client.get(f"/admin/tasklib/task/{waiting.id}/change/").status_code, 403)

    def test_schedules(self):
        from tasklib.contrib.django import get_queue

        get_queue().add_schedule("nightly", task="shop.tasks.add", cron="0 3 * * *", kwargs={"a": 1})
        self.assertContains(self.client.get("/admin/tasklib/schedule/"), "0 3 * * *")
        for action in ("pause", "resume", "run_now"):
            self.client.post("/admin/tasklib/schedule/", {"action": action, "_selected_action": ["nightly"]})
        self.assertIsNone(Schedule.objects.get().paused_at)
        self.assertEqual(Task.objects.get().name, "shop.tasks.add")
        self.assertEqual(self.client.get("/admin/tasklib/schedule/nightly/change/").status_code, 200)

    def test_plans_at_many_rows(self):
        """No page of the list reads the table from its start: each statement's plan goes by an index."""
        if connection.vendor != "postgresql":
            self.skipTest("the plans are PostgreSQL's")
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO tasks (name, state, completed_at, error)"
                " SELECT 'shop.tasks.add', s, CASE WHEN s <> 'pending' THEN now() END,"
                " CASE WHEN s = 'failed' THEN 'E: x' END"
                " FROM (SELECT CASE WHEN n % 1000 = 0 THEN 'failed' WHEN n > 19000 THEN 'pending' ELSE 'completed' END"
                " AS s FROM generate_series(1, 20000) AS n) AS made"
            )
            cursor.execute("ANALYZE tasks")
        for query in ("", "?state=failed", "?state=completed", "?state=pending", "?name=shop.tasks.add", "?after=9000"):
            _, queries = self.page(query)
            for sql in (each["sql"] for each in queries if re.search(r"\btasks AS t\b", each["sql"])):
                with connection.cursor() as cursor:
                    cursor.execute(f"EXPLAIN {sql}")
                    plan = "\n".join(row[0] for row in cursor.fetchall())
                self.assertNotRegex(plan, r"Seq Scan on tasks\b", f"{query}: {sql}")


class Migrations(TransactionTestCase):
    def test_there_and_back(self):
        tasks.add.enqueue(1)
        call_command("migrate", "tasklib", "zero", verbosity=0)
        left = [
            name for name in connection.introspection.table_names() if name == "tasks" or name.startswith("tasklib")
        ]
        self.assertEqual(left, [])
        call_command("migrate", "tasklib", verbosity=0)
        tasks.add.enqueue(2)
        self.assertEqual(Task.objects.count(), 1)

    def test_the_models_and_the_migrations_agree(self):
        call_command("makemigrations", "tasklib", check=True, dry_run=True, verbosity=0)

    def test_tables_made_by_tasklib_itself_are_taken_as_they_are(self):
        call_command("migrate", "tasklib", "zero", verbosity=0)
        from tasklib.contrib.django.database import DjangoDatabase

        DjangoDatabase("default").migrate()
        kept = tasks.add.enqueue(1)
        call_command("migrate", "tasklib", verbosity=0)
        self.assertEqual(tasks.add.get_result(kept.id).args, [1])

    def test_the_url_is_that_of_the_live_connection(self):
        from tasklib.contrib.django.address import url_of

        self.assertIn("memory" if connection.vendor == "sqlite" else "/test_", url_of("default"))
        if connection.vendor == "postgresql":
            before = connection.settings_dict
            connection.settings_dict = {
                **before,
                "NAME": "a/b",
                "USER": "us er",
                "PASSWORD": "p@ss:/",
                "HOST": "/run/pg",
                "OPTIONS": {"sslmode": "disable", "assume_role": "app", "options": "-c search_path=x"},
            }
            try:
                self.assertEqual(
                    url_of("default"),
                    f"postgresql://us%20er:p%40ss%3A%2F@/a%2Fb?host=%2Frun%2Fpg&port={before['PORT']}"
                    "&client_encoding=UTF8&options=-c%20search_path%3Dx%20-c%20role%3Dapp&sslmode=disable",
                )
            finally:
                connection.settings_dict = before

    def test_each_of_several_hosts_keeps_its_port(self):
        from tasklib.contrib.django.address import url_of

        if connection.vendor == "postgresql":
            from psycopg.conninfo import conninfo_to_dict

            before = connection.settings_dict
            try:
                for hosts, ports in (("one,two", "5432,5433"), ("::1,fe80::1%eth0", "5432"), ("fe80::1%eth0", "5432")):
                    connection.settings_dict = {**before, "HOST": hosts, "PORT": ports}
                    given = conninfo_to_dict(url_of("default"))
                    self.assertEqual((given["host"], given["port"]), (hosts, ports))
            finally:
                connection.settings_dict = before

    def test_names_of_other_programs_run_nothing_but_tasks(self):
        names = ("os.getcwd", "antigravity.fly", "shop.models.Order", "shop.tasks.nothing", "nonsense", "a:b:c", ".")
        with connection.cursor() as cursor:
            for name in names:
                cursor.execute("INSERT INTO tasks (name) VALUES (%s)", [name])
        self.assertEqual(run_tasks(), [])
        self.assertEqual(set(Task.objects.values_list("state", flat=True)), {"pending"})
        self.assertNotIn("antigravity", sys.modules)

    def test_json_of_other_programs(self):
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO tasks (name, kwargs) VALUES ('shop.tasks.add', %s)", [json.dumps({"a": 1})])
        self.assertEqual([result.return_value for result in run_tasks()], [2])
