"""The shop's own tests: real requests, a real database, the worker of the lifespan.

DATABASE_URL=postgresql://localhost/shop_test SHOP_ADMIN_PASSWORD=secret python -m pytest examples/shop
"""

from collections.abc import Iterator

import pytest
from app import ADMIN_PASSWORD, app
from database import Product, Session, engine, get_session
from fastapi.testclient import TestClient
from sqlalchemy import text
from tasks import pack_order, queue


@pytest.fixture
def client() -> Iterator[TestClient]:
    # `with` runs the lifespan, and so the worker; leaving it drains.
    with TestClient(app) as client:
        with Session(engine) as session, session.begin():
            session.execute(text("TRUNCATE orders"))
            session.get_one(Product, "kettle").in_stock = 10
        yield client


def test_an_order_is_packed_in_the_background(client: TestClient) -> None:
    answer = client.post("/orders", json={"product": "kettle", "email": "ada@example.com"})

    assert answer.status_code == 201
    assert queue.wait(answer.json()["task"], timeout=60).result == {"value": "packed"}
    assert client.get(f"/orders/{answer.json()['order']}").json()["state"] == "packed"


def test_the_customer_gets_a_receipt(client: TestClient) -> None:
    before = queue.count(name="send_receipt")
    answer = client.post("/orders", json={"product": "kettle", "email": "bob@example.com"})
    queue.wait(answer.json()["task"], timeout=60)

    # The receipt was submitted in the transaction in which the order was packed.
    (receipt,) = queue.list(name="send_receipt", limit=1)
    assert queue.count(name="send_receipt") == before + 1
    assert queue.wait(receipt.id, timeout=60).result == {"value": "receipt for kettle sent to bob@example.com"}


def test_what_is_sold_out_leaves_no_order_and_no_task(client: TestClient) -> None:
    with Session(engine) as session, session.begin():
        session.get_one(Product, "kettle").in_stock = 0
    before = queue.count()

    answer = client.post("/orders", json={"product": "kettle", "email": "eve@example.com"})

    assert answer.status_code == 409
    assert queue.count() == before
    with Session(engine) as session:
        assert session.execute(text("SELECT count(*) FROM orders")).scalar_one() == 0


def test_a_task_is_a_plain_function_too(client: TestClient) -> None:
    client.post("/orders", json={"product": "kettle", "email": "ada@example.com"})
    with Session(engine) as session, session.begin():
        number = session.execute(text("SELECT id FROM orders")).scalar_one()
        assert pack_order(number, session) == "packed"


def test_the_dashboard_is_for_staff(client: TestClient) -> None:
    assert client.get("/tasks/api/tasks").status_code == 401
    assert client.get("/tasks/api/tasks", headers={"x-admin-password": "guessed"}).status_code == 401
    assert client.get("/tasks/api/tasks", headers={"x-admin-password": ADMIN_PASSWORD}).status_code == 200


def test_the_session_of_a_request_can_be_replaced_in_tests(client: TestClient) -> None:
    asked = []

    def other() -> Iterator[Session]:
        asked.append("once")
        with Session(engine) as session, session.begin():
            yield session

    app.dependency_overrides[get_session] = other
    try:
        answer = client.post("/orders", json={"product": "kettle", "email": "ada@example.com"})
    finally:
        del app.dependency_overrides[get_session]
    assert answer.status_code == 201
    assert asked == ["once"]  # the submitter shared it
