import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies: list[tuple[str, str]] = []

    operations = [
        migrations.CreateModel(
            name="OutboxLane",
            fields=[
                ("lane", models.PositiveSmallIntegerField(primary_key=True, serialize=False)),
                ("relay", models.CharField(blank=True, default="", max_length=64)),
                ("until", models.DateTimeField(blank=True, null=True)),
            ],
        ),
        migrations.CreateModel(
            name="HandledMessage",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("group", models.CharField(max_length=255)),
                ("message", models.CharField(max_length=255)),
                ("handled_at", models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("group", "message"), name="rocketbox_handled_once")],
            },
        ),
        migrations.CreateModel(
            name="OutboxMessage",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("lane", models.PositiveSmallIntegerField()),
                ("key", models.CharField(blank=True, default="", max_length=255)),
                ("topic", models.CharField(max_length=255)),
                ("body", models.BinaryField()),
                ("size", models.PositiveIntegerField()),
                ("options", models.TextField()),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("error", models.TextField(blank=True, default="")),
                ("next_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "indexes": [models.Index(fields=["lane", "id"], name="rocketbox_outbox_lane")],
            },
        ),
    ]
