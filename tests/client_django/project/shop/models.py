from django.db import models


class Order(models.Model):
    name = models.CharField(max_length=100)


class Bill(models.Model):
    name = models.CharField(max_length=100)
    attempt = models.IntegerField()
