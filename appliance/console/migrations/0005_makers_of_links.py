"""The makers of links to set a password; names of users have a letter or a digit."""

import django.core.validators
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("console", "0004_alerts_of_needs"),
    ]

    operations = [
        migrations.AlterField(
            model_name="user",
            name="username",
            field=models.CharField(
                max_length=64,
                unique=True,
                validators=[
                    django.core.validators.RegexValidator("^[\\w.@+-]+\\Z", "Letters, digits and . @ + - _ only."),
                    django.core.validators.RegexValidator("[^\\W_]", "At least one letter or digit."),
                ],
            ),
        ),
        migrations.AddField(
            model_name="setpasswordlink",
            name="made_by",
            field=models.ForeignKey(
                null=True, on_delete=models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
            ),
        ),
        migrations.AddField(
            model_name="setpasswordlink",
            name="made_with",
            field=models.ForeignKey(
                null=True, on_delete=models.deletion.SET_NULL, related_name="+", to="console.apitoken"
            ),
        ),
    ]
