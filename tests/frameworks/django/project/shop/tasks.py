"""The shop's tasks, of every kind that Django's framework knows."""

import asyncio
import os
import time

import django

if django.VERSION >= (6, 0):
    from django.tasks import task
else:
    from django_tasks import task

from shop.models import Order
from tasklib import current_context
from tasklib.contrib.django import queue_task, with_options


class Declined(Exception):
    """The bank says no."""


@task
def add(a, b=1):
    return a + b


@task
def pay(order_id):
    Order.objects.filter(pk=order_id).update(paid=True)
    return order_id


@task
async def apay(order_id):
    order = await Order.objects.aget(pk=order_id)
    order.paid = True
    await order.asave()
    await asyncio.sleep(0)
    return order_id


@task(takes_context=True)
def attempt(context, times=1):
    """Fails until the attempt of this number."""
    if context.attempt < times:
        raise Declined(f"attempt {context.attempt}")
    return [context.attempt, context.task_result.id, context.task_result.status]


@task(priority=10, queue_name="emails")
def mail(to, *copies, subject="Hi", **headers):
    return [to, list(copies), subject, headers]


@with_options(max_retries=0)
@task
def decline(why="no money"):
    raise Declined(why)


@with_options(max_retries=1)
@task
def decline_twice():
    raise Declined("again")


@with_options(max_retries=0)
@task
def unstorable():
    return object()


@with_options(transactional=True)
@task
def pay_once(order_id, fails=False):
    Order.objects.filter(pk=order_id).update(paid=True)
    if fails:
        raise Declined("after the update")


@with_options(max_retries=0)
@task
def pay_and_fail(order_id, how):
    Order.objects.filter(pk=order_id).update(paid=True)
    if how == "database":
        Order.objects.create(pk=order_id, item="twice")
    raise Declined(how)


@task
def enqueue_more(number):
    return [add.enqueue(n).id for n in range(number)]


@task
def wait_for(path, marker):
    """Writes a line for each attempt, and ends when the file is there."""
    with open(marker, "a") as file:
        file.write(f"{os.getpid()}\n")
    while not os.path.exists(path):
        time.sleep(0.02)
    return os.getpid()


@with_options(isolation="process")
@task
def pid():
    return [os.getpid(), Order.objects.count()]


@task
def break_connection():
    """Leaves a connection behind that the server has closed."""
    from django.db import connection

    Order.objects.count()
    connection.connection.close()


@task
async def abreak_connection():
    from asgiref.sync import sync_to_async

    await sync_to_async(break_connection.func)()


@task
def open_connections():
    """How many connections of Django's are open in this process, in whichever thread."""
    import gc

    from django.db.backends.base.base import BaseDatabaseWrapper

    gc.collect()
    wrappers = [each for each in gc.get_objects() if isinstance(each, BaseDatabaseWrapper)]
    return [sum(each.connection is not None for each in wrappers), os.getpid()]


@task
def double(number):
    return 2 * number


@task
def pay_in_steps(order_id):
    """A workflow: each step is remembered, and while it waits nothing is held."""
    ctx = current_context()
    ctx.step(pay.func, order_id)
    ctx.sleep(0.1)
    one = ctx.run(queue_task(add).bind(order_id, b=1))
    done = ctx.map(queue_task(double), ({"number": number} for number in range(3)))
    return [one, list(done.results())]


@task
async def apay_in_steps(order_id):
    ctx = current_context()
    await ctx.step(apay.func, order_id)
    done = await ctx.map(queue_task(double.using(queue_name="emails")), [{"number": 5}])
    return [each async for each in done.results()]
