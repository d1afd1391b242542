"""A shop: FastAPI, SQLAlchemy, PostgreSQL and tasklib.  See README.md beside this file."""

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from database import Base, Order, Product, Session, Transaction, engine
from fastapi import Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel
from tasks import pack_order, queue, take_inventory

from tasklib import TransactionSubmitter

ADMIN_PASSWORD = os.environ.get("SHOP_ADMIN_PASSWORD", "")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    Base.metadata.create_all(engine)
    await queue.amigrate()
    with Session(engine) as session, session.begin():
        if session.get(Product, "kettle") is None:
            session.add(Product(name="kettle", in_stock=10))
    # The worker stops before everything that was opened above, so its tasks can use it to the end.
    async with queue.lifespan(concurrency=4, grace_seconds=20)(app):
        yield


def staff(request: Request) -> str | None:
    """The shop's own check, for the mounted dashboard too: the role of the caller, or None."""
    given = request.headers.get("x-admin-password", "")
    is_right = bool(ADMIN_PASSWORD) and secrets.compare_digest(given.encode(), ADMIN_PASSWORD.encode())
    return "operator" if is_right else None


app = FastAPI(title="Shop", lifespan=lifespan)
app.mount("/tasks", queue.asgi(auth=staff))

Tasks = Annotated[TransactionSubmitter, Depends(queue.submitter(Transaction))]


class NewOrder(BaseModel):
    product: str
    email: str


@app.post("/orders", status_code=201)
def create_order(new: NewOrder, transaction: Transaction, tasks: Tasks) -> dict[str, object]:
    product = transaction.get(Product, new.product, with_for_update=True)
    if product is None:
        raise HTTPException(404, f"we do not sell {new.product!r}")
    order = Order(product=product.name, email=new.email)
    transaction.add(order)
    transaction.flush()  # gives the order its number
    task_id = tasks.submit(pack_order, order.id)  # stored if, and only if, the order is
    if product.in_stock == 0:
        raise HTTPException(409, f"{product.name} is sold out")
    product.in_stock -= 1
    return {"order": order.id, "task": str(task_id)}


@app.get("/orders/{order_id}")
def show_order(order_id: int, transaction: Transaction) -> dict[str, object]:
    order = transaction.get(Order, order_id)
    if order is None:
        raise HTTPException(404, f"there is no order {order_id}")
    return {"order": order.id, "product": order.product, "state": order.state}


@app.post("/inventory", status_code=202)
async def inventory(seconds: float = 5) -> dict[str, str]:
    return {"task": str(await take_inventory.asubmit(seconds))}
