"""The shop's own tables, and the session that a request and a task both ask for."""

import os
from collections.abc import Iterator
from typing import Annotated

from fastapi import Depends
from sqlalchemy import ForeignKey, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

URL = os.environ.get("DATABASE_URL", "postgresql://localhost/shop")
engine = create_engine(URL.replace("postgresql://", "postgresql+psycopg://"))


class Base(DeclarativeBase):
    pass


class Product(Base):
    __tablename__ = "products"

    name: Mapped[str] = mapped_column(primary_key=True)
    in_stock: Mapped[int]


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    product: Mapped[str] = mapped_column(ForeignKey("products.name"))
    email: Mapped[str]
    state: Mapped[str] = mapped_column(default="new")


def get_session() -> Iterator[Session]:
    """One transaction: committed if all went well, rolled back if something was raised."""
    with Session(engine) as session, session.begin():
        yield session


# scope="function": the request is answered after the commit, so an answer is never a promise.
Transaction = Annotated[Session, Depends(get_session, scope="function")]
