"""What the shop does in the background.  A task asks for its session exactly as a route does."""

import logging
import time

from database import URL, Order, Transaction

from tasklib import TaskContext, TaskQueue

queue = TaskQueue(URL)
log = logging.getLogger("shop")


@queue.task(max_retries=5, timeout_seconds=60)
def pack_order(order_id: int, transaction: Transaction) -> str:
    order = transaction.get_one(Order, order_id)
    if order.state == "new":  # a task may run twice: what is done is not done again
        order.state = "packed"
        send_receipt.options(connection=transaction).submit(order_id)
    return order.state


@queue.task(max_retries=5)
def send_receipt(order_id: int, ctx: TaskContext, transaction: Transaction) -> str:
    order = transaction.get_one(Order, order_id)
    ctx.log("sending the receipt of order %d to %s", order.id, order.email)
    return f"receipt for {order.product} sent to {order.email}"


@queue.task
def take_inventory(seconds: float) -> str:
    """Something slow, to see that a deployment waits for it."""
    time.sleep(seconds)
    return "counted"


@queue.schedule(cron="0 3 * * *", tz="Europe/Paris")
@queue.task
def remind_unpaid() -> None:
    log.info("nobody forgot to pay")
