import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("console", "0002_ways_to_sign_in"),
    ]

    operations = [
        migrations.CreateModel(
            name="Alert",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("rule_name", models.CharField(max_length=64)),
                ("figure", models.CharField(max_length=32)),
                ("subject", models.CharField(blank=True, default="", max_length=255)),
                ("above", models.FloatField()),
                ("severity", models.CharField(max_length=5)),
                ("since_ms", models.BigIntegerField()),
                ("fired_ms", models.BigIntegerField(db_index=True)),
                ("ended_ms", models.BigIntegerField(db_index=True, null=True)),
                ("ended_by", models.CharField(blank=True, default="", max_length=10)),
                ("worst", models.FloatField()),
                ("value", models.FloatField(null=True)),
                ("reminded_ms", models.BigIntegerField(null=True)),
            ],
            options={
                "ordering": ("-fired_ms", "-id"),
            },
        ),
        migrations.CreateModel(
            name="AlertChannel",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=64, unique=True)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("webhook", "Webhook (JSON)"),
                            ("mail", "Mail"),
                            ("slack", "Slack"),
                            ("dingtalk", "DingTalk"),
                            ("feishu", "Feishu"),
                            ("wecom", "WeCom"),
                        ],
                        max_length=10,
                    ),
                ),
                ("address", models.CharField(blank=True, default="", max_length=1024)),
                ("secret", models.CharField(blank=True, default="", max_length=256)),
                ("mail", models.JSONField(blank=True, default=dict)),
                ("language", models.CharField(default="en", max_length=10)),
            ],
            options={
                "ordering": ("name",),
            },
        ),
        migrations.CreateModel(
            name="AlertDelivery",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("channel_name", models.CharField(max_length=64)),
                ("event", models.CharField(max_length=10)),
                ("notice", models.JSONField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("waiting", "waiting"),
                            ("sent", "sent"),
                            ("failed", "failed"),
                            ("silenced", "silenced"),
                        ],
                        db_index=True,
                        default="waiting",
                        max_length=10,
                    ),
                ),
                ("tries", models.PositiveIntegerField(default=0)),
                ("next_try_ms", models.BigIntegerField(default=0)),
                ("created_at_ms", models.BigIntegerField(db_index=True)),
                ("done_ms", models.BigIntegerField(null=True)),
                ("why", models.CharField(blank=True, default="", max_length=300)),
                ("alerts", models.ManyToManyField(blank=True, related_name="deliveries", to="console.alert")),
                (
                    "channel",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="deliveries",
                        to="console.alertchannel",
                    ),
                ),
            ],
            options={
                "ordering": ("-id",),
            },
        ),
        migrations.CreateModel(
            name="AlertRule",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=64, unique=True)),
                ("figure", models.CharField(max_length=32)),
                ("pattern", models.CharField(default="*", max_length=255)),
                ("above", models.FloatField()),
                ("for_minutes", models.PositiveIntegerField(default=5)),
                (
                    "severity",
                    models.CharField(choices=[("watch", "watch"), ("act", "act today")], default="watch", max_length=5),
                ),
                ("again_after_minutes", models.PositiveIntegerField(default=0)),
                ("is_active", models.BooleanField(default=True)),
                ("channels", models.ManyToManyField(blank=True, related_name="rules", to="console.alertchannel")),
            ],
            options={
                "ordering": ("name",),
            },
        ),
        migrations.AddField(
            model_name="alert",
            name="rule",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="alerts", to="console.alertrule"
            ),
        ),
        migrations.CreateModel(
            name="AlertSilence",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("pattern", models.CharField(default="*", max_length=255)),
                ("until_ms", models.BigIntegerField(db_index=True)),
                ("reason", models.CharField(max_length=255)),
                ("by", models.CharField(max_length=80)),
                ("created_at_ms", models.BigIntegerField()),
                (
                    "rule",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="silences",
                        to="console.alertrule",
                    ),
                ),
            ],
            options={
                "ordering": ("until_ms",),
            },
        ),
    ]
