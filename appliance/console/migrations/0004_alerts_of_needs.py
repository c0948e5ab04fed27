from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("console", "0003_alerts"),
    ]

    operations = [
        migrations.AddField(
            model_name="alert",
            name="words",
            field=models.JSONField(blank=True, default=dict),
        ),
    ]
