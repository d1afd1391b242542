"""The app: it writes down every signal of the tasks framework."""

import os

from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "shop"

    def ready(self):
        path = os.environ.get("PROJECT_SIGNALS")
        if path is None:
            return
        from tasklib.contrib.django.framework import signals

        def write(kind):
            def receive(sender, task_result, **_):
                from shop.models import Order

                Order.objects.count()  # receivers may use the database
                line = f"{kind} {task_result.task.name} {task_result.status} {task_result.attempts}\n"
                with open(path, "a") as file:
                    file.write(line)

            return receive

        for kind in ("task_enqueued", "task_started", "task_finished"):
            getattr(signals, kind).connect(write(kind), weak=False)
