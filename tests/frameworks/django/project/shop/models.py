"""What the shop sells."""

from django.db import models


class Order(models.Model):
    item = models.CharField(max_length=50)
    paid = models.BooleanField(default=False)
