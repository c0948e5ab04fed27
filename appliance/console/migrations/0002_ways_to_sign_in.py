"""Two patterns instead of one, time zones, second factors, sessions, and links to set a password."""

from typing import Any

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import F

import appliance.console.models


def keep_the_one_pattern_for_both(apps: Any, schema_editor: Any) -> None:
    apps.get_model("console", "ApiToken").objects.update(group_pattern=F("topic_pattern"))


def text(length: int, **options: object) -> models.CharField:
    return models.CharField(max_length=length, blank=True, default="", **options)


class Migration(migrations.Migration):
    dependencies = [("console", "0001_first")]

    operations = [
        migrations.RenameField("ApiToken", "pattern", "topic_pattern"),
        migrations.AddField("ApiToken", "group_pattern", models.CharField(default="*", max_length=255)),
        migrations.AddField(
            "ApiToken",
            "made_by",
            models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="made",
                to="console.apitoken",
            ),
        ),
        migrations.RunPython(keep_the_one_pattern_for_both, migrations.RunPython.noop),
        migrations.AddField("User", "topic_pattern", models.CharField(default="*", max_length=255)),
        migrations.AddField("User", "group_pattern", models.CharField(default="*", max_length=255)),
        migrations.AddField("User", "time_zone", text(64)),
        migrations.AddField("User", "identity", text(512, db_index=True)),
        migrations.AddField("User", "totp_secret", text(64)),
        migrations.AddField("User", "totp_last_step", models.BigIntegerField(default=0)),
        migrations.CreateModel(
            name="RecoveryCode",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("digest", models.CharField(max_length=64)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="recovery_codes", to="console.user"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="SetPasswordLink",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("expires_at_ms", models.BigIntegerField()),
                ("used_at_ms", models.BigIntegerField(blank=True, null=True)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="password_links", to="console.user"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="SignIn",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("address", text(64)),
                ("agent", text(200)),
                ("way", models.CharField(max_length=12)),
                ("since_ms", models.BigIntegerField(default=appliance.console.models.now_ms)),
                ("seen_ms", models.BigIntegerField(db_index=True, default=appliance.console.models.now_ms)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="sign_ins", to="console.user"
                    ),
                ),
            ],
            options={"ordering": ("-seen_ms",)},
        ),
    ]
